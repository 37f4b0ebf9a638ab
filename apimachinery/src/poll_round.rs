//! Wakes a connection and its parts, which one task polls.
//!
//! A running task that is woken moves behind all other tasks, and a different thread is woken to take it over. So a
//! wakeup between the two sides is recorded, and the side is polled in the next round of the same turn; the task itself
//! is woken only for other events. A side is not polled for the events of the other side.
//!
//! ```text
//! begin ─▶ take(Parts) ─▶ take(Connection) ─▶ rests? ── yes ──▶ pending, and woken for what comes
//!            ▲                                  │ no
//!            └──────────────────────────────────┘   too many rounds: leave, and the task wakes itself
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::task::{Wake, Waker};

use futures::task::AtomicWaker;

/// The task is polling.
const POLLED: u8 = 1;

/// A side of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PollSide {
    /// The connection.
    Connection = 2,
    /// The streams of the connection, or the tasks that it starts.
    Parts = 4,
}

/// The woken sides, and whether the task is polling. Only the owning task takes turns; any thread may wake.
#[derive(Debug, Default)]
pub struct PollRound {
    task: AtomicWaker,
    state: AtomicU8,
}

impl PollRound {
    /// Starts a turn of this task, which lasts until [`rests`](Self::rests) returns true or [`leave`](Self::leave) is
    /// called.
    pub fn begin(&self, task: &Waker) {
        self.task.register(task);
        self.state.fetch_or(POLLED, SeqCst);
    }

    /// Returns whether a side was woken since the last call, so that it must be polled.
    pub fn take_woken(&self, side: PollSide) -> bool {
        self.state.fetch_and(!(side as u8), SeqCst) & side as u8 != 0
    }

    /// Ends the turn if neither side was woken in the meantime, and returns whether it ended. Later events wake the
    /// task.
    pub fn rests(&self) -> bool {
        self.state.compare_exchange(POLLED, 0, SeqCst, SeqCst).is_ok()
    }

    /// Ends the turn. The next turn, which must follow, handles the wakeups so far.
    pub fn leave(&self) {
        self.state.fetch_and(!POLLED, SeqCst);
    }

    /// Marks a side for the next round without waking the task, for a caller that polls afterwards.
    pub fn mark_woken(&self, side: PollSide) {
        self.state.fetch_or(side as u8, SeqCst);
    }

    /// Marks a side for polling, and wakes the task if it is not polling.
    pub fn wake(&self, side: PollSide) {
        if self.state.fetch_or(side as u8, SeqCst) & POLLED == 0 {
            self.task.wake();
        }
    }

    /// Returns a waker of a side.
    pub fn waker(self: &Arc<Self>, side: PollSide) -> Waker {
        Arc::new(SideWaker { round: Arc::clone(self), side }).into()
    }
}

struct SideWaker {
    round: Arc<PollRound>,
    side: PollSide,
}

impl Wake for SideWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.round.wake(self.side);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::task::{ArcWake, waker};

    use super::PollSide::{Connection, Parts};
    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl ArcWake for Woken {
        fn wake_by_ref(woken: &Arc<Self>) {
            woken.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn poll_round_wakes_the_task_only_outside_a_turn() {
        let (round, woken) = (Arc::<PollRound>::default(), Arc::<Woken>::default());
        let (task, wakes) = (waker(Arc::clone(&woken)), || woken.0.load(SeqCst));
        round.begin(&task);
        round.waker(Parts).wake();
        assert_eq!((round.take_woken(Connection), round.rests()), (false, false), "the parts must be polled");
        assert!(round.take_woken(Parts) && !round.take_woken(Parts) && round.rests());
        assert_eq!(wakes(), 0, "the task was polling");
        round.waker(Connection).wake();
        round.wake(Parts);
        assert_eq!(wakes(), 1, "a wakeup outside a turn wakes the task once");
        round.begin(&task);
        assert!(round.take_woken(Parts));
        round.leave();
        round.begin(&task);
        assert!(round.take_woken(Connection), "a wakeup stays until it is taken");
        assert!(round.rests());
        round.mark_woken(Connection);
        assert_eq!(wakes(), 1, "marking a side does not wake the task");
    }
}
