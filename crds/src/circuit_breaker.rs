//! When a cluster's endpoints that fail are sent nothing for a while, and how much may be under way there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// When endpoints that fail are sent nothing, and how many requests may be in flight. What is not given is as for a
/// cluster without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CircuitBreaker {
    /// So many failures of an endpoint in a row open its breaker: connections that cannot be made, probes that are not
    /// answered. Nothing that a client asks for counts.
    #[schemars(with = "i32", range(min = 1, max = 1_000))]
    pub consecutive_failures: u32,
    /// Seconds until one request tries again. Probes go on meanwhile, and the first answer closes the breaker.
    #[schemars(with = "i32", range(min = 1, max = 300))]
    pub open_seconds: u32,
    /// How many requests of clients may be in flight at the cluster, watches and other long-running ones apart. Further
    /// ones are answered 429. If missing there is no such bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 1, max = 1_000_000))]
    pub max_requests_inflight: Option<u32>,
    /// The same for each endpoint; one that has as many is passed over while others have fewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 1, max = 1_000_000))]
    pub max_requests_inflight_per_endpoint: Option<u32>,
}

impl Default for CircuitBreaker {
    /// As for the endpoints of a cluster that says nothing of it: as long as between two probes of one that is lost.
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            open_seconds: 1,
            max_requests_inflight: None,
            max_requests_inflight_per_endpoint: None,
        }
    }
}
