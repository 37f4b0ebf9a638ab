//! The delay of a collection's next request after a report that its member has recovered. The delay is short, unless a
//! recent report was wrong.

use tokio::time::{Duration, Instant};

use crate::backoff;

/// The interval in which the collections of a recovered member send their requests, each at a random time. Half a
/// second: a hundred requests do not arrive at once, and clients do not notice the delay.
const WITHIN: Duration = Duration::from_millis(500);

/// The delay of the next request after one wrong report that the member has recovered. Each further wrong report
/// doubles the delay. 1 s: a starting member answers before it is ready, and a second report follows when it is ready.
const DELAY_AFTER_WRONG_WAKE: Duration = Duration::from_secs(1);

/// The time after which a wrong report of a recovery is forgotten. One minute is longer than the longest delay. So a
/// member with many wrong reports gets no more requests than a member that fails.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// Plans the requests of one collection after reports that its member has recovered. Pure: the caller passes the time
/// and the random value.
#[derive(Debug, Default)]
pub(crate) struct EarlyWakeups {
    /// The number of requests that followed such reports since a watch last delivered data or stayed open for 1 s.
    wrong_recovery_reports: u32,
    last: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedWakeup {
    /// The delay from the report of a recovery to the next request.
    pub(crate) after: Duration,
    /// Whether no recent report was wrong. If so, the reflector forgets the earlier failures, so that the next delay
    /// after a failure is short again.
    pub(crate) is_trusted: bool,
}

impl EarlyWakeups {
    /// Plans the next request after a report that the member has recovered. `longest` is the longest delay of the
    /// request; `chance` is the random value, from 0.0 to 1.0.
    pub(crate) fn next(&self, now: Instant, longest: Duration, chance: f64) -> PlannedWakeup {
        let is_recent = self.last.is_some_and(|last| now < last + REMEMBERED_FOR);
        match self.wrong_recovery_reports {
            wrong_recovery_reports if wrong_recovery_reports > 0 && is_recent => {
                let after = backoff::delay(DELAY_AFTER_WRONG_WAKE, longest, wrong_recovery_reports, None, chance);
                PlannedWakeup { after, is_trusted: false }
            }
            _ => PlannedWakeup { after: WITHIN.mul_f64(chance), is_trusted: true },
        }
    }

    /// Records that the planned request was sent. The report of the recovery is wrong unless a watch then delivers data
    /// or stays open for 1 s.
    pub(crate) fn woken(&mut self, now: Instant, wake: PlannedWakeup) {
        self.wrong_recovery_reports = if wake.is_trusted { 1 } else { self.wrong_recovery_reports.saturating_add(1) };
        self.last = Some(now);
    }

    /// Forgets all wrong reports. Called after a watch has delivered data, or stayed open for 1 s.
    pub(crate) fn proved(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_after_false_recovery_reports_doubles_until_a_watch_succeeds() {
        let (start, longest) = (Instant::now(), Duration::from_secs(30));
        let (mut early_wakeups, mut now, mut delays) = (EarlyWakeups::default(), start, Vec::new());
        for _ in 0..8 {
            let wake = early_wakeups.next(now, longest, 1.0);
            delays.push(wake.after.as_millis());
            assert_eq!(wake.is_trusted, now == start);
            now += wake.after;
            early_wakeups.woken(now, wake);
        }
        assert_eq!(delays, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        assert!(early_wakeups.next(now + REMEMBERED_FOR, longest, 1.0).is_trusted, "old wakes are forgotten");
        early_wakeups.proved();
        assert_eq!(early_wakeups.next(now, longest, 0.5), PlannedWakeup { after: WITHIN / 2, is_trusted: true });
    }
}
