//! How soon a collection asks a member that is said to have become well: at once, unless that was said in vain lately.

use tokio::time::{Duration, Instant};

use crate::backoff;

/// The collections of a member that is well again ask it at random moments within this time. Half a second: a hundred
/// requests do not come at once, and nobody notices.
const WITHIN: Duration = Duration::from_millis(500);

/// How long a collection waits that was woken in vain once; twice as long after each further time. 1 s: a member that
/// starts answers before it is ready, and is well a second time then.
const AFTER_ONE_IN_VAIN: Duration = Duration::from_secs(1);

/// How long it is remembered that the member was not well when it was said to be. One minute: longer than the longest
/// delay, so that a member of which it is said all the time is asked no more often than one in trouble.
const REMEMBERED_FOR: Duration = Duration::from_secs(60);

/// The wakes of one collection. Pure: time and chance are arguments.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    /// Those after which no watch proved itself.
    in_vain: u32,
    /// When the last was.
    last: Option<Instant>,
}

/// A wake that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedWake {
    /// How long after it is said that the member is well.
    pub(crate) after: Duration,
    /// Whether it is believed: then failures before it say nothing of the member as it is now.
    pub(crate) is_believed: bool,
}

impl Wakes {
    /// How the next one is met. `longest` bounds the delay; `chance` lies in 0.0 to 1.0.
    pub(crate) fn next(&self, now: Instant, longest: Duration, chance: f64) -> PlannedWake {
        let is_remembered = self.last.is_some_and(|last| now < last + REMEMBERED_FOR);
        match self.in_vain {
            in_vain if in_vain > 0 && is_remembered => {
                let after = backoff::delay(AFTER_ONE_IN_VAIN, longest, in_vain, None, chance);
                PlannedWake { after, is_believed: false }
            }
            _ => PlannedWake { after: WITHIN.mul_f64(chance), is_believed: true },
        }
    }

    /// A wait was ended by one, which is in vain until a watch proves itself.
    pub(crate) fn woken(&mut self, now: Instant, wake: PlannedWake) {
        self.in_vain = if wake.is_believed { 1 } else { self.in_vain.saturating_add(1) };
        self.last = Some(now);
    }

    /// A watch has proved itself.
    pub(crate) fn proved(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_woken_in_vain_again_and_again_waits_longer_until_a_watch_proves_itself() {
        let (begun, longest) = (Instant::now(), Duration::from_secs(30));
        let (mut wakes, mut now, mut delays) = (Wakes::default(), begun, Vec::new());
        for _ in 0..8 {
            let wake = wakes.next(now, longest, 1.0);
            delays.push(wake.after.as_millis());
            assert_eq!(wake.is_believed, now == begun);
            now += wake.after;
            wakes.woken(now, wake);
        }
        assert_eq!(delays, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
        assert!(wakes.next(now + REMEMBERED_FOR, longest, 1.0).is_believed, "what was long ago is forgotten");
        wakes.proved();
        assert_eq!(wakes.next(now, longest, 0.5), PlannedWake { after: WITHIN / 2, is_believed: true });
    }
}
