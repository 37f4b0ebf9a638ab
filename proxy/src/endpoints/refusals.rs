//! What an endpoint has lately refused sooner than a request usually takes, and that it is not preferred for that.
//!
//! An endpoint that answers with errors at once has the fewest requests in flight, and would be given most of what
//! comes. So what it has refused counts as in flight for a while, but never so that it counts as more loaded than the
//! least loaded of those others that are about as quick as it: it loses the advantage that its refusals gave it, and
//! has its turn among equals. Whoever asks for what is refused as often as he can can have no endpoint given less than
//! that, and have nobody sent to one that is slow (decision 56).

use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;
use tokio::time::{Duration, Instant};

use crate::pool::LaneKind;

/// The longest that counts as usual of a cluster. 1 s: what Kubernetes promises of 99 of 100 requests for one object;
/// what takes longer is one client's large list, or a webhook.
const LONGEST_USUAL: Duration = Duration::from_secs(1);

/// How much of the mean the newest answer is: one part in so many. 32: one long answer does not move it far, and a
/// cluster that is busy by day and idle by night has another within seconds.
const PARTS_OF_MEAN: u64 = 32;

/// How many times as long as it fell short of what is usual a refused request counts. 2: counted once, an endpoint that
/// refuses everything would be as loaded as the others on the average, and less half of the time, when all that comes
/// goes there. More is of no use, as it never counts as more loaded than they.
const TIMES_AS_LONG: u32 = 2;

/// Up to how many times as long as an endpoint another may take and still be about as quick. 4: the means of two that
/// are equally quick differ by less, unless one is given many lists in a row that take a thousand times as long as the
/// rest (`own_time.rs`); and one in another zone may take some milliseconds longer.
const ABOUT_AS_QUICK: u32 = 4;

/// How long after it has refused a watch an endpoint is not preferred for having fewer of what lasts. 10 s: whoever is
/// refused one comes again sooner, and a kube-apiserver that has just started fills its watch caches in that time.
const WATCH_REFUSED_FOR: Duration = Duration::from_secs(10);

/// Whether an error is an answer about the object that is asked for, which any endpoint would give as quickly: it is no
/// refusal, and whoever asks for what is not there is to move nobody's requests.
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

/// How long a short request takes that is not refused, from when it is sent to the head of its answer: a mean over a
/// cluster's endpoints, which serve the same. What one of them takes says `own_time.rs`.
#[derive(Debug, Default)]
pub(crate) struct UsualTime {
    /// In nanoseconds; 0 before the first.
    mean: AtomicU64,
}

impl UsualTime {
    /// Such a request took so long, of which no more than a second counts. Of two that end at the same moment one may
    /// be forgotten.
    pub(crate) fn note(&self, took: Duration) {
        let took = u64::try_from(took.min(LONGEST_USUAL).as_nanos()).unwrap_or(u64::MAX).max(1);
        let mean = match self.mean.load(Ordering::Relaxed) {
            0 => took,
            before => before - before / PARTS_OF_MEAN + took / PARTS_OF_MEAN,
        };
        self.mean.store(mean, Ordering::Relaxed);
    }

    /// The mean; zero before the first.
    pub(crate) fn get(&self) -> Duration {
        Duration::from_nanos(self.mean.load(Ordering::Relaxed))
    }
}

/// What one endpoint has refused lately.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusals {
    /// How many short requests counted as in flight for that at the moment beside it. It fades since then, so that each
    /// counts as if it were in flight for as long as it is to.
    short: f64,
    as_of: Option<Instant>,
    /// When it refused a watch last.
    watch: Option<Instant>,
}

impl Refusals {
    /// A short request was refused after so long; usually one takes so long as `usual`.
    pub(crate) fn note_short(&mut self, took: Duration, usual: Duration, now: Instant) {
        if took < usual {
            let missing = (usual - took).as_secs_f64() / usual.as_secs_f64();
            self.short = self.short_at(usual, now) + missing;
            self.as_of = Some(now);
        }
    }

    /// A watch was refused.
    pub(crate) fn note_watch(&mut self, now: Instant) {
        self.watch = Some(now);
    }

    /// How many requests of this kind may count as in flight besides those that are.
    pub(crate) fn count(&self, kind: LaneKind, usual: Duration, now: Instant) -> usize {
        match kind {
            LaneKind::Short => self.short_at(usual, now).round() as usize,
            LaneKind::Watch | LaneKind::Opaque => {
                let refused = |at: Instant| now.saturating_duration_since(at) < WATCH_REFUSED_FOR;
                if self.watch.is_some_and(refused) { usize::MAX } else { 0 }
            }
        }
    }

    fn short_at(&self, usual: Duration, now: Instant) -> f64 {
        let Some(as_of) = self.as_of else { return 0.0 };
        let passed = now.saturating_duration_since(as_of);
        // What fades so lasts as long, all in all, as what is there at full for this time.
        self.short * (-passed.as_secs_f64() / (usual * TIMES_AS_LONG).as_secs_f64()).exp()
    }
}

/// What an endpoint has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load {
    /// The requests in flight.
    pub(crate) in_flight: usize,
    /// How many may count as in flight for what it has refused.
    pub(crate) refused: usize,
    /// How long it takes for what it does not refuse; zero where it has answered nothing lately, or where that does not
    /// count.
    pub(crate) usual: Duration,
}

impl Load {
    /// As how many requests in flight it counts beside others. What all of them have refused speaks for none of them.
    pub(crate) fn beside(self, others: impl Iterator<Item = Self> + Clone) -> usize {
        let refused_by_all = others.clone().map(|other| other.refused).min().unwrap_or(self.refused);
        let refused = self.refused.saturating_sub(refused_by_all);
        let as_quick = others.filter(|other| self.has_as_quick(*other));
        let least = as_quick.map(|other| other.in_flight).min().unwrap_or(self.in_flight);
        self.in_flight.max(self.in_flight.saturating_add(refused).min(least))
    }

    /// Whether another is about as quick as this one, or quicker. One that has answered nothing lately is not, beside
    /// one that has.
    fn has_as_quick(self, other: Self) -> bool {
        self.usual.is_zero() || (!other.usual.is_zero() && other.usual <= self.usual * ABOUT_AS_QUICK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoints::own_time::OwnTime;

    const USUAL: Duration = Duration::from_millis(10);

    #[test]
    fn what_was_refused_makes_equal_and_no_more() {
        for (in_flight, refused, least_of_others, expected) in [
            (0, 0, 5, 0),
            (0, 3, 5, 3),
            (1, 9, 5, 5),
            // However much was refused.
            (0, usize::MAX, 5, 5),
            (3, usize::MAX, 5, 5),
            // It has more to do than another anyhow.
            (7, 2, 5, 7),
            (0, 9, 0, 0),
        ] {
            let load = Load { in_flight, refused, usual: USUAL };
            let others = [least_of_others + 1, least_of_others].map(|in_flight| Load { in_flight, refused: 0, ..load });
            assert_eq!(load.beside(others.into_iter()), expected, "{load:?} beside {others:?}");
        }
        let alone = Load { in_flight: 3, refused: 7, usual: USUAL };
        assert_eq!(alone.beside(std::iter::empty()), 3);
    }

    #[test]
    fn nobody_is_sent_to_a_slow_one_for_what_another_has_refused() {
        let load = |in_flight, usual| Load { in_flight, refused: 0, usual };
        let unknown = Duration::ZERO;
        for (usual, others, expected) in [
            (USUAL, [load(5, USUAL * 4), load(9, USUAL)], 5),
            (USUAL, [load(5, USUAL * 5), load(9, USUAL)], 9),
            (USUAL, [load(5, USUAL * 5), load(9, USUAL * 200)], 0),
            (USUAL, [load(5, unknown), load(9, unknown)], 0),
            // One that refuses everything.
            (unknown, [load(5, USUAL), load(9, unknown)], 5),
        ] {
            let refusing = Load { in_flight: 0, refused: usize::MAX, usual };
            assert_eq!(refusing.beside(others.into_iter()), expected, "{refusing:?} beside {others:?}");
        }
    }

    #[test]
    fn one_that_takes_half_a_minute_is_no_measure_for_one_that_takes_a_quarter_of_a_second() {
        let load = |took: Duration, in_flight, refused| {
            let (mut own, now) = (OwnTime::default(), Instant::now());
            (0..100).for_each(|_| own.note(took, now));
            Load { in_flight, refused, usual: own.get(now) }
        };
        let slow = load(Duration::from_secs(30), 50, 0);
        assert_eq!(load(Duration::from_millis(260), 0, 100).beside(std::iter::once(slow)), 0);
    }

    #[test]
    fn one_long_list_among_quick_answers_makes_no_endpoint_a_slow_one() {
        let (mut first, mut second, now) = (OwnTime::default(), OwnTime::default(), Instant::now());
        for _ in 0..100 {
            first.note(USUAL, now);
            second.note(USUAL, now);
        }
        second.note(Duration::from_secs(10), now);
        let refusing = Load { in_flight: 0, refused: usize::MAX, usual: first.get(now) };
        let other = Load { in_flight: 5, refused: 0, usual: second.get(now) };
        assert_eq!(refusing.beside(std::iter::once(other)), 5);
    }

    #[test]
    fn what_all_have_refused_speaks_for_none_of_them() {
        let load = |in_flight, refused| Load { in_flight, refused, usual: Duration::ZERO };
        for (refused, by_others, expected) in [
            (usize::MAX, [usize::MAX, usize::MAX], 1),
            (usize::MAX, [usize::MAX, 0], 5),
            (3, [2, 9], 2),
            (2, [3, 9], 1),
        ] {
            let others = by_others.map(|refused| load(5, refused));
            assert_eq!(load(1, refused).beside(others.into_iter()), expected, "{refused} beside {by_others:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_at_once_counts_twice_as_long_as_is_usual() {
        let begun = Instant::now();
        let mut refusals = Refusals::default();
        assert_eq!(refusals.count(LaneKind::Short, USUAL, begun), 0);
        // A thousand a second, each after a millisecond: 9 ms are missing of each, twice.
        let mut now = begun;
        for _ in 0..1_000 {
            now += Duration::from_millis(1);
            refusals.note_short(Duration::from_millis(1), USUAL, now);
        }
        let counted = refusals.count(LaneKind::Short, USUAL, now);
        assert!((17..=19).contains(&counted), "{counted}");
        assert_eq!(refusals.count(LaneKind::Watch, USUAL, now), 0);
        assert_eq!(refusals.count(LaneKind::Short, USUAL, now + USUAL * 10), 0, "it is soon forgotten");
        let mut slow = Refusals::default();
        slow.note_short(USUAL, USUAL, now);
        slow.note_short(USUAL, Duration::ZERO, now);
        assert_eq!(slow.count(LaneKind::Short, USUAL, now), 0, "what took as long as others is in flight as long");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_refused_counts_for_seconds_among_what_lasts() {
        let begun = Instant::now();
        let mut refusals = Refusals::default();
        refusals.note_watch(begun);
        let counts = |after: Duration| {
            [LaneKind::Short, LaneKind::Opaque].map(|kind| refusals.count(kind, USUAL, begun + after))
        };
        assert_eq!(counts(Duration::from_secs(9)), [0, usize::MAX]);
        assert_eq!(counts(Duration::from_secs(10)), [0, 0]);
    }

    #[test]
    fn the_usual_time_is_a_mean_that_one_long_answer_does_not_move_far() {
        let usual = UsualTime::default();
        assert_eq!(usual.get(), Duration::ZERO);
        for _ in 0..100 {
            usual.note(USUAL);
        }
        assert_eq!(usual.get(), USUAL);
        usual.note(Duration::from_secs(3_600));
        assert!(usual.get() < Duration::from_millis(42), "{:?}", usual.get());
        for _ in 0..500 {
            usual.note(Duration::from_millis(2));
        }
        let settled = usual.get();
        assert!((Duration::from_micros(1_990)..Duration::from_micros(2_010)).contains(&settled), "{settled:?}");
    }
}
