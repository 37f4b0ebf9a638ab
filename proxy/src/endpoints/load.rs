//! Load of an endpoint, by which the balancer compares two of them: requests in flight, weighted by latency.
//!
//! An endpoint that fails fast has few requests in flight, and would attract nearly all. So an error that comes sooner
//! than a usual answer counts as in flight for a while, but only up to the load of the other endpoint: the two take
//! turns then. A client that causes errors on purpose cannot take an endpoint's share away, or move other clients to a
//! slow one (decision 71).

use std::cmp::Ordering;
use std::sync::atomic::{self, AtomicUsize};

use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

/// Weight of the newest answer in the mean latency, as a fraction. 16: a client would have to send one endpoint four
/// lists in a row that take a thousand times as long as the rest to make its mean four times as long.
const PARTS_OF_MEAN: u32 = 16;

/// The answers after which the mean latency weights the load. 4: the first one on a connection may take longer.
const ANSWERS_MIN: u32 = 4;

/// The time for which the latency of the last answer counts. 10 s: a slow endpoint is tried again after that.
const LATENCY_KNOWN_FOR: Duration = Duration::from_secs(10);

/// The ratio of two latencies from which on they weight the load. 4: the means of two equal endpoints differ by less.
const TIMES_AS_SLOW: f64 = 4.0;

/// The difference from which on they do, in seconds. 20 ms: people do not notice less, an endpoint in another zone
/// takes some milliseconds longer.
const SLOWER_BY: f64 = 0.02;

/// Time for which an error counts as in flight, as a multiple of the time by which it came too soon. 2: counted once,
/// an endpoint with errors only would be as loaded as the others on average, and less half of the time.
const TIMES_AS_LONG: f64 = 2.0;

/// The time after a refused watch in which the endpoint counts as loaded as the other one. 10 s: a watch lives for
/// minutes, so the endpoint with fewer watches would otherwise get, and refuse, each watch that ends elsewhere.
const WATCH_REFUSED_FOR: Duration = Duration::from_secs(10);

/// Whether an error concerns the requested object, so that any endpoint would answer as quickly.
pub(crate) fn is_about_object(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::NOT_FOUND
            | StatusCode::CONFLICT
            | StatusCode::GONE
            | StatusCode::PRECONDITION_FAILED
            | StatusCode::UNPROCESSABLE_ENTITY
    )
}

/// The load of an endpoint with requests of one kind.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) in_flight: AtomicUsize,
    pub(crate) answers: Mutex<RecentAnswers>,
}

impl Traffic {
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(atomic::Ordering::Relaxed)
    }

    pub(crate) fn load(&self, now: Instant) -> Load {
        let (in_flight, answers) = (self.in_flight() as f64, self.answers.lock());
        Load { in_flight, errors: answers.errors(now).round(), latency: answers.latency(ANSWERS_MIN, now) }
    }
}

/// Latest answers of an endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentAnswers {
    latency: Option<Latency>,
    errors: Option<Errors>,
    refused_watch: Option<Instant>,
}

/// Mean latency, of logarithms: one list of 10 s among answers of 10 ms makes it half as long again. A peak, or an
/// arithmetic mean, would be many times as long.
#[derive(Clone, Copy, Debug)]
struct Latency {
    /// The logarithm of the mean in seconds.
    logarithm: f64,
    /// The answers so far, up to [`PARTS_OF_MEAN`].
    count: u32,
    last: Instant,
}

/// The number of errors that count as in flight. The number fades with time.
#[derive(Clone, Copy, Debug)]
struct Errors {
    count: f64,
    since: Instant,
    /// Time in which the number falls to 37 %, in seconds.
    fade_in: f64,
}

impl RecentAnswers {
    /// Notes an answer that is no error.
    pub(crate) fn note_success(&mut self, took: Duration, now: Instant) {
        let took = took.as_secs_f64().max(1e-9).ln();
        let (before, count) = self.latency.map_or((took, 0), |known| (known.logarithm, known.count));
        let count = (count + 1).min(PARTS_OF_MEAN);
        self.latency = Some(Latency { logarithm: before + (took - before) / f64::from(count), count, last: now });
    }

    /// Notes an error that came after so long. An answer usually takes as long as `usual`, in seconds.
    pub(crate) fn note_error(&mut self, took: Duration, usual: f64, now: Instant) {
        let missing = 1.0 - took.as_secs_f64() / usual;
        if missing > 0.0 {
            let count = self.errors(now) + missing;
            self.errors = Some(Errors { count, since: now, fade_in: usual * TIMES_AS_LONG });
        }
    }

    /// Notes a watch that the endpoint refused.
    pub(crate) fn note_refused_watch(&mut self, now: Instant) {
        self.refused_watch = Some(now);
    }

    /// The mean latency in seconds of so many answers at least; `None` where none of them came lately.
    pub(crate) fn latency(&self, answers_min: u32, now: Instant) -> Option<f64> {
        let is_recent = |last: Instant| now.saturating_duration_since(last) < LATENCY_KNOWN_FOR;
        let known = self.latency.filter(|known| known.count >= answers_min && is_recent(known.last));
        known.map(|known| known.logarithm.exp())
    }

    fn errors(&self, now: Instant) -> f64 {
        if self.refused_watch.is_some_and(|at| now.saturating_duration_since(at) < WATCH_REFUSED_FOR) {
            return f64::MAX;
        }
        let passed = |since| now.saturating_duration_since(since).as_secs_f64();
        self.errors.map_or(0.0, |errors| errors.count * (-passed(errors.since) / errors.fade_in).exp())
    }
}

/// The load of one endpoint by requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) in_flight: f64,
    /// Number of errors that count as in flight.
    pub(crate) errors: f64,
    /// The mean latency in seconds.
    pub(crate) latency: Option<f64>,
}

impl Load {
    /// Compares two endpoints. `Equal` where their requests in flight are equal, or the errors of one may make up the
    /// difference.
    pub(crate) fn compare(self, other: Self) -> Ordering {
        if let (Some(own), Some(others)) = (self.latency, other.latency)
            && own.max(others) > (own.min(others) * TIMES_AS_SLOW).max(own.min(others) + SLOWER_BY)
        {
            return (own * (self.in_flight + 1.0)).total_cmp(&(others * (other.in_flight + 1.0)));
        }
        if self.in_flight + self.errors_beside(other) < other.in_flight {
            Ordering::Less
        } else if other.in_flight + other.errors_beside(self) < self.in_flight {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    }

    /// Gives the errors that count beside another endpoint. Errors of both count for neither. No error counts beside an
    /// endpoint without a latest answer, because that endpoint may be slow.
    fn errors_beside(self, other: Self) -> f64 {
        match (self.latency, other.latency) {
            (Some(_), None) => 0.0,
            _ => self.errors - self.errors.min(other.errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Duration = Duration::from_millis(10);

    fn load(in_flight: f64, errors: f64, latency: Option<f64>) -> Load {
        Load { in_flight, errors, latency }
    }

    /// Makes the answers of an endpoint from numbers of answers and their latencies.
    fn answers(given: &[(usize, Duration)]) -> RecentAnswers {
        let (mut answers, now) = (RecentAnswers::default(), Instant::now());
        for (count, took) in given {
            (0..*count).for_each(|_| answers.note_success(*took, now));
        }
        answers
    }

    #[test]
    fn endpoints_are_compared_by_requests_in_flight_latency_and_errors() {
        let (quick, slow, unknown) = (Some(0.01), Some(0.05), None);
        for (own, other, expected) in [
            ((2.0, 0.0, quick), (3.0, 0.0, quick), Ordering::Less),
            ((3.0, 0.0, quick), (3.0, 0.0, quick), Ordering::Equal),
            ((3.0, 0.0, unknown), (2.0, 0.0, quick), Ordering::Greater),
            // Five times as slow.
            ((3.0, 0.0, quick), (0.0, 0.0, slow), Ordering::Less),
            ((4.0, 0.0, quick), (0.0, 0.0, slow), Ordering::Equal),
            ((5.0, 0.0, quick), (0.0, 0.0, slow), Ordering::Greater),
            // By less than 20 ms.
            ((3.0, 0.0, Some(0.001)), (0.0, 0.0, quick), Ordering::Greater),
            // Errors make equal at most.
            ((2.0, 1.0, quick), (5.0, 0.0, quick), Ordering::Less),
            ((2.0, 3.0, quick), (5.0, 0.0, quick), Ordering::Equal),
            ((2.0, 1e9, quick), (5.0, 0.0, quick), Ordering::Equal),
            ((2.0, 1e9, unknown), (5.0, 0.0, quick), Ordering::Equal),
            ((6.0, 1e9, quick), (5.0, 0.0, quick), Ordering::Greater),
            // Errors of both count for neither.
            ((2.0, 9.0, quick), (5.0, 9.0, quick), Ordering::Less),
            // Errors move no client to an endpoint that is slow, or may be.
            ((2.0, 1e9, quick), (1.0, 0.0, slow), Ordering::Less),
            ((2.0, 1e9, quick), (5.0, 0.0, unknown), Ordering::Less),
        ] {
            let compare = |one: (f64, f64, Option<f64>), two: (f64, f64, Option<f64>)| {
                load(one.0, one.1, one.2).compare(load(two.0, two.1, two.2))
            };
            assert_eq!(compare(own, other), expected, "{own:?} {other:?}");
            assert_eq!(compare(other, own), expected.reverse(), "{other:?} {own:?}");
        }
    }

    #[test]
    fn the_mean_latency_follows_many_answers_and_no_single_one() {
        let mean = |given: &[(usize, Duration)]| answers(given).latency(ANSWERS_MIN, Instant::now()).unwrap();
        let is_about = |mean: f64, expected: f64| (0.999..1.001).contains(&(mean / expected));
        assert!(is_about(mean(&[(100, USUAL)]), 0.01));
        assert!(mean(&[(100, USUAL), (1, USUAL * 1_000)]) < 0.016);
        assert!(mean(&[(100, USUAL), (3, USUAL * 1_000)]) < 0.04);
        assert!(mean(&[(100, USUAL), (6, Duration::from_secs(1))]) > 0.04);
        assert!(is_about(mean(&[(100, USUAL), (300, USUAL * 1_000)]), 10.0));
    }

    #[tokio::test(start_paused = true)]
    async fn latency_is_forgotten_ten_seconds_after_the_last_answer() {
        let answers = answers(&[(1, USUAL)]);
        let now = Instant::now();
        assert!(answers.latency(1, now + LATENCY_KNOWN_FOR - Duration::from_millis(1)).is_some());
        assert_eq!(answers.latency(2, now), None, "too few answers");
        assert_eq!(answers.latency(1, now + LATENCY_KNOWN_FOR), None);
        assert_eq!(RecentAnswers::default().latency(1, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_watch_makes_endpoints_rank_equal_for_ten_seconds() {
        let (refusing, other) = (Traffic::default(), Traffic::default());
        other.in_flight.store(1_000, atomic::Ordering::Relaxed);
        let now = Instant::now();
        refusing.answers.lock().note_refused_watch(now);
        let compare = |at| refusing.load(at).compare(other.load(at));
        assert_eq!(compare(now + WATCH_REFUSED_FOR - Duration::from_millis(1)), Ordering::Equal);
        assert_eq!(compare(now + WATCH_REFUSED_FOR), Ordering::Less);
        other.answers.lock().note_refused_watch(now);
        assert_eq!(compare(now), Ordering::Less, "both refuse");
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_counts_twice_as_long_as_it_came_too_soon() {
        let (mut answers, mut now) = (RecentAnswers::default(), Instant::now());
        // A thousand a second, each after a millisecond: each lacks 9 ms.
        for _ in 0..1_000 {
            now += Duration::from_millis(1);
            answers.note_error(Duration::from_millis(1), USUAL.as_secs_f64(), now);
        }
        assert!((17.0..19.0).contains(&answers.errors(now)), "{answers:?}");
        assert!(answers.errors(now + USUAL * 10) < 0.5, "{answers:?}");
        let mut late = RecentAnswers::default();
        late.note_error(USUAL, USUAL.as_secs_f64(), now);
        assert!(late.errors(now).abs() < 1e-6, "{late:?}");
    }
}
