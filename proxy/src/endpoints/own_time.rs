//! How long one endpoint takes for what it does not refuse, which tells slow endpoints from quick ones.

use tokio::time::{Duration, Instant};

/// How much of the mean the newest answer is: one part in so many. 32: of two that are equally quick one may be given
/// seven lists in a row that take a thousand times as long as the rest before they seem four times as far apart.
const PARTS_OF_MEAN: f64 = 32.0;

/// How long after its last answer an endpoint's mean is known. 10 s: one that refuses everything from some moment on is
/// preferred for no longer, and one that serves anybody beside what it refuses has answered something in that time.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// How long an endpoint takes for a short request that it does not refuse, from when it is sent to the head of its
/// answer. It is a mean of logarithms, as what counts is how many times as long one takes as another: one list of 10 s
/// among answers of 10 ms makes it a quarter longer, where the mean of times would be thirty times as long.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnTime {
    /// Of nanoseconds, to the base e, and when the last answer came; none before the first.
    mean: Option<(f64, Instant)>,
}

impl OwnTime {
    /// Such a request took so long.
    pub(crate) fn note(&mut self, took: Duration, now: Instant) {
        let took = (took.as_nanos().max(1) as f64).ln();
        let mean = self.mean.map_or(took, |(before, _)| before + (took - before) / PARTS_OF_MEAN);
        self.mean = Some((mean, now));
    }

    /// The mean; zero where it has answered nothing lately.
    pub(crate) fn get(&self, now: Instant) -> Duration {
        let known = self.mean.filter(|(_, last)| now.saturating_duration_since(*last) < KNOWN_FOR);
        known.map_or(Duration::ZERO, |(mean, _)| Duration::from_nanos((mean.exp().round() as u64).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(10);

    /// What was noted of these, and is read at the same moment.
    fn mean_of(answers: &[(usize, Duration)]) -> Duration {
        let (mut time, now) = (OwnTime::default(), Instant::now());
        for (count, took) in answers {
            (0..*count).for_each(|_| time.note(*took, now));
        }
        time.get(now)
    }

    fn is_about(mean: Duration, expected: Duration) -> bool {
        (expected.mul_f64(0.999)..expected.mul_f64(1.001)).contains(&mean)
    }

    #[test]
    fn one_long_answer_makes_a_mean_a_quarter_longer_and_many_are_what_is_usual() {
        assert_eq!(mean_of(&[]), Duration::ZERO);
        assert!(!mean_of(&[(1, Duration::ZERO)]).is_zero(), "it has answered");
        let quick = mean_of(&[(100, QUICK)]);
        assert!(is_about(quick, QUICK), "{quick:?}");
        let long = QUICK * 1_000;
        let with_one = mean_of(&[(100, QUICK), (1, long)]);
        assert!(with_one < QUICK.mul_f64(1.25), "{with_one:?}");
        let with_seven = mean_of(&[(100, QUICK), (7, long)]);
        assert!(with_seven < QUICK * 4, "{with_seven:?}");
        let with_many = mean_of(&[(100, QUICK), (500, long)]);
        assert!(is_about(with_many, long), "{with_many:?}");
    }

    #[test]
    fn one_that_has_become_slow_is_known_after_ten_answers() {
        let mean = mean_of(&[(100, QUICK), (10, Duration::from_secs(2))]);
        assert!(mean > QUICK * 4, "{mean:?}");
    }

    #[test]
    fn what_was_long_ago_is_known_no_longer() {
        let (mut time, begun) = (OwnTime::default(), Instant::now());
        time.note(QUICK, begun);
        let almost = begun + KNOWN_FOR - Duration::from_millis(1);
        assert!(is_about(time.get(almost), QUICK));
        assert_eq!(time.get(begun + KNOWN_FOR), Duration::ZERO);
        time.note(QUICK, begun + KNOWN_FOR);
        assert!(is_about(time.get(begun + KNOWN_FOR), QUICK), "it answers again");
    }
}
