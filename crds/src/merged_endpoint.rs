//! `MergedEndpoint`: how requests to the merged view of all clusters are governed.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flow_control::{GLOBALLY_NAMED_SCHEMAS_ARE_THERE, NAMED_SCHEMAS_ARE_THERE};
use crate::{ConfigurationStatus, DispatchPolicy, FlowControl, Logging};

/// The name of the one object of this kind: that of the merged view in kubeconfigs, which no cluster has.
pub const MERGED_ENDPOINT: &str = "all";

/// How requests to the merged view are governed, before they reach any cluster or what is held of it in memory. The
/// policies of each UpstreamCluster that a request is sent to, or shown objects of, follow.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tributary.dev",
    version = "v1alpha1",
    kind = "MergedEndpoint",
    plural = "mergedendpoints",
    shortname = "me",
    category = "tributary",
    derive = "PartialEq",
    status = "ConfigurationStatus",
    doc = "How requests to the merged view of all clusters are governed. There is one, named `all`.",
    validation = Rule::new("self.metadata.name == 'all'").message("the merged view is one; name it all"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": NAMED_SCHEMAS_ARE_THERE,
     "message": "flowControlSchemaName names none of flowControl.flowControlSchemas"},
    {"rule": GLOBALLY_NAMED_SCHEMAS_ARE_THERE,
     "message": "flowControlSchemaName names none of flowControl.flowControlSchemas"}
]))]
pub struct MergedEndpointSpec {
    /// Policies for each request, wherever it comes in: to the merged view, under `/clusters/<name>` or at a host of
    /// `serverNames`. A request passes them once, before the policies of that place; the first of them that takes it
    /// decides among them. They refuse requests or limit them, and let nothing pass that the policies of the place
    /// refuse. A request that none takes goes on to those.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-validations" = [{
            "rule": "self.all(policy, !has(policy.endpoints) || size(policy.endpoints) == 0)",
            "message": "endpoints are those of one cluster; give them to the policies of an UpstreamCluster"
        }])
    )]
    pub global_dispatch_policies: Vec<DispatchPolicy>,
    /// Which requests go on and which are refused; the first policy that takes a request decides. Without policies all
    /// go on. With policies a request that none takes is refused (500).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 1024),
        extend("x-kubernetes-validations" = [{
            "rule": "self.all(policy, !has(policy.endpoints) || size(policy.endpoints) == 0)",
            "message": "endpoints are those of one cluster; give them to the policies of an UpstreamCluster"
        }])
    )]
    pub dispatch_policies: Vec<DispatchPolicy>,
    /// How many requests go on.
    #[serde(skip_serializing_if = "FlowControl::is_empty")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "!has(self.flowControlSchemas) || self.flowControlSchemas.all(schema, !(has(schema.maxRequestsInflight) && has(schema.maxRequestsInflight.limitBy) && 'Cluster' in schema.maxRequestsInflight.limitBy) && !(has(schema.tokenBucket) && has(schema.tokenBucket.limitBy) && 'Cluster' in schema.tokenBucket.limitBy))",
        "message": "take Cluster out of limitBy; give limits of one cluster to its UpstreamCluster"
    }]))]
    pub flow_control: FlowControl,
    /// Which requests are written into the access log.
    #[serde(skip_serializing_if = "Logging::is_empty")]
    pub logging: Logging,
}
