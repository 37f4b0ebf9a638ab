//! How long one endpoint takes for what it does not refuse, which tells slow endpoints from quick ones.

use tokio::time::Duration;

/// How much of the mean the newest answer is: one part in so many. 32: of two that are equally quick one may be given
/// seven lists in a row that take a thousand times as long as the rest before they seem four times as far apart.
const PARTS_OF_MEAN: f64 = 32.0;

/// How long an endpoint takes for a short request that it does not refuse, from when it is sent to the head of its
/// answer. It is a mean of logarithms, as what counts is how many times as long one takes as another: one list of 10 s
/// among answers of 10 ms makes it a quarter longer, where the sum of both would make it thirty times as long.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OwnTime {
    /// Of nanoseconds, to the base e; none before the first.
    mean: Option<f64>,
}

impl OwnTime {
    /// Such a request took so long.
    pub(crate) fn note(&mut self, took: Duration) {
        let took = (took.as_nanos().max(1) as f64).ln();
        self.mean = Some(self.mean.map_or(took, |before| before + (took - before) / PARTS_OF_MEAN));
    }

    /// The mean; zero before the first.
    pub(crate) fn get(&self) -> Duration {
        self.mean.map_or(Duration::ZERO, |mean| Duration::from_nanos((mean.exp().round() as u64).max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(10);

    #[test]
    fn one_long_answer_makes_a_mean_a_quarter_longer_and_many_are_what_is_usual() {
        let mut time = OwnTime::default();
        assert_eq!(time.get(), Duration::ZERO);
        time.note(Duration::ZERO);
        assert!(!time.get().is_zero(), "it has answered");
        let mut time = OwnTime::default();
        (0..100).for_each(|_| time.note(QUICK));
        assert!((QUICK.mul_f64(0.999)..QUICK.mul_f64(1.001)).contains(&time.get()), "{:?}", time.get());
        let long = QUICK * 1_000;
        time.note(long);
        assert!(time.get() < QUICK.mul_f64(1.25), "{:?}", time.get());
        (1..7).for_each(|_| time.note(long));
        assert!(time.get() < QUICK * 4, "{:?}", time.get());
        (0..500).for_each(|_| time.note(long));
        assert!((long.mul_f64(0.999)..long.mul_f64(1.001)).contains(&time.get()), "{:?}", time.get());
    }

    #[test]
    fn one_that_has_become_slow_is_known_after_ten_answers() {
        let mut time = OwnTime::default();
        (0..100).for_each(|_| time.note(QUICK));
        (0..10).for_each(|_| time.note(Duration::from_secs(2)));
        assert!(time.get() > QUICK * 4, "{:?}", time.get());
    }
}
