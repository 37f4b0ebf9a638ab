//! How an endpoint that requests begin to be sent to, beside others, gets its share: little by little.
//!
//! It has nothing in flight, so it would be given every new watch and more than its part of the rest at once, at the
//! very time at which a kube-apiserver fills its caches. So for a while it lets most turns pass: one that could not be
//! reached, was not ready, was left out for its answers or was drained, and one that is new among others. Where no
//! other can be asked it is asked all the same (`candidates.rs`). At the start of the process all are new, and none is
//! held back for another.

use tokio::time::{Duration, Instant};

/// How long it is given less than the others. 10 s: a kube-apiserver that has just started fills its watch caches in
/// that time.
const LASTS: Duration = Duration::from_secs(10);

/// In how many steps its share grows meanwhile: from a tenth of its turns to all of them.
const STEPS: u32 = 10;

/// So many turns in a row are let pass or taken. 7: more than a cluster has endpoints, and soon over.
const TURNS_IN_A_ROW: u128 = 7;

/// Since when an endpoint is sent requests, where that is not from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlowStart {
    since: Option<Instant>,
}

impl SlowStart {
    /// It is sent requests from now on.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// Whether this turn is one of those that it lets pass.
    pub(crate) fn lets_pass(self, turn: usize, now: Instant) -> bool {
        let Some(since) = self.since else { return false };
        let passed = now.saturating_duration_since(since);
        if passed >= LASTS {
            return false;
        }
        let share = 1 + (passed.as_millis() * u128::from(STEPS) / LASTS.as_millis());
        // Which endpoint begins goes by the turn as well, so several turns in a row are let pass.
        (turn as u128 / TURNS_IN_A_ROW) % u128::from(STEPS) >= share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_that_begins_gets_more_and_more() {
        let since = Instant::now();
        let taken = |state: SlowStart, seconds| {
            (0..700).filter(|turn| !state.lets_pass(*turn, since + Duration::from_secs(seconds))).count()
        };
        let mut begun = SlowStart::default();
        assert_eq!(taken(begun, 0), 700, "at the start of the process");
        begun.begin(since);
        for (seconds, turns) in [(0, 70), (1, 140), (5, 420), (9, 700), (10, 700), (1000, 700)] {
            assert_eq!(taken(begun, seconds), turns, "after {seconds} s");
        }
        begun.begin(since + Duration::from_secs(20));
        assert_eq!(taken(begun, 20), 70, "it begins anew");
    }
}
