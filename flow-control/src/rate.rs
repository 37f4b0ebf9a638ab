//! How much one key took lately.

use std::time::Duration;

use tokio::time::Instant;

/// The time that is counted together.
const WINDOW: Duration = Duration::from_secs(1);

/// What was taken in the second that is under way, and in the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate {
    /// When this second began; `None` before anything was taken.
    since: Option<Instant>,
    taken: u32,
    before: u32,
}

impl Rate {
    /// So much is taken.
    pub(crate) fn count(&mut self, amount: u32, now: Instant) {
        let elapsed = self.since.map(|since| now.saturating_duration_since(since));
        match elapsed {
            Some(elapsed) if elapsed < WINDOW => self.taken = self.taken.saturating_add(amount),
            Some(elapsed) if elapsed < 2 * WINDOW => {
                let since = self.since.and_then(|since| since.checked_add(WINDOW));
                *self = Self { since, taken: amount, before: self.taken };
            }
            _ => *self = Self { since: Some(now), taken: amount, before: 0 },
        }
    }

    /// So much of what was taken at that time is given back, and was never used. What was taken in a second that is no
    /// longer known changes nothing.
    pub(crate) fn uncount(&mut self, amount: u32, taken_at: Instant) {
        let Some(since) = self.since else { return };
        if taken_at >= since {
            self.taken = self.taken.saturating_sub(amount);
        } else if since.saturating_duration_since(taken_at) <= WINDOW {
            self.before = self.before.saturating_sub(amount);
        }
    }

    /// How much in a second: of the last one that is over, or of this one where that is more already.
    pub(crate) fn per_second(&self, now: Instant) -> u32 {
        match self.since.map(|since| now.saturating_duration_since(since)) {
            Some(elapsed) if elapsed < WINDOW => self.taken.max(self.before),
            Some(elapsed) if elapsed < 2 * WINDOW => self.taken,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_the_last_second() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(start), 0);
        for milliseconds in [0, 100, 900] {
            rate.count(2, at(milliseconds));
        }
        assert_eq!([900, 1_500, 2_000].map(|now| rate.per_second(at(now))), [6, 6, 0]);
        rate.count(1, at(1_200));
        assert_eq!([1_300, 2_100, 3_100].map(|now| rate.per_second(at(now))), [6, 1, 0]);
        rate.count(5, at(9_000));
        assert_eq!(rate.per_second(at(9_000)), 5);
        rate.uncount(2, at(9_000));
        assert_eq!(rate.per_second(at(9_000)), 3);
    }

    #[test]
    fn what_is_given_back_is_of_the_second_in_which_it_was_taken() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut rate = Rate::default();
        for (amount, milliseconds) in [(7, 0), (5, 1_500), (4, 2_200)] {
            rate.count(amount, at(milliseconds));
        }
        // That second is no longer known.
        rate.uncount(7, at(0));
        assert_eq!([2_200, 3_100].map(|now| rate.per_second(at(now))), [5, 4]);
        rate.uncount(3, at(1_500));
        assert_eq!([2_200, 3_100].map(|now| rate.per_second(at(now))), [4, 4]);
        rate.uncount(1, at(2_200));
        assert_eq!([2_200, 3_100].map(|now| rate.per_second(at(now))), [3, 3]);
    }
}
