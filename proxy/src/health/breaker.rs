//! The circuit breaker of one endpoint: after so many failures in a row nothing of clients is sent there for a while,
//! not even where no other endpoint is left; then one request tries.
//!
//! Only failures that are the endpoint's own count: connections that cannot be made, silence, and questions of our own
//! that break off. A request of a client that fails, or takes long, says nothing of the endpoint by itself: whoever can
//! send such requests could cut everybody off. A cluster's breaker is open while those of all of its endpoints are.
//! What this process asks for itself is asked in any case: that is seldom, and shows first that the endpoint is back.
//!
//! ```text
//!         so many failures in a row             its time is over
//! closed ───────────────────────────▶ open ───────────────────────▶ half-open, with one trial under way
//!   ▲  ▲            an answer          │  ▲      a failure                  │            │
//!   │  └───────────────────────────────┘  └─────────────────────────────────┘            │ an answer
//!   └─────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! A trial that is given up leaves its place to the next request at once; one that is neither answered nor given up in
//! the time for which the breaker opens, to the next that comes then. It may be a request that lasts, with a client who
//! waits for ever, and is not to keep others out.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

/// When a member's endpoints are sent nothing. `BreakerTuning::default()` opens after five failures, for a second, and
/// sets no bound to the requests in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerTuning {
    /// So many failures in a row open it. 0 is as 1.
    pub consecutive_failures: u32,
    /// For how long it stays open before a request tries, and from one that tries without an answer to the next.
    pub open_for: Duration,
    /// How many requests that do not last may be in flight at the member, over all endpoints.
    pub max_in_flight: Option<usize>,
    /// As many at each endpoint.
    pub max_in_flight_per_endpoint: Option<usize>,
}

impl Default for BreakerTuning {
    /// Five failures: one or two are a packet that was lost, or a restart that another endpoint covers. A second: as
    /// often the endpoint is asked whether it is well, and who waits no longer is told so by a client.
    fn default() -> Self {
        Self {
            consecutive_failures: 5,
            open_for: Duration::from_secs(1),
            max_in_flight: None,
            max_in_flight_per_endpoint: None,
        }
    }
}

/// What is known of the failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Requests are sent; so many failures in a row there were.
    Closed { failures: u32 },
    /// Nothing is sent until then.
    Open { until: Instant },
    /// The trial of this number is under way, and the next may begin then.
    HalfOpen { trial: u64, until: Instant },
}

/// That a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// As any other.
    Free,
    /// As the trial of this number.
    Trial(u64),
}

/// What has changed by a failure or an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    None,
    Opened,
    Closed,
}

/// The decision, apart from whoever shares it.
#[derive(Debug)]
struct Machine {
    state: State,
    trials: u64,
}

impl Machine {
    fn admit(&mut self, tuning: &BreakerTuning, now: Instant) -> Option<Admission> {
        match self.state {
            State::Closed { .. } => Some(Admission::Free),
            State::Open { until } | State::HalfOpen { until, .. } if now >= until => {
                self.trials += 1;
                self.state = State::HalfOpen { trial: self.trials, until: now + tuning.open_for };
                Some(Admission::Trial(self.trials))
            }
            State::Open { .. } | State::HalfOpen { .. } => None,
        }
    }

    fn failed(&mut self, tuning: &BreakerTuning, now: Instant) -> Switch {
        let open = State::Open { until: now + tuning.open_for };
        match self.state {
            State::Closed { failures } if failures + 1 < tuning.consecutive_failures => {
                self.state = State::Closed { failures: failures + 1 };
                Switch::None
            }
            State::Closed { .. } => {
                self.state = open;
                Switch::Opened
            }
            State::HalfOpen { .. } => {
                self.state = open;
                Switch::None
            }
            // Whoever fails meanwhile is not the trial.
            State::Open { .. } => Switch::None,
        }
    }

    fn answered(&mut self) -> Switch {
        match std::mem::replace(&mut self.state, State::Closed { failures: 0 }) {
            State::Closed { .. } => Switch::None,
            State::Open { .. } | State::HalfOpen { .. } => Switch::Closed,
        }
    }

    /// A trial has ended, and shows nothing.
    fn gave_up(&mut self, trial: u64, now: Instant) {
        if matches!(self.state, State::HalfOpen { trial: latest, .. } if latest == trial) {
            self.state = State::Open { until: now };
        }
    }

    /// How long nothing is sent; `None` where something may be.
    fn closed_for(&self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Open { until } if now < until => Some(until - now),
            // The trial may bring an answer at any time.
            State::HalfOpen { until, .. } if now < until => Some(Duration::ZERO),
            State::Open { .. } | State::HalfOpen { .. } | State::Closed { .. } => None,
        }
    }
}

/// The breaker of one endpoint, as all who send to it share it.
#[derive(Debug)]
pub(crate) struct Breaker {
    tuning: BreakerTuning,
    machine: Mutex<Machine>,
    /// Whether it is closed, and without any failure: the request path reads only this.
    is_clean: AtomicBool,
    openings: AtomicU64,
}

impl Breaker {
    pub(crate) fn new(tuning: BreakerTuning) -> Self {
        let machine = Machine { state: State::Closed { failures: 0 }, trials: 0 };
        Self { tuning, machine: Mutex::new(machine), is_clean: AtomicBool::new(true), openings: AtomicU64::new(0) }
    }

    pub(crate) fn tuning(&self) -> &BreakerTuning {
        &self.tuning
    }

    /// Whether a request may be sent now. One that is let in as a trial and shows nothing has to be
    /// [given up](Self::gave_up).
    pub(crate) fn admit(&self) -> Option<Admission> {
        if self.is_clean.load(Ordering::Relaxed) {
            return Some(Admission::Free);
        }
        self.machine.lock().admit(&self.tuning, Instant::now())
    }

    /// The endpoint has failed, by its own fault.
    pub(crate) fn failed(&self) {
        let mut machine = self.machine.lock();
        self.is_clean.store(false, Ordering::Relaxed);
        if machine.failed(&self.tuning, Instant::now()) == Switch::Opened {
            self.openings.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The endpoint has answered.
    pub(crate) fn answered(&self) -> Switch {
        if self.is_clean.load(Ordering::Relaxed) {
            return Switch::None;
        }
        let mut machine = self.machine.lock();
        self.is_clean.store(true, Ordering::Relaxed);
        machine.answered()
    }

    /// A trial has ended; where it has shown something, nothing changes.
    pub(crate) fn gave_up(&self, trial: u64) {
        self.machine.lock().gave_up(trial, Instant::now());
    }

    /// How long nothing is sent yet; `None` where something may be.
    pub(crate) fn closed_for(&self) -> Option<Duration> {
        if self.is_clean.load(Ordering::Relaxed) {
            return None;
        }
        self.machine.lock().closed_for(Instant::now())
    }

    /// How often it has opened since the start.
    pub(crate) fn openings(&self) -> u64 {
        self.openings.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIAL: fn(u64) -> Option<Admission> = |number| Some(Admission::Trial(number));
    const FREE: Option<Admission> = Some(Admission::Free);

    fn breaker(consecutive_failures: u32) -> Breaker {
        Breaker::new(BreakerTuning { consecutive_failures, open_for: Duration::from_secs(10), ..Default::default() })
    }

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_so_many_failures_in_a_row() {
        for threshold in [0, 1, 3] {
            let breaker = breaker(threshold);
            for _ in 1..threshold {
                breaker.failed();
                assert_eq!(breaker.admit(), FREE);
            }
            assert_eq!(breaker.answered(), Switch::None);
            for _ in 1..threshold {
                breaker.failed();
            }
            assert_eq!((breaker.admit(), breaker.openings()), (FREE, 0), "an answer between them begins anew");
            breaker.failed();
            assert_eq!((breaker.admit(), breaker.openings()), (None, 1));
            assert_eq!(breaker.closed_for(), Some(Duration::from_secs(10)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn half_open_one_request_tries_and_decides() {
        let breaker = breaker(1);
        breaker.failed();
        pass(9).await;
        breaker.failed();
        assert_eq!(breaker.admit(), None, "who fails meanwhile keeps nobody waiting for longer");
        pass(1).await;
        assert_eq!(breaker.closed_for(), None);
        assert_eq!(breaker.admit(), TRIAL(1));
        assert_eq!((breaker.admit(), breaker.closed_for()), (None, Some(Duration::ZERO)), "one alone");
        breaker.failed();
        breaker.gave_up(1);
        assert_eq!(
            (breaker.admit(), breaker.closed_for()),
            (None, Some(Duration::from_secs(10))),
            "open as long again"
        );
        pass(10).await;
        assert_eq!(breaker.admit(), TRIAL(2));
        breaker.gave_up(1);
        assert_eq!(breaker.admit(), None, "the end of an earlier trial is none of this one");
        breaker.gave_up(2);
        assert_eq!(breaker.admit(), TRIAL(3), "one that shows nothing leaves its place");
        assert_eq!(breaker.answered(), Switch::Closed);
        breaker.gave_up(3);
        assert_eq!((breaker.admit(), breaker.admit(), breaker.openings()), (FREE, FREE, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_anybody_closes_it() {
        let breaker = breaker(1);
        breaker.failed();
        assert_eq!(breaker.answered(), Switch::Closed);
        assert_eq!((breaker.admit(), breaker.closed_for()), (FREE, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_without_an_answer_does_not_keep_others_out() {
        let breaker = breaker(1);
        breaker.failed();
        pass(10).await;
        assert_eq!(breaker.admit(), TRIAL(1));
        pass(9).await;
        assert_eq!((breaker.admit(), breaker.closed_for()), (None, Some(Duration::ZERO)));
        pass(1).await;
        assert_eq!(breaker.closed_for(), None);
        assert_eq!((breaker.admit(), breaker.admit()), (TRIAL(2), None), "one alone");
        breaker.gave_up(1);
        assert_eq!(breaker.admit(), None, "the end of the first says nothing of the second");
        assert_eq!(breaker.answered(), Switch::Closed);
    }

    /// Whatever happens, one trial at a time begins, and none before the time is over.
    #[tokio::test(start_paused = true)]
    async fn whatever_happens_one_at_a_time_tries() {
        let breaker = breaker(2);
        let mut random = 7_u64;
        let (mut under_way, mut opened_at) = (None::<(u64, Instant)>, None);
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            match (random >> 33) % 6 {
                0 => {
                    let before = breaker.openings();
                    breaker.failed();
                    if breaker.openings() > before || under_way.take().is_some() {
                        opened_at = Some(Instant::now());
                    }
                }
                1 if random.is_multiple_of(5) => {
                    breaker.answered();
                    (under_way, opened_at) = (None, None);
                }
                2 => {
                    if let Some((trial, _)) = under_way.take() {
                        breaker.gave_up(trial);
                    }
                }
                3 => pass(1).await,
                _ => match breaker.admit() {
                    Some(Admission::Trial(number)) => {
                        let before = under_way.replace((number, Instant::now()));
                        let apart = before.map(|(_, begun)| begun.elapsed());
                        assert!(apart.is_none_or(|apart| apart >= Duration::from_secs(10)), "two at once: {apart:?}");
                        let waited = opened_at.map(|at: Instant| at.elapsed());
                        assert!(waited.is_some_and(|waited| waited >= Duration::from_secs(10)), "{waited:?}");
                    }
                    Some(Admission::Free) => assert_eq!((under_way, opened_at), (None, None)),
                    None => assert!(opened_at.is_some()),
                },
            }
        }
        assert!(breaker.openings() > 10);
    }
}
