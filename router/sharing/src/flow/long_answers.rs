//! Limit of concurrently written long answers, with a fair queue of clients.
//!
//! A list of 10,000 objects is gathered in milliseconds, but then passes through buffers of HTTP/2 and TLS. A thousand
//! such lists at once would take the CPU from all other requests. So an answer of more than one frame waits for a write
//! permit. A waiting request keeps a snapshot (two words per cluster) and no bytes. Clients get write permits round
//! robin: a client with a thousand lists delays a list of a second client by one list.
//!
//! ```text
//! acquire ──▶ waiting (in its client's queue) ──▶ active ──▶ done: released on drop
//!             ▲                                     │
//!             └───── next use ◀── overdue ◀─────────┘ unused for OVERDUE while a request waits: slow client
//! ```

mod answer_permits;
mod queues;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::flow::share_key::ShareKey;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::oneshot;
use tokio::time::Instant;

pub use answer_permits::{AnswerPermit, AnswerPermitMetrics, AnswerPermits, Length, MEDIUM_BYTES};
pub(crate) use queues::RoundRobinQueues;

/// Maximum number of concurrently written answers, separately for medium and for long answers. A written answer may
/// hold a frame of 64 KiB, the buffer of its HTTP/2 stream, and about 300 KiB during compression. Two answers keep two
/// cores busy, but distant clients read only 10 MB/s each. With 32, a test with 1,000 concurrent lists of 62 MB raised
/// memory from 102 MB by 35 MB, a factor of 1.35; the goal is 1.3.
pub const AT_ONCE: usize = 16;

/// Maximum number of requests that wait for a write permit. Each costs about 10 KiB (request, stream, queue entry), so
/// all cost 100 MiB.
pub const WAITING_MAX: usize = 10_000;

/// Maximum wait for a write permit, after which the client gets a 429 with Retry-After. 50 s is less than the default
/// timeout of a request, after which the client would get a 504 without Retry-After.
pub(crate) const WAITS_MAX: Duration = Duration::from_secs(50);

/// Time without a write after which a waiting request takes the write permit of a slow client. A client that reads a
/// frame of 64 KiB in this time reads 256 KB/s, and only stuck clients are slower.
const OVERDUE: Duration = Duration::from_millis(250);

/// Reason for which a long answer gets no write permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoWritePermit {
    /// Too many requests wait for a write permit.
    #[error("{WAITING_MAX} lists wait to be written already; try again")]
    QueueFull,
    /// The wait for a write permit exceeded the time limit.
    #[error(
        "the list was not written within {} s, because lists of other requests are written first; try again",
        WAITS_MAX.as_secs()
    )]
    TimedOut,
}

/// Metrics of write permits.
#[derive(Clone, Debug, Default)]
pub struct WritePermitMetrics {
    /// Number of long answers that are written now.
    pub active: Gauge,
    /// Number of answers that wait for a write permit.
    pub waiting: Gauge,
    /// Number of refused answers.
    pub refused: Counter,
}

/// Permits to write long answers. A process has one value for each of the two lengths (medium and long).
#[derive(Debug)]
pub struct WritePermits {
    at_once: usize,
    metrics: WritePermitMetrics,
    state: Mutex<WritePermitState>,
}

#[derive(Debug, Default)]
struct WritePermitState {
    next: u64,
    /// Active write permits with the time of their last use.
    active: HashMap<u64, Instant>,
    queues: RoundRobinQueues<oneshot::Sender<WritePermit>>,
}

/// Permit to write a long answer. Released on drop. The type is not `Permit`, because a waiting request may take the
/// permit from a slow client.
#[derive(Debug)]
pub struct WritePermit {
    id: u64,
    permits: Arc<WritePermits>,
}

impl WritePermits {
    /// Creates a limit of `at_once` write permits.
    pub fn new(at_once: usize, metrics: WritePermitMetrics) -> Arc<Self> {
        Arc::new(Self { at_once: at_once.max(1), metrics, state: Mutex::default() })
    }

    /// Returns the number of active write permits, the limit, and the number of refused answers since the start.
    fn usage(&self) -> (usize, usize, u64) {
        (self.state.lock().active.len(), self.at_once, self.metrics.refused.get())
    }

    /// Waits for a write permit. Cancellation is safe: a dropped future leaves the queue.
    ///
    /// # Errors
    /// [`NoWritePermit`] if too many requests wait, or after the maximum wait.
    pub async fn acquire(self: &Arc<Self>, share_key: ShareKey) -> Result<WritePermit, NoWritePermit> {
        let place = {
            let mut state = self.state.lock();
            if state.queues.waiting() == 0 && state.active.len() < self.at_once {
                return Ok(self.activate(&mut state));
            }
            if state.queues.waiting() >= WAITING_MAX {
                self.metrics.refused.inc();
                return Err(NoWritePermit::QueueFull);
            }
            self.enqueue(&mut state, share_key)
        };
        let mut place = QueuedRequest { permits: self, permit: place, served: false };
        let deadline = Instant::now() + WAITS_MAX;
        loop {
            // Each waiting request checks for overdue write permits, so no separate task is needed.
            self.advance();
            let until = deadline.min(Instant::now() + OVERDUE);
            match tokio::time::timeout_at(until, &mut place.permit).await {
                Ok(Ok(permit)) => {
                    place.served = true;
                    return Ok(permit);
                }
                Err(_) if Instant::now() < deadline => {}
                // Unreachable: the queue never drops a waiting request.
                Ok(Err(_)) | Err(_) => {
                    self.metrics.refused.inc();
                    return Err(NoWritePermit::TimedOut);
                }
            }
        }
    }

    /// Makes a write permit. The caller must have checked the limit.
    fn activate(self: &Arc<Self>, state: &mut WritePermitState) -> WritePermit {
        state.next += 1;
        state.active.insert(state.next, Instant::now());
        self.metrics.active.inc();
        WritePermit { id: state.next, permits: Arc::clone(self) }
    }

    fn enqueue(&self, state: &mut WritePermitState, share_key: ShareKey) -> oneshot::Receiver<WritePermit> {
        let (give, place) = oneshot::channel();
        self.metrics.waiting.inc();
        state.queues.push(share_key, give);
        place
    }

    /// Removes abandoned requests from the queues. Cost: linear in the number of waiting requests.
    fn remove_closed(&self, state: &mut WritePermitState) {
        let before = state.queues.waiting();
        state.queues.retain(|place| !place.is_closed());
        self.metrics.waiting.dec_by(i64::try_from(before - state.queues.waiting()).unwrap_or(0));
    }

    /// Gives free and overdue write permits to waiting requests.
    fn advance(self: &Arc<Self>) {
        // Write permits of abandoned requests are dropped only after the lock is released, because their drop takes the
        // lock.
        let mut untaken = Vec::new();
        let mut state = self.state.lock();
        while state.queues.waiting() > 0 {
            if state.active.len() >= self.at_once && !self.revoke(&mut state) {
                break;
            }
            let Some((_, give)) = state.queues.next(|_| true) else { break };
            self.metrics.waiting.dec();
            if give.is_closed() {
                continue;
            }
            let permit = self.activate(&mut state);
            if let Err(permit) = give.send(permit) {
                self.end(&mut state, permit.id);
                untaken.push(permit);
            }
        }
        drop(state);
    }

    /// Revokes the write permit with the oldest last use, if it is overdue.
    fn revoke(&self, state: &mut WritePermitState) -> bool {
        let oldest = state.active.iter().min_by_key(|(_, used)| **used);
        let Some((&id, _)) = oldest.filter(|(_, used)| used.elapsed() >= OVERDUE) else { return false };
        self.end(state, id)
    }

    fn end(&self, state: &mut WritePermitState, id: u64) -> bool {
        let was_active = state.active.remove(&id).is_some();
        if was_active {
            self.metrics.active.dec();
        }
        was_active
    }
}

/// Entry in the queue. Dropping the entry leaves the queue.
struct QueuedRequest<'a> {
    permits: &'a WritePermits,
    permit: oneshot::Receiver<WritePermit>,
    served: bool,
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        if self.served {
            return;
        }
        self.permit.close();
        self.permits.remove_closed(&mut self.permits.state.lock());
    }
}

impl WritePermit {
    /// Records a use of the write permit. Returns false if a waiting request has taken the permit from this slow
    /// client.
    pub fn is_live(&self) -> bool {
        match self.permits.state.lock().active.get_mut(&self.id) {
            Some(used) => {
                *used = Instant::now();
                true
            }
            None => false,
        }
    }
}

impl WritePermit {
    /// Releases the write permit, so that the next waiting request gets a permit.
    fn release(&self) {
        let waits = {
            let mut state = self.permits.state.lock();
            self.permits.end(&mut state, self.id);
            state.queues.waiting() > 0
        };
        if waits {
            self.permits.advance();
        }
    }
}

impl Drop for WritePermit {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn peer(port: u16) -> ShareKey {
        ShareKey::Connection(([127, 0, 0, 1], port).into())
    }

    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn long_answers_are_written_round_robin_by_connection() {
        let permits = WritePermits::new(1, WritePermitMetrics::default());
        let first = permits.acquire(peer(1)).await.unwrap();
        let (tell, mut order) = tokio::sync::mpsc::unbounded_channel();
        // The first connection requests three write permits, then a second connection requests one.
        for (at, port) in [1, 1, 1, 2].into_iter().enumerate() {
            let (permits, tell) = (Arc::clone(&permits), tell.clone());
            tokio::spawn(async move {
                let permit = permits.acquire(peer(port)).await.unwrap();
                tell.send((at, permit)).unwrap();
            });
            settle().await;
        }
        assert!(order.recv().now_or_never().is_none());
        assert_eq!((permits.metrics.active.get(), permits.metrics.waiting.get()), (1, 4));
        drop(first);
        let mut got = Vec::new();
        for _ in 0..4 {
            let (at, permit) = order.recv().await.unwrap();
            got.push(at);
            drop(permit);
        }
        assert_eq!(got, [0, 3, 1, 2], "the second connection waits for one answer of the first, not for three");
        assert_eq!((permits.metrics.active.get(), permits.metrics.waiting.get()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_client_loses_its_write_permit_to_a_waiting_request() {
        let permits = WritePermits::new(1, WritePermitMetrics::default());
        let stuck = permits.acquire(peer(1)).await.unwrap();
        tokio::time::advance(10 * OVERDUE).await;
        assert!(stuck.is_live(), "nobody waited for it");
        let start = Instant::now();
        let second = permits.acquire(peer(2)).await.unwrap();
        assert!(start.elapsed() <= 2 * OVERDUE);
        assert!(!stuck.is_live() && second.is_live());
        drop(stuck);
        assert!(second.is_live(), "a lost turn is not given back twice");
        assert_eq!(permits.metrics.active.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_request_leaves_the_queue_for_write_permits() {
        let permits = WritePermits::new(1, WritePermitMetrics::default());
        let first = permits.acquire(peer(1)).await.unwrap();
        let mut cancelled = Box::pin(permits.acquire(peer(2)));
        assert!(cancelled.as_mut().now_or_never().is_none());
        let mut stays = Box::pin(permits.acquire(peer(3)));
        assert!(stays.as_mut().now_or_never().is_none());
        drop(cancelled);
        drop(first);
        stays.await.unwrap();
        assert_eq!((permits.metrics.active.get(), permits.metrics.waiting.get()), (0, 0));
        assert!(permits.acquire(ShareKey::Unknown).now_or_never().unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_a_write_permit_has_a_time_limit() {
        let permits = WritePermits::new(1, WritePermitMetrics::default());
        let busy = permits.acquire(peer(1)).await.unwrap();
        let writes = async {
            loop {
                assert!(busy.is_live());
                tokio::time::sleep(OVERDUE / 2).await;
            }
        };
        let refused = tokio::select! {
            permit = permits.acquire(peer(2)) => permit.map(drop),
            () = writes => Ok(()),
        };
        assert_eq!(refused, Err(NoWritePermit::TimedOut));
        assert_eq!(permits.metrics.refused.get(), 1);
        drop(busy);
        assert!(permits.acquire(peer(2)).now_or_never().unwrap().is_ok(), "the place of the refused one is skipped");
    }
}
