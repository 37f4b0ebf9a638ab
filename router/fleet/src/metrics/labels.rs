//! The labels of series, and what of them is others' choice.
//!
//! They are made where a series begins, and where somebody looks for one who does not keep it. What is chosen by others
//! are shared texts: resources have those that discovery has.

use std::sync::Arc;

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use tributary_apimachinery::{GroupVersionResource, Verb};

use super::capped::ChosenLabels;
use super::counted_request::CountedRequest;

/// The label of what is counted together, because there is no room for each.
pub const OTHER: &str = "other";

/// The labels of a resource; empty for other paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub struct ResourceLabels {
    /// The API group.
    pub group: Arc<str>,
    /// The version.
    pub version: Arc<str>,
    /// The plural resource.
    pub resource: Arc<str>,
}

impl ResourceLabels {
    /// The labels of a resource.
    pub fn from_resource(resource: &GroupVersionResource) -> Self {
        let GroupVersionResource { group, version, resource } = resource.clone();
        Self { group, version, resource }
    }

    /// The labels of what is counted together.
    pub(super) fn other() -> Self {
        Self { resource: OTHER.into(), ..Self::default() }
    }

    /// The labels of its answers to a verb that say that a version is too old.
    pub(super) fn expired(&self, verb: Verb) -> ExpiredLabels {
        ExpiredLabels { verb: verb.in_metrics(), resource: self.clone() }
    }
}

impl ChosenLabels for ResourceLabels {
    fn without_choice(&self) -> Self {
        Self::other()
    }
}

/// The labels of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    /// `GET`, `LIST`, `WATCH`, `POST`, …: kube-apiserver's upper-case verbs.
    verb: &'static str,
    /// The resource; empty for other paths.
    #[prometheus(flatten)]
    pub(super) resource: ResourceLabels,
    /// The subresource; empty for none.
    subresource: Arc<str>,
    /// `cluster`, `namespace`, `resource`, or empty.
    scope: &'static str,
    /// Who answered: `memory`, `member`, `self` for this process's own documents and checks, or empty where it was
    /// refused before.
    source: &'static str,
    /// The HTTP status code.
    code: u16,
}

impl RequestLabels {
    /// The labels of a request that was answered with this code.
    pub(super) fn from_request(request: &CountedRequest<'_>, code: StatusCode) -> Self {
        let (verb, source, code) = (request.verb.in_metrics(), request.source.as_str(), code.as_u16());
        let (resource, subresource, scope) = match &request.resource {
            Some(of) => (ResourceLabels::from_resource(&of.resource), Arc::<str>::from(&*of.subresource), of.scope),
            None => (ResourceLabels::default(), Arc::default(), ""),
        };
        Self { verb, resource, subresource, scope, source, code }
    }
}

impl ChosenLabels for RequestLabels {
    fn without_choice(&self) -> Self {
        Self { resource: ResourceLabels::other(), subresource: Arc::default(), scope: "", ..*self }
    }
}

/// The labels of a request, by what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ClusterRequestLabels {
    /// The cluster that its path or host names, or the only one that was asked; `*` where several were; empty for none.
    pub(super) cluster: Arc<str>,
    /// The verb, as RBAC writes it.
    verb: &'static str,
    /// The resource as kubectl names it, with its subresource; empty for other paths.
    resource: Arc<str>,
    /// What became of it.
    decision: &'static str,
    /// What kind of client it came from.
    client: &'static str,
}

impl ClusterRequestLabels {
    /// The labels of a request.
    pub(super) fn from_request(request: &CountedRequest<'_>) -> Self {
        let mut resource = String::new();
        if let Some(of) = &request.resource {
            resource.push_str(&of.resource.group_resource());
            if !of.subresource.is_empty() {
                resource.push('/');
                resource.push_str(&of.subresource);
            }
        }
        Self {
            cluster: request.cluster.as_str().into(),
            verb: request.verb.as_str(),
            resource: resource.into(),
            decision: request.decision.as_str(),
            client: request.client.as_str(),
        }
    }
}

impl ChosenLabels for ClusterRequestLabels {
    fn without_choice(&self) -> Self {
        Self { cluster: OTHER.into(), resource: OTHER.into(), ..*self }
    }
}

/// The labels of answers that say that a version is too old.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ExpiredLabels {
    /// `LIST` or `WATCH`, as in [`RequestLabels`].
    verb: &'static str,
    /// The resource; empty for other paths.
    #[prometheus(flatten)]
    resource: ResourceLabels,
}

impl ChosenLabels for ExpiredLabels {
    fn without_choice(&self) -> Self {
        Self { resource: ResourceLabels::other(), ..*self }
    }
}

/// The labels of a bound.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LimitLabels {
    /// The bound's name.
    pub(super) limit: &'static str,
}

/// The labels of questions to members.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct QuestionLabels {
    /// What is asked about.
    pub(super) about: &'static str,
}

/// The labels of the turns for answers of one length.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AnswerLengthLabels {
    /// How long its answers are.
    pub(super) length: &'static str,
}
