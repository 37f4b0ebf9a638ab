//! Circuit breakers and concurrency limits of the endpoints of a cluster.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The circuit breaker of each endpoint, and limits for requests in flight.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CircuitBreaker {
    /// Consecutive failures that open the circuit breaker of an endpoint. Failures are connection errors and unanswered
    /// probes; the results of client requests do not count.
    #[schemars(with = "i32", range(min = 1, max = 1_000))]
    pub consecutive_failures: u32,
    /// Seconds until a single request tries the endpoint again. Probes continue meanwhile, and the first answer closes
    /// the breaker.
    #[schemars(with = "i32", range(min = 1, max = 300))]
    pub open_seconds: u32,
    /// Maximum number of requests of clients in flight at the cluster, without long-running requests. Above it, the
    /// answer is 429. Unlimited if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 1, max = 1_000_000))]
    pub max_requests_inflight: Option<u32>,
    /// Maximum number of requests of clients in flight at each endpoint, without long-running requests. A full endpoint
    /// gets no request while a different endpoint has room. Unlimited if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>", range(min = 1, max = 1_000_000))]
    pub max_requests_inflight_per_endpoint: Option<u32>,
}

impl Default for CircuitBreaker {
    /// Returns the settings of a cluster that does not configure them. By default, an endpoint whose circuit breaker is
    /// open gets trial requests at the interval of its probes.
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            open_seconds: 1,
            max_requests_inflight: None,
            max_requests_inflight_per_endpoint: None,
        }
    }
}
