//! Labels of a counted request, without the code of its response.

use std::borrow::Cow;

use tributary_apimachinery::{ClusterName, GroupVersionResource, RequestInfo, Verb};

use super::client_class::ClientClass;
use super::decision::Decision;
use super::request_source::RequestSource;
use crate::discovery::MergedDiscovery;

/// Value of the cluster label for a request to several clusters.
pub(super) const SEVERAL: &str = "*";

/// Labels of a counted request. Requests with equal labels and the same code share a series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CountedRequest<'a> {
    /// Verb of the request. If the request cannot be parsed, the verb has no name.
    pub verb: Verb,
    /// Resource of the request. `None` for paths without a resource, and for resources that discovery lacks: with
    /// labels for such resources, clients could create an unlimited number of series.
    pub resource: Option<CountedResource<'a>>,
    /// Source of the response.
    pub source: RequestSource,
    /// Cluster in the path or host of the request. If neither names a cluster: the clusters to which Tributary sent the
    /// request.
    pub cluster: CountedCluster,
    /// Outcome of the request.
    pub decision: Decision,
    /// Class of the client.
    pub client: ClientClass,
}

/// Resource of a request, with the names from discovery.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CountedResource<'a> {
    pub(super) resource: Cow<'a, GroupVersionResource>,
    /// Subresource of the request. Empty if the request has no subresource, or a subresource that discovery lacks.
    pub(super) subresource: Cow<'a, str>,
    /// Scope of the request: `cluster`, `namespace` or `resource`.
    pub(super) scope: &'static str,
}

/// Cluster for which a request is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CountedCluster {
    /// The request was sent to no cluster.
    None,
    /// The request was sent to exactly this cluster.
    One(ClusterName),
    /// The request was sent to several clusters.
    Several,
}

impl CountedRequest<'_> {
    /// Returns the labels of a request that cannot be parsed.
    pub fn unread(decision: Decision, client: ClientClass) -> Self {
        let (verb, source, cluster) = (Verb::NonResource(""), RequestSource::Refused, CountedCluster::None);
        Self { verb, resource: None, source, cluster, decision, client }
    }

    /// A copy of the labels without borrowed texts. Costs a copy of the subresource's name.
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
    /// Returns the resource of a request, if a cluster serves the resource. Costs a lookup in the union of the
    /// discovery documents.
    pub fn from_request(info: &RequestInfo, merged_discovery: &'a MergedDiscovery) -> Option<Self> {
        let (request, served) = merged_discovery.served(info)?;
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
    /// Name of the cluster; `*` for several clusters, and empty for none.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::None => "",
            Self::One(cluster) => cluster.as_str(),
            Self::Several => SEVERAL,
        }
    }
}
