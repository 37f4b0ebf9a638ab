//! The settings of the probes of endpoints (`probing.rs`), with the answers in a row that count, and of the circuit
//! breaker.

use http::uri::PathAndQuery;
use http::{StatusCode, Uri};
use tokio::time::Duration;

/// Path of kube-apiserver's own health.
const READYZ: &str = "/readyz";

/// From one question to the next. 5 s: with the time that an answer may take, silence is known within 9 s.
pub(crate) const INTERVAL: Duration = Duration::from_secs(5);

/// Time limit of an answer; without one, or any other sign of life, the endpoint is silent. 4 s: a kube-apiserver
/// answers `/readyz` in milliseconds, and a handshake with a server on another continent takes a second.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(4);

/// Time after which `/livez/ping` is asked, too. 2 s: kube-apiserver gives etcd as long in each of two checks, one
/// after the other (`pkg/server/options/etcd.go` in kubernetes/apiserver).
const PING_AFTER: Duration = Duration::from_secs(2);

/// Probe of each endpoint. `Probe::default()` asks a kube-apiserver for `/readyz` every 5 s, waits 4 s, and trusts each
/// answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Path of the probe, by GET. 200 means ready; for `/readyz` any answer but a server error (5xx) does, because a
    /// cluster may forbid the question.
    pub path: PathAndQuery,
    /// Interval while the endpoint is healthy, otherwise one second. At least 250 ms, the precision of the interval.
    pub interval: Duration,
    /// Time limit of an answer.
    pub answer_within: Duration,
    /// Successes in a row that make an endpoint healthy. 0 means 1.
    pub success_threshold: u32,
    /// Failures in a row (not ready, or silent) that take an endpoint out. 0 means 1. A failed connection takes it out
    /// at once.
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
    /// URI of the probe.
    pub(crate) fn uri(&self) -> Uri {
        Uri::from(self.path.clone())
    }

    /// The time without an answer after which the probe asks `/livez/ping`, which depends on no other component.
    pub(crate) fn ping_after(&self) -> Duration {
        PING_AFTER.min(self.answer_within / 2)
    }

    /// Whether only 200 means ready. With a configured path, a 404 must not count as healthy.
    pub(crate) fn is_strict(&self) -> bool {
        self.path.as_str() != READYZ
    }

    /// Whether an answer of the endpoint itself means ready.
    pub(crate) fn is_ready(&self, status: StatusCode) -> bool {
        if self.is_strict() { status == StatusCode::OK } else { !status.is_server_error() }
    }
}

/// The settings of the circuit breaker. `BreakerTuning::default()` opens after five failures, for a second, and sets no
/// bound to the requests in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerTuning {
    /// The number of failures in a row that open the breaker. 0 is as 1.
    pub consecutive_failures: u32,
    /// Time until a request tries, and between two tries without an answer.
    pub open_for: Duration,
    /// The bound of short requests in flight at the member, over all endpoints.
    pub max_in_flight: Option<usize>,
    /// Limit at each endpoint.
    pub max_in_flight_per_endpoint: Option<usize>,
}

impl Default for BreakerTuning {
    /// Five failures: one or two are a packet that was lost, or a restart that another endpoint covers. A second: an
    /// endpoint that is lost is probed as often.
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            open_for: Duration::from_secs(1),
            max_in_flight: None,
            max_in_flight_per_endpoint: None,
        }
    }
}

/// Number of equal answers in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streak {
    is_success: bool,
    length: u32,
}

impl Streak {
    /// Counts one more, and gives whether these are enough in a row to be believed.
    pub(crate) fn believes(&mut self, is_success: bool, probe: &Probe) -> bool {
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
    fn probe_results_count_only_after_enough_in_a_row() {
        let of = |success_threshold, failure_threshold, answers: &[(bool, bool)]| {
            let probe = Probe { success_threshold, failure_threshold, ..Probe::default() };
            let mut streak = Streak::default();
            for (place, (is_success, is_believed)) in answers.iter().enumerate() {
                assert_eq!(streak.believes(*is_success, &probe), *is_believed, "{place}");
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
                // A different answer restarts the count.
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
    fn configured_probe_path_must_be_answered_with_200() {
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
