//! Labels of metric series.
//!
//! The labels of a series are created when the series starts. The texts of labels that come from clusters share memory
//! with discovery.

use std::sync::Arc;

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use tributary_apimachinery::{GroupVersionResource, Verb};

use super::capped::ChosenLabels;
use super::counted_request::CountedRequest;

/// Label value of the shared series, in which all label sets above the limit are counted.
pub const OTHER: &str = "other";

/// Labels of a resource. They are empty for paths without a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub struct ResourceLabels {
    /// API group of the resource.
    pub group: Arc<str>,
    /// API version of the request.
    pub version: Arc<str>,
    /// Plural name of the resource.
    pub resource: Arc<str>,
}

impl ResourceLabels {
    /// Returns the labels of a resource.
    pub fn from_resource(resource: &GroupVersionResource) -> Self {
        let GroupVersionResource { group, version, resource } = resource.clone();
        Self { group, version, resource }
    }

    pub(super) fn other() -> Self {
        Self { resource: OTHER.into(), ..Self::default() }
    }

    pub(super) fn expired(&self, verb: Verb) -> ExpiredLabels {
        ExpiredLabels { verb: verb.metric_label(), resource: self.clone() }
    }
}

impl ChosenLabels for ResourceLabels {
    fn without_choice(&self) -> Self {
        Self::other()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    /// Verb in kube-apiserver's upper case: `GET`, `LIST`, `WATCH`, `POST`, …
    verb: &'static str,
    /// Resource of the request; empty for paths without a resource.
    #[prometheus(flatten)]
    pub(super) resource: ResourceLabels,
    /// Subresource of the request; empty if the request names none.
    subresource: Arc<str>,
    /// Scope of the request: `cluster`, `namespace`, `resource`, or empty.
    scope: &'static str,
    /// Source of the response: `memory`, `member`, `self` for Tributary's own documents and checks, or empty for a
    /// refused request.
    source: &'static str,
    code: u16,
}

impl RequestLabels {
    pub(super) fn from_request(request: &CountedRequest<'_>, code: StatusCode) -> Self {
        let (verb, source, code) = (request.verb.metric_label(), request.source.as_str(), code.as_u16());
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ClusterRequestLabels {
    /// Cluster in the path or host, or the only cluster to which the request was sent; `*` for several clusters, empty
    /// for none.
    pub(super) cluster: Arc<str>,
    /// Verb of the request as in RBAC.
    verb: &'static str,
    /// Resource and subresource in kubectl's notation; empty for a path without a resource.
    resource: Arc<str>,
    decision: &'static str,
    client: &'static str,
}

impl ClusterRequestLabels {
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ExpiredLabels {
    /// `LIST` or `WATCH`, as in [`RequestLabels`].
    verb: &'static str,
    /// Resource of the request; empty for paths without a resource.
    #[prometheus(flatten)]
    resource: ResourceLabels,
}

impl ChosenLabels for ExpiredLabels {
    fn without_choice(&self) -> Self {
        Self { resource: ResourceLabels::other(), ..*self }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LimitLabels {
    pub(super) limit: &'static str,
}

/// Labels of lookups, which Tributary sends to clusters before it answers a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct LookupLabels {
    pub(super) about: &'static str,
}

/// Labels of the permits for responses of one length class.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct AnswerLengthLabels {
    pub(super) length: &'static str,
}
