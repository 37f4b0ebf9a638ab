//! How many requests to one member are sent again: a share of those that were sent for the first time lately.
//!
//! A member in trouble refuses many requests at once. Were each sent again, it would be given two and three times the
//! load that it could not bear. So what is sent again stays a fraction of what comes anyhow, as in Finagle's
//! `RetryBudget` and Linkerd's; a floor lets a member with little traffic have its few.
//!
//! Half of it at most is for what was answered that there is too much to do, or by an API server that did not know who
//! asked. One client can have these answers as often as it asks (priority and fairness gives the former), and its
//! requests are not to leave nothing for those whose connection ends.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Of so many requests one may be sent again: 20 % of them.
const REQUESTS_FOR_EACH: u64 = 5;

/// So many may be sent again in [`WINDOW`] however few requests there are. 20: a connection that ends takes a handful
/// of requests with it, and a member that is sent two more a second does not notice.
const FLOOR: u64 = 20;

/// What counts as lately, in slots of a second. 10 s: a burst that is over, and a restart, are soon forgotten.
const WINDOW: usize = 10;

/// Why a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It failed.
    Failed,
    /// It was answered that there is too much to do, or an API server did not know who asked.
    Busy,
}

/// What was sent in a second.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Which second it is, of those since the beginning.
    second: u64,
    requests: u64,
    retries: u64,
    /// Those of the retries whose cause was [`Cause::Busy`].
    busy: u64,
}

/// What was sent in the last seconds.
#[derive(Debug, Default)]
struct Window([Slot; WINDOW]);

impl Window {
    /// The slot of a second, empty if it was an earlier one's.
    fn slot(&mut self, second: u64) -> &mut Slot {
        let place = usize::try_from(second % WINDOW as u64).unwrap_or_default();
        let slot = &mut self.0[place];
        if slot.second != second {
            *slot = Slot { second, ..Slot::default() };
        }
        slot
    }

    /// A request is sent for the first time.
    fn note(&mut self, second: u64) {
        self.slot(second).requests += 1;
    }

    /// Whether one may be sent again, which counts if it is so.
    fn take(&mut self, second: u64, cause: Cause) -> bool {
        let recent = || self.0.iter().filter(|slot| slot.second + WINDOW as u64 > second);
        let sum = |of: fn(&Slot) -> u64| recent().map(of).sum::<u64>();
        let share = FLOOR + sum(|slot| slot.requests) / REQUESTS_FOR_EACH;
        let is_busy = cause == Cause::Busy;
        let may = sum(|slot| slot.retries) < share && !(is_busy && sum(|slot| slot.busy) >= share / 2);
        if may {
            let slot = self.slot(second);
            slot.retries += 1;
            slot.busy += u64::from(is_busy);
        }
        may
    }
}

/// How many requests to one member are sent again.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    begun: Instant,
    window: Mutex<Window>,
    retries: AtomicU64,
    refused: AtomicU64,
}

/// How many requests to a member were sent again since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryStatistics {
    /// Requests that were sent again.
    pub retries: u64,
    /// Those that were not, for too many had been.
    pub refused: u64,
}

impl RetryBudget {
    pub(crate) fn new() -> Self {
        let (retries, refused) = Default::default();
        Self { begun: Instant::now(), window: Mutex::default(), retries, refused }
    }

    fn second(&self) -> u64 {
        self.begun.elapsed().as_secs()
    }

    /// A request is sent for the first time.
    pub(crate) fn note_request(&self) {
        self.window.lock().note(self.second());
    }

    /// Whether a request may be sent again, which counts if it is so.
    pub(crate) fn take(&self, cause: Cause) -> bool {
        let may = self.window.lock().take(self.second(), cause);
        let counter = if may { &self.retries } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        may
    }

    pub(crate) fn statistics(&self) -> RetryStatistics {
        RetryStatistics { retries: self.retries.load(Ordering::Relaxed), refused: self.refused.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many are let be sent again in a second, of any number.
    fn taken(window: &mut Window, second: u64) -> u64 {
        taken_for(window, second, Cause::Failed)
    }

    fn taken_for(window: &mut Window, second: u64, cause: Cause) -> u64 {
        (0..10_000).filter(|_| window.take(second, cause)).count() as u64
    }

    #[test]
    fn those_that_find_too_much_to_do_leave_half_to_those_that_fail() {
        let mut window = Window::default();
        (0..1000).for_each(|_| window.note(100));
        assert_eq!(taken_for(&mut window, 100, Cause::Busy), (FLOOR + 200) / 2);
        assert_eq!(taken(&mut window, 101), (FLOOR + 200) / 2, "all together no more than the share");
        // In the other order.
        (0..1000).for_each(|_| window.note(200));
        assert_eq!(taken(&mut window, 200), FLOOR + 200);
        assert_eq!(taken_for(&mut window, 200, Cause::Busy), 0);
    }

    #[test]
    fn a_fifth_of_the_requests_of_ten_seconds_and_a_floor_are_sent_again() {
        let mut window = Window::default();
        assert_eq!(taken(&mut window, 0), FLOOR, "without any requests");
        assert_eq!(taken(&mut window, 9), 0, "they count for ten seconds");
        assert_eq!(taken(&mut window, 10), FLOOR);
        let mut window = Window::default();
        for second in 100..105 {
            (0..200).for_each(|_| window.note(second));
        }
        assert_eq!(taken(&mut window, 105), FLOOR + 200);
        assert_eq!(taken(&mut window, 109), 0);
        // The requests of the first seconds are forgotten one after the other, and so are the retries.
        (0..1000).for_each(|_| window.note(114));
        assert_eq!(
            taken(&mut window, 114),
            0,
            "200 of the retries are 9 s old, and as many are allowed by 1,000 requests"
        );
        assert_eq!(taken(&mut window, 115), FLOOR + 200);
    }

    #[test]
    fn whatever_comes_no_more_than_the_share_is_sent_again() {
        let mut window = Window::default();
        let (mut requests, mut retries) = (0_u64, 0_u64);
        // A member that refuses everything, under a load that comes and goes.
        for second in 1..200 {
            for _ in 0..(second * 37) % 90 {
                window.note(second);
                requests += 1;
                retries += u64::from(window.take(second, Cause::Failed)) + u64::from(window.take(second, Cause::Busy));
            }
        }
        let floors = 200 / WINDOW as u64 + 1;
        assert!(retries <= requests / REQUESTS_FOR_EACH + floors * FLOOR, "{retries} of {requests}");
        assert!(retries >= requests / REQUESTS_FOR_EACH, "{retries} of {requests}");
    }
}
