//! Load of an endpoint for the balancer's comparison of two endpoints: requests in flight, weighted by latency.
//!
//! An endpoint that fails fast has few requests in flight, and would attract nearly all requests. So an error that
//! comes sooner than a usual response is added to the requests in flight for a while. Errors can make the loads of two
//! endpoints equal, but cannot reverse their order. If they could, a client that causes errors on purpose could keep
//! requests away from an endpoint, or move other clients to a slow endpoint (decision 71).

use std::cmp::Ordering;
use std::sync::atomic::{self, AtomicUsize};

use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

/// Weight of the newest response in the mean latency: one sixteenth. A client would need four consecutive lists with a
/// thousandfold latency to quadruple the mean of an endpoint.
const PARTS_OF_MEAN: u32 = 16;

/// Minimal number of responses before the mean latency weights the load. 4: the first response on a connection may take
/// longer.
const ANSWERS_MIN: u32 = 4;

/// Time for which the latency of the last response counts. 10 s: a slow endpoint is tried again afterwards.
const LATENCY_KNOWN_FOR: Duration = Duration::from_secs(10);

/// Minimal ratio of two latencies for which latency weights the load. 4: the mean latencies of two equally fast
/// endpoints differ by a smaller factor.
const TIMES_AS_SLOW: f64 = 4.0;

/// Minimal difference of two latencies, in seconds, for which latency weights the load. 20 ms: people do not notice a
/// smaller difference. An endpoint in another zone is only some milliseconds slower.
const SLOWER_BY: f64 = 0.02;

/// Time for which an error is added to the requests in flight, as a multiple of the time by which the error came too
/// soon. 2: with a factor of 1, an endpoint with only errors would on average have the same load as the other
/// endpoints. Half of the time its load would be lower, and it would attract requests.
const ERROR_LOAD_FACTOR: f64 = 2.0;

/// Time after a refused watch in which two endpoints are treated as equally loaded by watches. Without this time, each
/// new watch would go to the endpoint that refuses watches, because that endpoint has fewer watches. 10 s: watches live
/// for minutes.
const WATCH_REFUSED_FOR: Duration = Duration::from_secs(10);

/// Returns whether an error status concerns the requested object. Every endpoint would answer with such an error
/// equally fast, so the error says nothing about the endpoint.
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

/// Requests of one kind at an endpoint: requests in flight, and answered requests.
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

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentAnswers {
    latency: Option<Latency>,
    errors: Option<Errors>,
    refused_watch: Option<Instant>,
}

/// Mean latency, computed as a mean of logarithms. One list of 10 s among responses of 10 ms raises this mean by half.
/// An arithmetic mean or a peak value would grow many times over.
#[derive(Clone, Copy, Debug)]
struct Latency {
    /// Natural logarithm of the mean latency in seconds.
    logarithm: f64,
    /// Number of responses so far, up to [`PARTS_OF_MEAN`].
    count: u32,
    last: Instant,
}

/// Number of recent errors, each added to the requests in flight. The number decays exponentially.
#[derive(Clone, Copy, Debug)]
struct Errors {
    count: f64,
    since: Instant,
    /// Time in seconds in which the number of errors decays to 37 % (1/e).
    fade_in: f64,
}

impl RecentAnswers {
    pub(crate) fn record_success(&mut self, took: Duration, now: Instant) {
        let took = took.as_secs_f64().max(1e-9).ln();
        let (before, count) = self.latency.map_or((took, 0), |known| (known.logarithm, known.count));
        let count = (count + 1).min(PARTS_OF_MEAN);
        self.latency = Some(Latency { logarithm: before + (took - before) / f64::from(count), count, last: now });
    }

    /// Records an error that came after the duration `took`. A response usually takes `usual` seconds.
    pub(crate) fn record_error(&mut self, took: Duration, usual: f64, now: Instant) {
        let missing = 1.0 - took.as_secs_f64() / usual;
        if missing > 0.0 {
            let count = self.errors(now) + missing;
            self.errors = Some(Errors { count, since: now, fade_in: usual * ERROR_LOAD_FACTOR });
        }
    }

    pub(crate) fn record_refused_watch(&mut self, now: Instant) {
        self.refused_watch = Some(now);
    }

    /// Returns the mean latency in seconds. `None` with fewer than `answers_min` responses, or without a recent
    /// response.
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

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Load {
    pub(crate) in_flight: f64,
    /// Number of recent errors, which the load counts like requests in flight.
    pub(crate) errors: f64,
    pub(crate) latency: Option<f64>,
}

impl Load {
    /// Compares the loads of two endpoints. Returns `Equal` if both have equally many requests in flight. Also returns
    /// `Equal` if the endpoint with fewer requests in flight has so many errors that its load is at least as high.
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

    /// Returns the errors of this endpoint that count in the comparison with the endpoint `other`. Errors that both
    /// endpoints have cancel out. If this endpoint has recent responses and `other` has none, no error counts, because
    /// `other` may be slow.
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

    fn answers(samples: &[(usize, Duration)]) -> RecentAnswers {
        let (mut answers, now) = (RecentAnswers::default(), Instant::now());
        for (count, took) in samples {
            (0..*count).for_each(|_| answers.record_success(*took, now));
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
            ((3.0, 0.0, quick), (0.0, 0.0, slow), Ordering::Less),
            ((4.0, 0.0, quick), (0.0, 0.0, slow), Ordering::Equal),
            ((5.0, 0.0, quick), (0.0, 0.0, slow), Ordering::Greater),
            // The latencies differ by less than 20 ms, so latency does not weight the loads.
            ((3.0, 0.0, Some(0.001)), (0.0, 0.0, quick), Ordering::Greater),
            // Errors can at most make two loads equal.
            ((2.0, 1.0, quick), (5.0, 0.0, quick), Ordering::Less),
            ((2.0, 3.0, quick), (5.0, 0.0, quick), Ordering::Equal),
            ((2.0, 1e9, quick), (5.0, 0.0, quick), Ordering::Equal),
            ((2.0, 1e9, unknown), (5.0, 0.0, quick), Ordering::Equal),
            ((6.0, 1e9, quick), (5.0, 0.0, quick), Ordering::Greater),
            // Errors of both endpoints cancel out.
            ((2.0, 9.0, quick), (5.0, 9.0, quick), Ordering::Less),
            // Errors move no client to an endpoint that is slow, or that may be slow.
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
    fn single_slow_response_changes_the_mean_latency_of_an_endpoint_little() {
        let mean = |samples: &[(usize, Duration)]| answers(samples).latency(ANSWERS_MIN, Instant::now()).unwrap();
        let is_about = |mean: f64, expected: f64| (0.999..1.001).contains(&(mean / expected));
        assert!(is_about(mean(&[(100, USUAL)]), 0.01));
        assert!(mean(&[(100, USUAL), (1, USUAL * 1_000)]) < 0.016);
        assert!(mean(&[(100, USUAL), (3, USUAL * 1_000)]) < 0.04);
        assert!(mean(&[(100, USUAL), (6, Duration::from_secs(1))]) > 0.04);
        assert!(is_about(mean(&[(100, USUAL), (300, USUAL * 1_000)]), 10.0));
    }

    #[tokio::test(start_paused = true)]
    async fn endpoint_latency_is_ignored_ten_seconds_after_the_last_response() {
        let answers = answers(&[(1, USUAL)]);
        let now = Instant::now();
        assert!(answers.latency(1, now + LATENCY_KNOWN_FOR - Duration::from_millis(1)).is_some());
        assert_eq!(answers.latency(2, now), None, "too few answers");
        assert_eq!(answers.latency(1, now + LATENCY_KNOWN_FOR), None);
        assert_eq!(RecentAnswers::default().latency(1, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn endpoint_that_refused_a_watch_ranks_as_loaded_as_others_for_ten_seconds() {
        let (refusing, other) = (Traffic::default(), Traffic::default());
        other.in_flight.store(1_000, atomic::Ordering::Relaxed);
        let now = Instant::now();
        refusing.answers.lock().record_refused_watch(now);
        let compare = |at| refusing.load(at).compare(other.load(at));
        assert_eq!(compare(now + WATCH_REFUSED_FOR - Duration::from_millis(1)), Ordering::Equal);
        assert_eq!(compare(now + WATCH_REFUSED_FOR), Ordering::Less);
        other.answers.lock().record_refused_watch(now);
        assert_eq!(compare(now), Ordering::Less, "both refuse");
    }

    #[tokio::test(start_paused = true)]
    async fn fast_error_adds_load_to_its_endpoint_for_twice_the_time_it_saved() {
        let (mut answers, mut now) = (RecentAnswers::default(), Instant::now());
        // A thousand errors per second, each after 1 ms instead of 10 ms.
        for _ in 0..1_000 {
            now += Duration::from_millis(1);
            answers.record_error(Duration::from_millis(1), USUAL.as_secs_f64(), now);
        }
        assert!((17.0..19.0).contains(&answers.errors(now)), "{answers:?}");
        assert!(answers.errors(now + USUAL * 10) < 0.5, "{answers:?}");
        let mut late = RecentAnswers::default();
        late.record_error(USUAL, USUAL.as_secs_f64(), now);
        assert!(late.errors(now).abs() < 1e-6, "{late:?}");
    }
}
