//! The capacity of a connection for unread bytes, and the tasks that wait for capacity.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::heads::ConnectionHeads;
use crate::unread::Unread;

/// The time limit for a request to wait for capacity. An active client reads its pending answers within 10 s. Clients
/// have longer timeouts, so they receive the 429 with the reason.
const CAPACITY_TIMEOUT: Duration = Duration::from_secs(10);

/// The unread bytes of one connection, and the tasks that wait for capacity for more.
pub(super) struct ConnectionCapacity {
    unread: Unread,
    /// The heads of the connection's requests that wait for capacity.
    heads: ConnectionHeads,
    /// The number of the connection's unread bytes.
    bytes: Mutex<usize>,
    /// The notification about free capacity. Each piece that the client reads wakes only one of the waiting tasks,
    /// which may be 2,000. A task that finds capacity wakes the next task, because it may have no data to send itself.
    freed: Arc<Notify>,
}

impl ConnectionCapacity {
    pub(super) fn new(unread: Unread) -> Self {
        let heads = unread.waiting_heads.add_connection();
        Self { unread, heads, bytes: Mutex::default(), freed: Arc::default() }
    }

    fn has_capacity(&self) -> bool {
        self.unread.load().has_capacity(*self.bytes.lock())
    }

    /// Adds unread bytes to the connection's count, even beyond the capacity.
    pub(super) fn add(&self, bytes: usize) {
        self.add_to(&mut self.bytes.lock(), bytes);
    }

    fn add_to(&self, own: &mut usize, bytes: usize) {
        self.unread.add(*own, bytes);
        *own += bytes;
    }

    /// Adds unread bytes if the connection has capacity for them. Returns whether they were added. One lock covers the
    /// check and the addition, so concurrent requests cannot use the same capacity.
    pub(super) fn try_add(&self, bytes: usize) -> bool {
        let mut own = self.bytes.lock();
        let has_capacity = self.unread.load().has_capacity(*own);
        if has_capacity {
            self.add_to(&mut own, bytes);
        }
        has_capacity
    }

    /// Subtracts read bytes, and wakes a waiting task if the connection has capacity for unread bytes.
    pub(super) fn remove(&self, bytes: usize) {
        let has_capacity = {
            let mut own = self.bytes.lock();
            *own -= bytes;
            self.unread.remove(*own, bytes);
            self.unread.load().has_capacity(*own)
        };
        if has_capacity {
            self.freed.notify_one();
        }
    }

    /// Returns whether the connection blocks other connections. Also wakes a waiting task of this connection if other
    /// connections have freed capacity.
    pub(super) fn check_load(&self) -> bool {
        let (load, own) = (self.unread.load(), *self.bytes.lock());
        if load.has_capacity(own) {
            self.freed.notify_one();
        }
        load.blocks_others(own)
    }

    /// Waits until the connection has capacity for the answer to a request. Meanwhile, the request's head of this many
    /// bytes counts against the limit for the heads of waiting requests. Returns `false` on a timeout, or if this limit
    /// is exceeded.
    pub(super) async fn wait(self: &Arc<Self>, head_bytes: usize) -> bool {
        let mut turn = CapacityWaiter::new(self);
        // Requests rarely wait. Only a waiting request reads the clock, for its timeout.
        if poll_fn(|cx| Poll::Ready(turn.has_capacity(cx))).await {
            return true;
        }
        let mut held = None;
        let capacity = poll_fn(|cx| {
            if turn.has_capacity(cx) {
                return Poll::Ready(true);
            }
            if held.is_none() {
                held = self.heads.count_head(head_bytes);
            }
            if held.is_some() { Poll::Pending } else { Poll::Ready(false) }
        });
        tokio::time::timeout(CAPACITY_TIMEOUT, capacity).await.unwrap_or(false)
    }
}

/// A task that may wait for a connection's capacity for unread bytes. Dropping the task after its wake-up wakes the
/// next task.
pub(super) struct CapacityWaiter {
    pub(super) capacity: Arc<ConnectionCapacity>,
    /// The registration for a wake-up of the task while the connection has no capacity for unread bytes.
    wakeup: Option<Pin<Box<OwnedNotified>>>,
}

impl CapacityWaiter {
    pub(super) fn new(capacity: &Arc<ConnectionCapacity>) -> Self {
        Self { capacity: Arc::clone(capacity), wakeup: None }
    }

    /// Returns whether the connection has capacity for unread bytes. Otherwise registers the task for a wake-up.
    pub(super) fn has_capacity(&mut self, cx: &mut Context<'_>) -> bool {
        let mut is_woken = false;
        loop {
            if self.capacity.has_capacity() {
                // When a `Notified` is dropped after its wake-up and before a poll, the wake-up passes to the next
                // waiting task.
                self.wakeup = None;
                if is_woken {
                    self.capacity.freed.notify_one();
                }
                return true;
            }
            let freed = &self.capacity.freed;
            let wakeup = self.wakeup.get_or_insert_with(|| Box::pin(Arc::clone(freed).notified_owned()));
            if wakeup.as_mut().poll(cx).is_pending() {
                return false;
            }
            // A concurrent task of the connection used the freed capacity first, so this task waits again.
            (self.wakeup, is_woken) = (None, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use futures::FutureExt;
    use prometheus_client::metrics::gauge::Gauge;

    use super::super::counted::Counted;
    use super::super::pieces::PIECE_BYTES;
    use super::*;
    use crate::heads::HEADS_BYTES_MAX;
    use crate::settings::UNREAD_BYTES_MAX;

    #[tokio::test(start_paused = true)]
    async fn request_without_unread_bytes_proceeds_at_the_unread_bytes_limit() {
        let unread = Unread::new(Gauge::default(), 1 << 20);
        let stuck = Arc::new(ConnectionCapacity::new(unread.clone()));
        let other = Arc::new(ConnectionCapacity::new(unread));
        let _all = Counted::new(&stuck, 1 << 20);
        assert!(!stuck.wait(0).await);
        assert!(other.wait(0).await);
    }

    /// A client may have a thousand connections with a few waiting requests each.
    #[tokio::test(start_paused = true)]
    async fn requests_waiting_for_capacity_share_a_limit_across_connections() {
        let unread = Unread::new(Gauge::default(), 1 << 20);
        let stuck = Arc::new(ConnectionCapacity::new(unread.clone()));
        let all = Counted::new(&stuck, 1 << 20);
        let others: Vec<_> = (0..100).map(|_| Arc::new(ConnectionCapacity::new(unread.clone()))).collect();
        let unread: Vec<_> = others.iter().map(|own| Counted::new(own, 64 << 10)).collect();
        let mut waiting: Vec<_> = others.iter().map(|own| Box::pin(own.wait(HEADS_BYTES_MAX))).collect();
        let answers = waiting.iter_mut().map(|capacity| capacity.as_mut().now_or_never());
        assert_eq!(answers.filter(|answer| *answer == Some(false)).count(), 84, "64 MiB of them wait");
        assert!(others[99].wait(1 << 10).now_or_never().is_none(), "a small one of each connection waits");
        drop((waiting, all, unread));
        assert!(others[99].wait(HEADS_BYTES_MAX).await);
    }

    /// A connection that reads a long list nearly always has an unread frame.
    #[tokio::test(start_paused = true)]
    async fn write_waits_until_the_client_reads_an_unread_frame() {
        let unread = Unread::new(Gauge::default(), 1 << 20);
        let stuck = Arc::new(ConnectionCapacity::new(unread.clone()));
        let reader = Arc::new(ConnectionCapacity::new(unread));
        let _nearly_all = Counted::new(&stuck, (1 << 20) - 1);
        let frame = Counted::new(&reader, 4 * PIECE_BYTES);
        let write = tokio::spawn({
            let reader = Arc::clone(&reader);
            async move { reader.wait(0).await }
        });
        tokio::time::sleep(CAPACITY_TIMEOUT / 2).await;
        drop(frame);
        assert!(write.await.unwrap(), "it has been read within the time");
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Tasks that wait for capacity on a connection at its limit of unread bytes. `piece` counts the last 16 KiB
    /// separately, so that the test can free them.
    struct Crowd {
        capacity: Arc<ConnectionCapacity>,
        _most: Counted,
        piece: Option<Counted>,
        waiting: VecDeque<(CapacityWaiter, Arc<Woken>)>,
    }

    impl Crowd {
        fn new() -> Self {
            let capacity = Arc::new(ConnectionCapacity::new(Unread::new(Gauge::default(), UNREAD_BYTES_MAX)));
            let most = Counted::new(&capacity, (16 << 20) - PIECE_BYTES);
            let piece = Some(Counted::new(&capacity, PIECE_BYTES));
            let waiting = (0..2000).map(|_| (CapacityWaiter::new(&capacity), Arc::new(Woken::default()))).collect();
            let mut crowd = Self { capacity, _most: most, piece, waiting };
            assert!((0..2000).all(|at| !crowd.poll(at)));
            crowd
        }

        fn poll(&mut self, at: usize) -> bool {
            let (turn, woken) = &mut self.waiting[at];
            turn.has_capacity(&mut Context::from_waker(&Waker::from(Arc::clone(woken))))
        }

        fn woken(&self) -> usize {
            self.waiting.iter().map(|(_, woken)| woken.0.load(Ordering::SeqCst)).sum()
        }
    }

    #[test]
    fn freed_capacity_wakes_one_waiting_task_at_a_time() {
        let mut crowd = Crowd::new();
        crowd.piece = None;
        assert_eq!(crowd.woken(), 1);
        assert!(crowd.poll(0), "who came first is given it");
        crowd.piece = Some(Counted::new(&crowd.capacity, PIECE_BYTES));
        assert!(!crowd.poll(1) && crowd.woken() == 2, "the next one looks whether anything is left");
        crowd.piece = None;
        assert!(crowd.woken() == 3 && crowd.poll(1), "and has kept its place");
    }

    #[test]
    fn unused_capacity_passes_to_the_next_waiting_task() {
        let mut crowd = Crowd::new();
        crowd.piece = None;
        assert!((0..1000).all(|at| crowd.poll(at)), "each has nothing to give");
        assert_eq!(crowd.woken(), 1001);
        // The dropped tasks include the woken task. Another task must get the wake-up.
        crowd.waiting.drain(..1000);
        while let Some((turn, woken)) = crowd.waiting.pop_front() {
            assert_eq!(woken.0.load(Ordering::SeqCst), 1);
            drop(turn);
        }
    }
}
