//! Settings of the endpoint probes (`probing.rs`) with their thresholds, and of the circuit breaker.

use http::uri::PathAndQuery;
use http::{StatusCode, Uri};
use tokio::time::Duration;

const READYZ: &str = "/readyz";

/// Interval of probes. With the time limit of a probe, a silent endpoint is detected within 9 s.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// Time limit of a probe. If neither a response nor other bytes arrive by then, the endpoint is silent. 4 s: a
/// kube-apiserver answers `/readyz` in milliseconds, and a handshake with a server on another continent takes a second.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(4);

/// Time without a response to `/readyz` after which `/livez/ping` is requested in addition. 2 s: kube-apiserver waits
/// for etcd for 2 s in each of two consecutive checks (`pkg/server/options/etcd.go` in kubernetes/apiserver).
const PING_AFTER: Duration = Duration::from_secs(2);

/// Settings of the probe of each endpoint. `Probe::default()` requests `/readyz` every 5 s, with a time limit of 4 s. A
/// single success or failure changes the health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Path of the probe, a GET request. 200 means ready. For `/readyz`, every status below 500 means ready, because a
    /// cluster may forbid the request.
    pub path: PathAndQuery,
    /// Interval while the endpoint is healthy. An unhealthy endpoint is probed every second. Minimum: 250 ms, the
    /// precision of the interval.
    pub interval: Duration,
    /// Time limit of the response to a probe.
    pub answer_within: Duration,
    /// Number of consecutive successes that make an endpoint healthy. 0 counts as 1.
    pub success_threshold: u32,
    /// Number of consecutive failures (not ready, or silent) that make an endpoint unhealthy. 0 counts as 1. A failed
    /// connection makes the endpoint unhealthy at once.
    pub failure_threshold: u32,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            path: PathAndQuery::from_static(READYZ),
            interval: INTERVAL,
            answer_within: ANSWER_WITHIN,
            success_threshold: 1,
            failure_threshold: 1,
        }
    }
}

impl Probe {
    pub(crate) fn uri(&self) -> Uri {
        Uri::from(self.path.clone())
    }

    /// Returns the time after which the probe also requests `/livez/ping`, a check without dependencies, if the first
    /// request has no response yet.
    pub(crate) fn ping_after(&self) -> Duration {
        PING_AFTER.min(self.answer_within / 2)
    }

    /// Returns whether only status 200 means ready. True for a configured path, because a 404 of a configured path must
    /// not mean healthy.
    pub(crate) fn is_strict(&self) -> bool {
        self.path.as_str() != READYZ
    }

    pub(crate) fn is_ready(&self, status: StatusCode) -> bool {
        if self.is_strict() { status == StatusCode::OK } else { !status.is_server_error() }
    }
}

/// Settings of the circuit breaker. With `BreakerTuning::default()`, five consecutive failures open the circuit breaker
/// for one second, and requests in flight have no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerTuning {
    /// Number of consecutive failures that open the circuit breaker. 0 counts as 1.
    pub consecutive_failures: u32,
    /// Time from the opening until a trial request, and from a failed trial request to the next.
    pub open_for: Duration,
    /// Limit of short requests in flight at the member, summed over all endpoints.
    pub max_in_flight: Option<usize>,
    /// Limit of short requests in flight at each endpoint.
    pub max_in_flight_per_endpoint: Option<usize>,
}

impl Default for BreakerTuning {
    /// Five failures in a row, because one or two failures may be a lost packet, or a restart while another endpoint
    /// serves. One second, because an unreachable endpoint is also probed once per second.
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            open_for: Duration::from_secs(1),
            max_in_flight: None,
            max_in_flight_per_endpoint: None,
        }
    }
}

/// Number of consecutive probes with the same result, success or failure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streak {
    is_success: bool,
    length: u32,
}

impl Streak {
    /// Counts a probe result. Returns whether the last results are equal and as many as the threshold requires.
    pub(crate) fn record_and_check(&mut self, is_success: bool, probe: &Probe) -> bool {
        if self.is_success != is_success {
            *self = Self { is_success, length: 0 };
        }
        self.length = self.length.saturating_add(1);
        self.length >= if is_success { probe.success_threshold } else { probe.failure_threshold }
    }

    pub(crate) fn end(&mut self) {
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_health_changes_after_the_configured_number_of_equal_probes() {
        let of = |success_threshold, failure_threshold, answers: &[(bool, bool)]| {
            let probe = Probe { success_threshold, failure_threshold, ..Probe::default() };
            let mut streak = Streak::default();
            for (place, (is_success, is_believed)) in answers.iter().enumerate() {
                assert_eq!(streak.record_and_check(*is_success, &probe), *is_believed, "{place}");
            }
        };
        let (success, failure) = (true, false);
        of(1, 1, &[(success, true), (failure, true), (failure, true), (success, true)]);
        of(0, 0, &[(success, true), (failure, true)]);
        of(
            2,
            3,
            &[
                (failure, false),
                (failure, false),
                (success, false),
                (failure, false),
                (failure, false),
                (failure, true),
                (failure, true),
                (success, false),
                (success, true),
            ],
        );
    }

    #[test]
    fn configured_probe_path_requires_status_200() {
        let of_its_own = Probe { path: PathAndQuery::from_static("/healthz"), ..Probe::default() };
        for (status, of_readyz, of_other) in
            [(200, true, true), (204, true, false), (403, true, false), (404, true, false), (500, false, false)]
        {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(
                (Probe::default().is_ready(status), of_its_own.is_ready(status)),
                (of_readyz, of_other),
                "{status}"
            );
        }
        assert_eq!(Probe::default().ping_after(), PING_AFTER);
        let hasty = Probe { answer_within: Duration::from_secs(1), ..Probe::default() };
        assert_eq!(hasty.ping_after(), Duration::from_millis(500), "before it is taken for silent");
    }
}
