//! `MergedEndpoint`: policies and limits of the merged view.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::flow_control::{GLOBALLY_NAMED_SCHEMAS_EXIST, NAMED_SCHEMAS_EXIST};
use crate::{ConfigurationStatus, DispatchPolicy, FlowControl, Logging};

/// The name of the only MergedEndpoint, and of the kubeconfig context for the merged view. No cluster can have this
/// name.
pub const MERGED_ENDPOINT: &str = "all";

/// Policies and limits of the merged view. The policies of each UpstreamCluster that a request reaches, or whose
/// objects it reads, apply afterwards.
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
    doc = "Policies and limits of the merged view. The only object of this kind is named `all`.",
    validation = Rule::new("self.metadata.name == 'all'").message("the only MergedEndpoint is named all"),
    printcolumn(name = "Accepted", type_ = "string", json_path = ".status.conditions[?(@.type=='Accepted')].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": NAMED_SCHEMAS_EXIST,
     "message": "flowControlSchemaName must be a name in flowControl.flowControlSchemas"},
    {"rule": GLOBALLY_NAMED_SCHEMAS_EXIST,
     "message": "flowControlSchemaName must be a name in flowControl.flowControlSchemas"}
]))]
pub struct MergedEndpointSpec {
    /// Policies for all requests: to the merged view, under `/clusters/<name>` and at hosts of `serverNames`. A request
    /// is evaluated once, before the policies of its path, and the first matching policy applies. These policies can
    /// only deny or limit a request. An allowed or unmatched request continues with the policies of its path.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-validations" = [{
            "rule": "self.all(policy, !has(policy.endpoints) || size(policy.endpoints) == 0)",
            "message": "endpoints belong to a single cluster; give them in the policies of an UpstreamCluster"
        }])
    )]
    pub global_dispatch_policies: Vec<DispatchPolicy>,
    /// Policies for requests to the merged view. The first policy with a matching rule applies. Without policies, all
    /// requests are allowed. With policies, a request without a matching policy is refused (500).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 1024),
        extend("x-kubernetes-validations" = [{
            "rule": "self.all(policy, !has(policy.endpoints) || size(policy.endpoints) == 0)",
            "message": "endpoints belong to a single cluster; give them in the policies of an UpstreamCluster"
        }])
    )]
    pub dispatch_policies: Vec<DispatchPolicy>,
    /// Limits for requests.
    #[serde(skip_serializing_if = "FlowControl::is_empty")]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "!has(self.flowControlSchemas) || self.flowControlSchemas.all(schema, !(has(schema.maxRequestsInflight) && has(schema.maxRequestsInflight.limitBy) && 'Cluster' in schema.maxRequestsInflight.limitBy) && !(has(schema.tokenBucket) && has(schema.tokenBucket.limitBy) && 'Cluster' in schema.tokenBucket.limitBy))",
        "message": "remove Cluster from limitBy; give limits of a single cluster in its UpstreamCluster"
    }]))]
    pub flow_control: FlowControl,
    /// The requests to write to the access log.
    #[serde(skip_serializing_if = "Logging::is_empty")]
    pub logging: Logging,
}
