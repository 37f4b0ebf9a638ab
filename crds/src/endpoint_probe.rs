//! How a cluster's endpoints are probed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How each endpoint is probed, in the words of a Pod's probes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointProbe {
    /// The path that is asked for by GET; 200 is success.
    #[schemars(length(min = 1, max = 256), regex(pattern = "^/[!-~]*$"))]
    pub path: String,
    /// Seconds from one probe to the next.
    #[schemars(with = "i32", range(min = 1, max = 3_600))]
    pub period_seconds: u32,
    /// Seconds after which an answer that is not there is a failure.
    #[schemars(with = "i32", range(min = 1, max = 3_600))]
    pub timeout_seconds: u32,
    /// How many successes in a row make an endpoint healthy that was not.
    #[schemars(with = "i32", range(min = 1, max = 100))]
    pub success_threshold: u32,
    /// How many failures in a row take a healthy endpoint out.
    #[schemars(with = "i32", range(min = 1, max = 100))]
    pub failure_threshold: u32,
}

impl Default for EndpointProbe {
    /// A Pod's readiness probe, of what a kube-apiserver says of itself.
    fn default() -> Self {
        Self {
            path: "/readyz".to_owned(),
            period_seconds: 5,
            timeout_seconds: 5,
            success_threshold: 1,
            failure_threshold: 3,
        }
    }
}
