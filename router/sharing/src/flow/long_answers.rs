//! Limit of concurrently written long answers, with a fair queue of clients.
//!
//! A list of 10,000 objects is gathered in milliseconds, but then passes through buffers of HTTP/2 and TLS. A thousand
//! such lists at once would take the CPU from all other requests. So an answer of more than one frame waits for a write
//! permit, in code a turn. A waiting request keeps a snapshot (two words per cluster) and no bytes. Clients get write
//! permits round robin: a client with a thousand lists delays a list of a second client by one list.
//!
//! ```text
//! acquire ──▶ waiting (in its client's queue) ──▶ active ──▶ done: released on drop
//!             ▲                                     │
//!             └───── next use ◀── overdue ◀─────────┘ unused for OVERDUE while a request waits: slow client
//! ```

mod answer_turns;
mod lines;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::flow::holder::Holder;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::oneshot;
use tokio::time::Instant;

pub use answer_turns::{AnswerTurn, AnswerTurnMetrics, AnswerTurns, Length, MEDIUM_BYTES};
pub(crate) use lines::HolderQueues;

/// Maximum of concurrently written answers for each of the two lengths. A written answer may hold a frame of 64 KiB,
/// the buffer of its HTTP/2 stream, and about 300 KiB during compression. Two answers keep two cores busy, but distant
/// clients read only 10 MB/s each. With 32, a storm of 1,000 lists of 62 MB raised memory from 102 MB by 35 MB, a
/// factor of 1.35; the goal is 1.3.
pub const AT_ONCE: usize = 16;

/// Maximum of waiting requests. Each costs about 10 KiB (request, stream, queue entry), so all cost 100 MiB.
pub const WAITING_MAX: usize = 10_000;

/// Maximal wait, after which the client gets a Retry-After. 50 s is less than the default timeout of a request, whose
/// 504 has no Retry-After.
pub(crate) const WAITS_MAX: Duration = Duration::from_secs(50);

/// Time without a write after which a waiting request takes the write permit of a slow client. A frame of 64 KiB in
/// this time is 256 KB/s, and only stuck clients read more slowly.
const OVERDUE: Duration = Duration::from_millis(250);

/// Reason for which a long answer gets no write permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTurn {
    /// Too many requests wait.
    #[error("{WAITING_MAX} lists are waiting for their turn already")]
    Crowded,
    /// The wait exceeded the time limit.
    #[error("the list had no turn within {} s, because of the lists that others asked for", WAITS_MAX.as_secs())]
    TimedOut,
}

/// Metrics of write permits.
#[derive(Clone, Debug, Default)]
pub struct TurnMetrics {
    /// Number of long answers being written.
    pub active: Gauge,
    /// Number of waiting answers.
    pub waiting: Gauge,
    /// Number of refused answers.
    pub refused: Counter,
}

/// Permits to write long answers. One value for each process and length.
#[derive(Debug)]
pub struct Turns {
    at_once: usize,
    metrics: TurnMetrics,
    state: Mutex<TurnQueue>,
}

#[derive(Debug, Default)]
struct TurnQueue {
    next: u64,
    /// Active write permits with the time of their last use.
    active: HashMap<u64, Instant>,
    lines: HolderQueues<oneshot::Sender<WriteTurn>>,
}

/// Permit to write a long answer. Released on drop. Not a `Permit`, because a waiting request may take it from a slow
/// client.
#[derive(Debug)]
pub struct WriteTurn {
    id: u64,
    turns: Arc<Turns>,
}

impl Turns {
    /// Creates a limit of `at_once` write permits.
    pub fn new(at_once: usize, metrics: TurnMetrics) -> Arc<Self> {
        Arc::new(Self { at_once: at_once.max(1), metrics, state: Mutex::default() })
    }

    /// Returns the number of active write permits, the limit, and the number of refused answers since the start.
    fn usage(&self) -> (usize, usize, u64) {
        (self.state.lock().active.len(), self.at_once, self.metrics.refused.get())
    }

    /// Waits for a write permit. Cancellation: dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`NoTurn`].
    pub async fn acquire(self: &Arc<Self>, holder: Holder) -> Result<WriteTurn, NoTurn> {
        let place = {
            let mut state = self.state.lock();
            if state.lines.waiting() == 0 && state.active.len() < self.at_once {
                return Ok(self.activate(&mut state));
            }
            if state.lines.waiting() >= WAITING_MAX {
                self.metrics.refused.inc();
                return Err(NoTurn::Crowded);
            }
            self.line_up(&mut state, holder)
        };
        let mut place = QueuedTurn { turns: self, turn: place, served: false };
        let deadline = Instant::now() + WAITS_MAX;
        loop {
            // Each waiting request checks for overdue write permits, so no separate task is needed.
            self.advance();
            let until = deadline.min(Instant::now() + OVERDUE);
            match tokio::time::timeout_at(until, &mut place.turn).await {
                Ok(Ok(turn)) => {
                    place.served = true;
                    return Ok(turn);
                }
                Err(_) if Instant::now() < deadline => {}
                // Unreachable: the queue never drops a waiting request.
                Ok(Err(_)) | Err(_) => {
                    self.metrics.refused.inc();
                    return Err(NoTurn::TimedOut);
                }
            }
        }
    }

    /// Makes a write permit. The caller has checked the limit.
    fn activate(self: &Arc<Self>, state: &mut TurnQueue) -> WriteTurn {
        state.next += 1;
        state.active.insert(state.next, Instant::now());
        self.metrics.active.inc();
        WriteTurn { id: state.next, turns: Arc::clone(self) }
    }

    fn line_up(&self, state: &mut TurnQueue, holder: Holder) -> oneshot::Receiver<WriteTurn> {
        let (give, place) = oneshot::channel();
        self.metrics.waiting.inc();
        state.lines.push(holder, give);
        place
    }

    /// Removes abandoned requests from the queues. Cost: linear in the number of waiting requests.
    fn forget_closed(&self, state: &mut TurnQueue) {
        let before = state.lines.waiting();
        state.lines.retain(|place| !place.is_closed());
        self.metrics.waiting.dec_by(i64::try_from(before - state.lines.waiting()).unwrap_or(0));
    }

    /// Gives free and overdue write permits to waiting requests.
    fn advance(self: &Arc<Self>) {
        // Write permits of abandoned requests drop after the lock is released, because their drop takes the lock.
        let mut untaken = Vec::new();
        let mut state = self.state.lock();
        while state.lines.waiting() > 0 {
            if state.active.len() >= self.at_once && !self.revoke(&mut state) {
                break;
            }
            let Some((_, give)) = state.lines.next(|_| true) else { break };
            self.metrics.waiting.dec();
            if give.is_closed() {
                continue;
            }
            let turn = self.activate(&mut state);
            if let Err(turn) = give.send(turn) {
                self.end(&mut state, turn.id);
                untaken.push(turn);
            }
        }
        drop(state);
    }

    /// Revokes the write permit with the oldest last use, if it is overdue.
    fn revoke(&self, state: &mut TurnQueue) -> bool {
        let oldest = state.active.iter().min_by_key(|(_, used)| **used);
        let Some((&id, _)) = oldest.filter(|(_, used)| used.elapsed() >= OVERDUE) else { return false };
        self.end(state, id)
    }

    fn end(&self, state: &mut TurnQueue, id: u64) -> bool {
        let was_active = state.active.remove(&id).is_some();
        if was_active {
            self.metrics.active.dec();
        }
        was_active
    }
}

/// Entry in the queue. Dropping the entry leaves the queue.
struct QueuedTurn<'a> {
    turns: &'a Turns,
    turn: oneshot::Receiver<WriteTurn>,
    served: bool,
}

impl Drop for QueuedTurn<'_> {
    fn drop(&mut self) {
        if self.served {
            return;
        }
        self.turn.close();
        self.turns.forget_closed(&mut self.turns.state.lock());
    }
}

impl WriteTurn {
    /// Records a use of the write permit. Returns false if a waiting request has taken the permit from this slow
    /// client.
    pub fn is_live(&self) -> bool {
        match self.turns.state.lock().active.get_mut(&self.id) {
            Some(used) => {
                *used = Instant::now();
                true
            }
            None => false,
        }
    }
}

impl WriteTurn {
    /// Gives the write permit to the next waiting request.
    fn give_back(&self) {
        let waits = {
            let mut state = self.turns.state.lock();
            self.turns.end(&mut state, self.id);
            state.lines.waiting() > 0
        };
        if waits {
            self.turns.advance();
        }
    }
}

impl Drop for WriteTurn {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn peer(port: u16) -> Holder {
        Holder::Connection(([127, 0, 0, 1], port).into())
    }

    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn long_answers_are_written_round_robin_by_connection() {
        let turns = Turns::new(1, TurnMetrics::default());
        let first = turns.acquire(peer(1)).await.unwrap();
        let (tell, mut order) = tokio::sync::mpsc::unbounded_channel();
        // The first connection requests three write permits, then a second connection requests one.
        for (at, port) in [1, 1, 1, 2].into_iter().enumerate() {
            let (turns, tell) = (Arc::clone(&turns), tell.clone());
            tokio::spawn(async move {
                let turn = turns.acquire(peer(port)).await.unwrap();
                tell.send((at, turn)).unwrap();
            });
            settle().await;
        }
        assert!(order.recv().now_or_never().is_none());
        assert_eq!((turns.metrics.active.get(), turns.metrics.waiting.get()), (1, 4));
        drop(first);
        let mut got = Vec::new();
        for _ in 0..4 {
            let (at, turn) = order.recv().await.unwrap();
            got.push(at);
            drop(turn);
        }
        assert_eq!(got, [0, 3, 1, 2], "the second connection waits for one answer of the first, not for three");
        assert_eq!((turns.metrics.active.get(), turns.metrics.waiting.get()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_client_loses_its_write_permit_to_a_waiting_request() {
        let turns = Turns::new(1, TurnMetrics::default());
        let stuck = turns.acquire(peer(1)).await.unwrap();
        tokio::time::advance(10 * OVERDUE).await;
        assert!(stuck.is_live(), "nobody waited for it");
        let start = Instant::now();
        let second = turns.acquire(peer(2)).await.unwrap();
        assert!(start.elapsed() <= 2 * OVERDUE);
        assert!(!stuck.is_live() && second.is_live());
        drop(stuck);
        assert!(second.is_live(), "a lost turn is not given back twice");
        assert_eq!(turns.metrics.active.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_request_leaves_the_queue_for_write_permits() {
        let turns = Turns::new(1, TurnMetrics::default());
        let first = turns.acquire(peer(1)).await.unwrap();
        let mut gone = Box::pin(turns.acquire(peer(2)));
        assert!(gone.as_mut().now_or_never().is_none());
        let mut stays = Box::pin(turns.acquire(peer(3)));
        assert!(stays.as_mut().now_or_never().is_none());
        drop(gone);
        drop(first);
        stays.await.unwrap();
        assert_eq!((turns.metrics.active.get(), turns.metrics.waiting.get()), (0, 0));
        assert!(turns.acquire(Holder::Unknown).now_or_never().unwrap().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_a_write_permit_has_a_time_limit() {
        let turns = Turns::new(1, TurnMetrics::default());
        let busy = turns.acquire(peer(1)).await.unwrap();
        let writes = async {
            loop {
                assert!(busy.is_live());
                tokio::time::sleep(OVERDUE / 2).await;
            }
        };
        let refused = tokio::select! {
            turn = turns.acquire(peer(2)) => turn.map(drop),
            () = writes => Ok(()),
        };
        assert_eq!(refused, Err(NoTurn::TimedOut));
        assert_eq!(turns.metrics.refused.get(), 1);
        drop(busy);
        assert!(turns.acquire(peer(2)).now_or_never().unwrap().is_ok(), "the place of the refused one is skipped");
    }
}
