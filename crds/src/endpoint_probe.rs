//! Health checks of the endpoints of a cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The health check of each endpoint, with the field names of a Pod's probes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointProbe {
    /// The path of the probe, a GET. Status 200 is success. For `/readyz`, any status below 500 is success, because the
    /// account may lack the right to get it.
    #[schemars(length(min = 1, max = 256), regex(pattern = "^/[!-~]*$"))]
    pub path: String,
    /// Seconds between probes of a healthy endpoint. An unhealthy endpoint is probed every second.
    #[schemars(with = "i32", range(min = 1, max = 3_600))]
    pub period_seconds: u32,
    /// Seconds until an unanswered probe is a failure, unless the endpoint sends other data meanwhile.
    #[schemars(with = "i32", range(min = 1, max = 3_600))]
    pub timeout_seconds: u32,
    /// Consecutive successes after which an unhealthy endpoint becomes healthy.
    #[schemars(with = "i32", range(min = 1, max = 100))]
    pub success_threshold: u32,
    /// Consecutive failures after which an endpoint becomes unhealthy. A connection error makes it unhealthy at once.
    #[schemars(with = "i32", range(min = 1, max = 100))]
    pub failure_threshold: u32,
}

impl Default for EndpointProbe {
    /// Returns the settings of a cluster that does not configure them. The path is kube-apiserver's readiness check,
    /// and a single result of a probe changes the health.
    fn default() -> Self {
        Self {
            path: "/readyz".to_owned(),
            period_seconds: 5,
            timeout_seconds: 4,
            success_threshold: 1,
            failure_threshold: 1,
        }
    }
}
