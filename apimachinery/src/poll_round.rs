//! Wakeups between an HTTP/2 connection and its streams when one task polls both.
//!
//! In tokio, a running task that is woken moves to the end of the queue, and a different thread is woken to take the
//! task over. To avoid this cost, a wakeup that occurs during a poll of the task is only recorded. The same poll then
//! has another round, which polls the woken side. A wakeup between two polls wakes the task. Each round polls only the
//! sides that were woken.
//!
//! ```text
//! begin ─▶ take(Parts) ─▶ take(Connection) ─▶ rests? ── yes ──▶ pending, until a wakeup of a side
//!            ▲                                  │ no
//!            └──────────────────────────────────┘   too many rounds: leave, and the task wakes itself
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::task::{Wake, Waker};

use futures::task::AtomicWaker;

/// The bit of `state` that is set during a poll of the task.
const POLLED: u8 = 1;

/// One of the two sides of a task that polls an HTTP/2 connection and its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PollSide {
    /// The HTTP/2 connection.
    Connection = 2,
    /// The streams of the connection, or the tasks that the connection starts.
    Parts = 4,
}

/// The woken sides, and whether the task is polling. Only the owning task calls [`begin`](Self::begin); any thread may
/// wake a side.
#[derive(Debug, Default)]
pub struct PollRound {
    task: AtomicWaker,
    state: AtomicU8,
}

impl PollRound {
    /// Starts a poll of the task, which lasts until [`rests`](Self::rests) returns true or [`leave`](Self::leave) is
    /// called.
    pub fn begin(&self, task: &Waker) {
        self.task.register(task);
        self.state.fetch_or(POLLED, SeqCst);
    }

    /// Returns whether a side was woken since the last call, so that the caller must poll the side.
    pub fn take_woken(&self, side: PollSide) -> bool {
        self.state.fetch_and(!(side as u8), SeqCst) & side as u8 != 0
    }

    /// Ends the poll, unless a side was woken since its last poll. Returns whether the poll has ended. After the end, a
    /// wakeup of a side wakes the task.
    pub fn rests(&self) -> bool {
        self.state.compare_exchange(POLLED, 0, SeqCst, SeqCst).is_ok()
    }

    /// Ends the poll although sides are marked as woken. The caller must wake the task, whose next poll handles these
    /// sides.
    pub fn leave(&self) {
        self.state.fetch_and(!POLLED, SeqCst);
    }

    /// Marks a side for the next round without waking the task. The caller must poll the task afterwards.
    pub fn mark_woken(&self, side: PollSide) {
        self.state.fetch_or(side as u8, SeqCst);
    }

    /// Marks a side for polling, and wakes the task unless the task is polling.
    pub fn wake(&self, side: PollSide) {
        if self.state.fetch_or(side as u8, SeqCst) & POLLED == 0 {
            self.task.wake();
        }
    }

    /// Returns a waker for a side.
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
    fn poll_round_wakes_its_task_only_while_not_polling() {
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
