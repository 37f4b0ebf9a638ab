//! What is counted of a request: all that tells its series from those of others, but for the code of its answer.

use std::borrow::Cow;

use tributary_apimachinery::{ClusterName, GroupVersionResource, RequestInfo, Verb};

use super::client_class::ClientClass;
use super::decision::Decision;
use super::request_source::RequestSource;
use crate::discovery::Union;

/// The cluster of a request for which several were asked.
pub(super) const SEVERAL: &str = "*";

/// What is counted of a request. Those that are equal, and are answered with the same code, are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CountedRequest<'a> {
    /// The verb; one without a name where the request cannot be read.
    pub verb: Verb,
    /// What it asks for. `None` for other paths, and for what no member serves: a client could make series without end.
    pub resource: Option<CountedResource<'a>>,
    /// Who answered.
    pub source: RequestSource,
    /// The cluster that its path or host names, or those that were asked.
    pub cluster: CountedCluster,
    /// What became of it.
    pub decision: Decision,
    /// What kind of client it came from.
    pub client: ClientClass,
}

/// What a request asks for, in the words of who serves it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CountedResource<'a> {
    /// The resource.
    pub(super) resource: Cow<'a, GroupVersionResource>,
    /// The subresource; empty for none, and for one that no member serves.
    pub(super) subresource: Cow<'a, str>,
    /// `cluster`, `namespace` or `resource`.
    pub(super) scope: &'static str,
}

/// The cluster that a request is counted at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CountedCluster {
    /// None.
    None,
    /// This one.
    One(ClusterName),
    /// More than one.
    Several,
}

impl CountedRequest<'_> {
    /// A request that cannot be read.
    pub fn unread(decision: Decision, client: ClientClass) -> Self {
        let (verb, source, cluster) = (Verb::NonResource(""), RequestSource::Refused, CountedCluster::None);
        Self { verb, resource: None, source, cluster, decision, client }
    }

    /// The same, to be kept: it borrows nothing. Costs a copy of the subresource's name.
    pub(super) fn to_static(&self) -> CountedRequest<'static> {
        let Self { verb, resource, source, cluster, decision, client } = self;
        CountedRequest {
            verb: *verb,
            resource: resource.as_ref().map(CountedResource::to_static),
            source: *source,
            cluster: cluster.clone(),
            decision: *decision,
            client: *client,
        }
    }
}

impl<'a> CountedResource<'a> {
    /// What a request asks for, if some member serves that. Costs a look into the union.
    pub fn from_request(info: &RequestInfo, union: &'a Union) -> Option<Self> {
        let (request, served) = union.served(info)?;
        let scope = match (&request.name, &request.namespace) {
            (Some(_), _) => "resource",
            (None, Some(_)) => "namespace",
            (None, None) => "cluster",
        };
        Some(Self {
            resource: Cow::Borrowed(&served.resource),
            subresource: served.description.below(request).map_or("", |own| own.subresource.as_str()).into(),
            scope,
        })
    }

    fn to_static(&self) -> CountedResource<'static> {
        CountedResource {
            resource: Cow::Owned(GroupVersionResource::clone(&self.resource)),
            subresource: Cow::Owned((*self.subresource).to_owned()),
            scope: self.scope,
        }
    }
}

impl CountedCluster {
    /// Its name; `*` for several, and empty for none.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::None => "",
            Self::One(cluster) => cluster.as_str(),
            Self::Several => SEVERAL,
        }
    }
}
