//! How a cluster's endpoints are probed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How each endpoint is probed, in the words of a Pod's probes. What is not given is as for a cluster without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointProbe {
    /// The path that is asked for by GET; 200 is success. Of `/readyz` any answer below 500 is, as an account may be
    /// forbidden it.
    #[schemars(length(min = 1, max = 256), regex(pattern = "^/[!-~]*$"))]
    pub path: String,
    /// Seconds from one probe to the next while the endpoint is well. While it is not it is probed every second.
    #[schemars(with = "i32", range(min = 1, max = 3_600))]
    pub period_seconds: u32,
    /// Seconds after which an answer that is not there is a failure, if nothing else came from the endpoint meanwhile.
    #[schemars(with = "i32", range(min = 1, max = 3_600))]
    pub timeout_seconds: u32,
    /// How many successes in a row make an endpoint healthy that was not.
    #[schemars(with = "i32", range(min = 1, max = 100))]
    pub success_threshold: u32,
    /// How many failures in a row take a healthy endpoint out. A connection that cannot be made does so at once.
    #[schemars(with = "i32", range(min = 1, max = 100))]
    pub failure_threshold: u32,
}

impl Default for EndpointProbe {
    /// As the endpoints of a cluster are probed that says nothing of it: what a kube-apiserver says of itself, and each
    /// answer counts.
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
