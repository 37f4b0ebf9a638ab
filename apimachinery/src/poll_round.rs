//! What wakes a connection and its parts, where all are polled in one task.
//!
//! A task that is woken while it runs is put behind all others, and another thread is woken to take it over. So what
//! one side wakes of the other is noted, and polled in the next round of the same turn; the task is woken only for what
//! it would not see by itself. Neither side is polled for what the other waits for.
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

/// They are being polled.
const POLLED: u8 = 1;

/// A side that is polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PollSide {
    /// The connection.
    Connection = 2,
    /// What it was divided into: its streams, or the tasks that it starts.
    Parts = 4,
}

/// Which sides were woken, and whether they are being polled. One turn at a time, by the task that has it; anybody may
/// wake.
#[derive(Debug, Default)]
pub struct PollRound {
    task: AtomicWaker,
    state: AtomicU8,
}

impl PollRound {
    /// They are polled from now on by this task, until [`rests`](Self::rests) is true, or [`leave`](Self::leave).
    pub fn begin(&self, task: &Waker) {
        self.task.register(task);
        self.state.fetch_or(POLLED, SeqCst);
    }

    /// Whether a side was woken since it was last taken. It is to be polled then.
    pub fn take_woken(&self, side: PollSide) -> bool {
        self.state.fetch_and(!(side as u8), SeqCst) & side as u8 != 0
    }

    /// Whether neither side was woken meanwhile: then the turn is over, and the task is woken for what comes.
    pub fn rests(&self) -> bool {
        self.state.compare_exchange(POLLED, 0, SeqCst, SeqCst).is_ok()
    }

    /// Ends the turn. What was woken by now is seen in the next one, which has to follow.
    pub fn leave(&self) {
        self.state.fetch_and(!POLLED, SeqCst);
    }

    /// Has a side polled in the next round. Wakes nobody: for whoever polls after it.
    pub fn mark_woken(&self, side: PollSide) {
        self.state.fetch_or(side as u8, SeqCst);
    }

    /// Has a side polled, by waking the task where it is not at it.
    pub fn wake(&self, side: PollSide) {
        if self.state.fetch_or(side as u8, SeqCst) & POLLED == 0 {
            self.task.wake();
        }
    }

    /// What wakes a side.
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
    fn the_task_is_woken_for_what_it_would_not_see() {
        let (round, woken) = (Arc::<PollRound>::default(), Arc::<Woken>::default());
        let (task, wakes) = (waker(Arc::clone(&woken)), || woken.0.load(SeqCst));
        round.begin(&task);
        round.waker(Parts).wake();
        assert_eq!((round.take_woken(Connection), round.rests()), (false, false), "the parts are to be polled");
        assert!(round.take_woken(Parts) && !round.take_woken(Parts) && round.rests());
        assert_eq!(wakes(), 0, "it was at it");
        round.waker(Connection).wake();
        round.wake(Parts);
        assert_eq!(wakes(), 1, "what is woken beside that is seen in the same turn");
        round.begin(&task);
        assert!(round.take_woken(Parts));
        round.leave();
        round.begin(&task);
        assert!(round.take_woken(Connection), "what was not taken stays");
        assert!(round.rests());
        round.mark_woken(Connection);
        assert_eq!(wakes(), 1, "whoever notes polls");
    }
}
