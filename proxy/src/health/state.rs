//! State of an endpoint, and its transitions. The functions are pure: they depend only on events and on the time that
//! the caller passes.
//!
//! ```text
//! ready ── it is not ready ──▶ reachable ── it is ready ──▶ on probation ── 10 s ──▶ ready
//! any state ── no connection, silence, or an error to Tributary's own request ──▶ ejected
//! ejected ── a response, or two successes of Tributary's own request ──▶ on probation; reachable, if not ready
//! ```
//!
//! A drained endpoint is still probed, and keeps the state that the probes show.
//!
//! After several consecutive failures, the circuit breaker of an ejected endpoint opens. The endpoint then gets only
//! one trial request per interval from clients, even if no other endpoint is left. Only failures of the endpoint itself
//! count, so no client can open a circuit breaker with its requests.

use tokio::time::{Duration, Instant};

use crate::health::settings::BreakerTuning;

/// Number of consecutive successes of Tributary's own request that end an ejection. 2: if several servers share one
/// address, a single success may come from a healthy server.
const GOOD_ANSWERS: u32 = 2;

/// Duration of the probation. 10 s: a kube-apiserver fills its watch caches in this time after its start.
const PROBATION: Duration = Duration::from_secs(10);

/// Number of steps in which an endpoint on probation gets its full share of requests. The first step is a tenth.
const STEPS: u32 = 10;

/// Number of consecutive requests for which an endpoint on probation has the same rank. 7: more than a cluster has
/// endpoints.
const REQUESTS_WITH_EQUAL_RANK: u128 = 7;

/// State of an endpoint, which determines its share of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The endpoint gets its full share of the requests.
    Ready,
    /// The endpoint has been on probation since this time, and gets a growing part of its share of the requests.
    Probation { since: Instant },
    /// The endpoint answers, but is not ready. It gets requests only if no better endpoint is left.
    Reachable,
    /// The endpoint is unhealthy: unreachable, or faulty.
    Ejected(Ejection),
    /// The configuration drains the endpoint, or no longer lists the endpoint. It gets no new requests.
    Drained,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ejection {
    /// The endpoint is unreachable. It gets requests only if all endpoints are unreachable; then all endpoints are
    /// tried at once.
    Unreachable,
    /// The endpoint fails Tributary's own requests. It gets requests only if no better endpoint is left.
    Faulty {
        /// Number of consecutive successful requests by Tributary since the last failure.
        good_answers: u32,
    },
}

impl State {
    /// Returns the endpoint's rank for the request with the number `rotation`. 0 is the best rank. An endpoint without
    /// a rank (`None`) does not get the request.
    ///
    /// An endpoint on probation has few requests in flight, so a choice by load would send every new watch to it.
    /// Therefore its rank is only 1 for most requests at first. The rank is the same for several consecutive requests,
    /// because the choice between equal endpoints also depends on `rotation`.
    pub(crate) fn rank(self, rotation: usize, now: Instant) -> Option<u8> {
        match self {
            Self::Ready => Some(0),
            Self::Probation { since } => {
                let passed = now.saturating_duration_since(since).as_millis();
                let share = 1 + passed * u128::from(STEPS) / PROBATION.as_millis();
                Some(u8::from((rotation as u128 / REQUESTS_WITH_EQUAL_RANK) % u128::from(STEPS) >= share))
            }
            Self::Reachable | Self::Ejected(Ejection::Faulty { .. }) => Some(2),
            Self::Ejected(Ejection::Unreachable) | Self::Drained => None,
        }
    }

    /// Returns whether the endpoint has no known fault.
    pub(crate) fn is_good(self) -> bool {
        matches!(self, Self::Ready | Self::Probation { .. })
    }

    pub(crate) fn is_usable(self) -> bool {
        !matches!(self, Self::Ejected(Ejection::Unreachable) | Self::Drained)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Answer,
    /// Bytes arrived that do not prove that the member accepts requests: a part of a body, or a 401.
    Sign,
    /// The endpoint has reported whether it is ready.
    Ready(bool),
    /// No connection was established, or the endpoint is silent.
    Loss,
    /// A request failed, and the endpoint is at fault.
    Failure,
    /// Result of Tributary's own request.
    Judgment {
        /// Whether the request was successful.
        is_good: bool,
    },
    /// The endpoint was added to the list, or its drain has ended.
    Start,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    state: State,
    /// Whether the endpoint is ready, according to its last probe.
    pub(crate) is_ready: bool,
    failures: u32,
    /// Time of the next trial request; `None` while the circuit breaker is closed.
    retry_at: Option<Instant>,
    /// Number of ejections for errors so far.
    pub(crate) ejections: u64,
    pub(crate) openings: u64,
}

impl Default for Machine {
    /// A new endpoint starts as ready, so that no endpoint is excluded at the start of the process.
    fn default() -> Self {
        Self { state: State::Ready, is_ready: true, failures: 0, retry_at: None, ejections: 0, openings: 0 }
    }
}

impl Machine {
    pub(crate) fn state(&self, is_drained: bool, now: Instant) -> State {
        match self.state {
            _ if is_drained => State::Drained,
            State::Probation { since } if now.saturating_duration_since(since) >= PROBATION => State::Ready,
            state => state,
        }
    }

    /// Returns whether the endpoint is ejected for errors, even if the endpoint is drained.
    pub(crate) fn is_faulty(&self) -> bool {
        matches!(self.state, State::Ejected(Ejection::Faulty { .. }))
    }

    /// Returns whether the endpoint is unreachable, even if the endpoint is drained.
    pub(crate) fn is_unreachable(&self) -> bool {
        self.state == State::Ejected(Ejection::Unreachable)
    }

    /// Returns whether a successful response would leave the state unchanged.
    pub(crate) fn is_settled(&self) -> bool {
        self.failures == 0 && !self.is_unreachable()
    }

    pub(crate) fn apply(&mut self, input: Input, tuning: &BreakerTuning, now: Instant) {
        match input {
            Input::Answer | Input::Sign => (self.failures, self.retry_at) = (0, None),
            Input::Ready(is_ready) => self.is_ready = is_ready,
            Input::Failure => self.fail(tuning, now),
            Input::Loss | Input::Judgment { .. } | Input::Start => {}
        }
        let was_faulty = self.is_faulty();
        self.state = self.next(input, now);
        self.ejections += u64::from(!was_faulty && self.is_faulty());
    }

    fn next(&self, input: Input, now: Instant) -> State {
        let back = if self.is_ready { State::Probation { since: now } } else { State::Reachable };
        let unreachable = State::Ejected(Ejection::Unreachable);
        match (self.state, input) {
            (_, Input::Loss) => unreachable,
            (before, Input::Answer) if before == unreachable => back,
            (before, _) if before == unreachable => before,
            (State::Ejected(Ejection::Faulty { good_answers }), Input::Judgment { is_good: true }) => {
                match good_answers + 1 < GOOD_ANSWERS {
                    true => State::Ejected(Ejection::Faulty { good_answers: good_answers + 1 }),
                    false => back,
                }
            }
            (_, Input::Judgment { is_good: false }) => State::Ejected(Ejection::Faulty { good_answers: 0 }),
            (State::Ready | State::Probation { .. }, Input::Ready(false)) => State::Reachable,
            (State::Reachable, Input::Ready(true)) | (State::Ready | State::Probation { .. }, Input::Start) => back,
            (before, _) => before,
        }
    }

    fn fail(&mut self, tuning: &BreakerTuning, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        // A failure while the circuit breaker is open does not postpone the next trial request.
        if self.retry_at.is_none() && self.failures >= tuning.consecutive_failures {
            self.openings += 1;
            self.retry_at = Some(now + tuning.open_for);
        }
    }

    /// Returns whether a client's request may be sent. An open circuit breaker admits one request per interval.
    pub(crate) fn admit(&mut self, tuning: &BreakerTuning, now: Instant) -> bool {
        let is_admitted = self.retry_after(now).is_none();
        if is_admitted && self.retry_at.is_some() {
            self.retry_at = Some(now + tuning.open_for);
        }
        is_admitted
    }

    /// Returns the time until the next trial request; `None` if a request may be sent now.
    pub(crate) fn retry_after(&self, now: Instant) -> Option<Duration> {
        Some(self.retry_at?.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNREACHABLE: State = State::Ejected(Ejection::Unreachable);
    const GOOD: Input = Input::Judgment { is_good: true };
    const FAULT: Input = Input::Judgment { is_good: false };

    fn faulty(good_answers: u32) -> State {
        State::Ejected(Ejection::Faulty { good_answers })
    }

    fn tuning(consecutive_failures: u32) -> BreakerTuning {
        BreakerTuning { consecutive_failures, open_for: Duration::from_secs(10), ..Default::default() }
    }

    #[test]
    fn endpoint_state_changes_as_listed_for_each_probe_result() {
        let (now, earlier) = (Instant::now(), Instant::now());
        let now = now + Duration::from_secs(1);
        let (new, old) = (State::Probation { since: now }, State::Probation { since: earlier });
        for (state, input, next) in [
            (State::Ready, Input::Answer, State::Ready),
            (State::Ready, Input::Sign, State::Ready),
            (State::Ready, Input::Ready(true), State::Ready),
            (State::Ready, Input::Ready(false), State::Reachable),
            (State::Ready, Input::Loss, UNREACHABLE),
            (State::Ready, Input::Failure, State::Ready),
            (State::Ready, GOOD, State::Ready),
            (State::Ready, FAULT, faulty(0)),
            (State::Ready, Input::Start, new),
            (old, Input::Answer, old),
            (old, Input::Ready(true), old),
            (old, Input::Ready(false), State::Reachable),
            (old, Input::Loss, UNREACHABLE),
            (old, FAULT, faulty(0)),
            (old, Input::Start, new),
            (State::Reachable, Input::Answer, State::Reachable),
            (State::Reachable, Input::Ready(true), new),
            (State::Reachable, Input::Ready(false), State::Reachable),
            (State::Reachable, Input::Loss, UNREACHABLE),
            (State::Reachable, FAULT, faulty(0)),
            (State::Reachable, Input::Start, State::Reachable),
            (UNREACHABLE, Input::Answer, new),
            (UNREACHABLE, Input::Sign, UNREACHABLE),
            (UNREACHABLE, Input::Ready(true), UNREACHABLE),
            (UNREACHABLE, Input::Ready(false), UNREACHABLE),
            (UNREACHABLE, GOOD, UNREACHABLE),
            (UNREACHABLE, FAULT, UNREACHABLE),
            (UNREACHABLE, Input::Start, UNREACHABLE),
            (faulty(0), Input::Answer, faulty(0)),
            (faulty(0), Input::Ready(false), faulty(0)),
            (faulty(0), GOOD, faulty(1)),
            (faulty(1), GOOD, new),
            (faulty(1), FAULT, faulty(0)),
            (faulty(1), Input::Loss, UNREACHABLE),
        ] {
            let is_ready = state != State::Reachable;
            let mut machine = Machine { state, is_ready, ..Machine::default() };
            machine.apply(input, &tuning(5), now);
            assert_eq!(machine.state(false, now), next, "{state:?} {input:?}");
            assert_eq!(machine.state(true, now), State::Drained, "{state:?} {input:?}");
            let is_ejection = !matches!(state, State::Ejected(_)) && input == FAULT;
            assert_eq!(machine.ejections, u64::from(is_ejection), "{state:?} {input:?}");
        }
    }

    #[test]
    fn ejected_endpoint_that_is_not_ready_becomes_reachable_when_it_answers() {
        for state in [UNREACHABLE, faulty(1)] {
            let mut machine = Machine { state, is_ready: false, ..Machine::default() };
            let input = if state == UNREACHABLE { Input::Answer } else { GOOD };
            machine.apply(input, &tuning(5), Instant::now());
            assert_eq!(machine.state, State::Reachable);
        }
    }

    #[test]
    fn endpoint_on_probation_gets_a_share_of_requests_that_grows_for_10_s() {
        let since = Instant::now();
        let first_rank_count = |state: State, seconds| {
            let now = since + Duration::from_secs(seconds);
            let machine = Machine { state, ..Machine::default() };
            (0..700).filter(|rotation| machine.state(false, now).rank(*rotation, now) == Some(0)).count()
        };
        assert_eq!(first_rank_count(State::Ready, 0), 700);
        for (seconds, expected) in [(0, 70), (1, 140), (5, 420), (9, 700), (10, 700), (1000, 700)] {
            assert_eq!(first_rank_count(State::Probation { since }, seconds), expected, "after {seconds} s");
        }
    }

    #[test]
    fn circuit_breaker_opens_after_the_configured_number_of_consecutive_failures() {
        let now = Instant::now();
        for threshold in [0, 1, 3] {
            let (mut machine, tuning) = (Machine::default(), tuning(threshold));
            for _ in 1..threshold {
                machine.apply(Input::Failure, &tuning, now);
                assert!(machine.admit(&tuning, now));
            }
            machine.apply(Input::Sign, &tuning, now);
            for _ in 1..threshold {
                machine.apply(Input::Failure, &tuning, now);
            }
            assert_eq!((machine.retry_after(now), machine.openings), (None, 0), "a sign of life begins anew");
            machine.apply(Input::Failure, &tuning, now);
            assert!(!machine.admit(&tuning, now) && !machine.is_settled());
            assert_eq!((machine.retry_after(now), machine.openings), (Some(tuning.open_for), 1));
        }
    }

    #[test]
    fn open_circuit_breaker_admits_one_trial_request_per_interval() {
        let (mut machine, tuning, opened_at) = (Machine::default(), tuning(1), Instant::now());
        machine.apply(Input::Failure, &tuning, opened_at);
        let mut admitted = Vec::new();
        for second in 0..=30 {
            let now = opened_at + Duration::from_secs(second);
            // Failures during the interval do not postpone the next trial request to the endpoint.
            machine.apply(Input::Failure, &tuning, now);
            admitted.extend((0..3).filter(|_| machine.admit(&tuning, now)).map(|_| second));
        }
        assert_eq!((admitted, machine.openings), (vec![10, 20, 30], 1));
        for answer in [Input::Answer, Input::Sign] {
            let mut answered = machine;
            answered.apply(answer, &tuning, opened_at);
            assert!((0..3).all(|_| answered.admit(&tuning, opened_at)), "{answer:?}");
        }
    }
}
