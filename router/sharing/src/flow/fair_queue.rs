//! A concurrency limit with a fair queue, for costly work that only few requests may cause at a time.
//!
//! Each client has its own queue, so a client with many requests delays no other client. Clients share the slots as a
//! [`FairShare`] without a reserve, so only a client without a slot may take the last slot. Thus a new client usually
//! finds a free slot at once, even if other clients use their slots for long. Requests of [`Priority::High`] precede
//! all other requests, but take at most three quarters of the slots while other requests wait. A client has a separate
//! share of slots for each of the two priorities.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tributary_apimachinery::Permit;
use tributary_limiters::{FairShare, GroupedShareKey, Shares};

use crate::flow::long_answers::RoundRobinQueues;
use crate::flow::share_key::ShareKey;

/// Number of waiting requests at which the queue first removes abandoned requests.
const SWEPT_FROM: usize = 64;

/// Priority of a waiting request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Requests that precede normal requests. While normal requests wait, requests of high priority take at most three
    /// quarters of the slots.
    High,
    /// Requests that follow requests of [`Priority::High`].
    #[default]
    Normal,
}

/// Holder of a slot: a client with one of the two priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct QueueClient {
    priority: Priority,
    share_key: ShareKey,
}

impl GroupedShareKey for QueueClient {
    fn group(self) -> Option<u64> {
        None
    }
}

/// Slots, and queues of requests that wait for a slot.
#[derive(Debug)]
pub struct FairQueue {
    share: FairShare,
    state: Mutex<FairQueueState>,
}

#[derive(Debug)]
struct FairQueueState {
    used: Shares<QueueClient>,
    /// Number of slots that requests of [`Priority::High`] use.
    used_high: usize,
    /// Queues of the requests of [`Priority::High`].
    first: RoundRobinQueues<oneshot::Sender<Permit>>,
    waiting: RoundRobinQueues<oneshot::Sender<Permit>>,
    /// Number of waiting requests at which the queue next removes abandoned requests.
    sweep_at: usize,
}

impl FairQueue {
    /// Creates a queue with `at_once` slots, at least 1. A single client can take half of the slots.
    pub fn new(at_once: usize) -> Arc<Self> {
        let state = FairQueueState {
            used: Shares::default(),
            used_high: 0,
            first: RoundRobinQueues::default(),
            waiting: RoundRobinQueues::default(),
            sweep_at: SWEPT_FROM,
        };
        Arc::new(Self { share: FairShare::without_reserve(at_once.max(1)), state: Mutex::new(state) })
    }

    /// Waits for a slot with [`Priority::Normal`]. Cancellation is safe: a dropped future leaves the queue.
    pub async fn acquire(self: &Arc<Self>, share_key: ShareKey) -> Option<Permit> {
        self.acquire_with_priority(Priority::Normal, share_key).await
    }

    /// Waits for a slot with this priority. Cancellation is safe: a dropped future leaves the queue.
    pub async fn acquire_with_priority(self: &Arc<Self>, priority: Priority, share_key: ShareKey) -> Option<Permit> {
        let (give, place) = oneshot::channel();
        {
            let mut state = self.state.lock();
            if state.all_waiting() >= state.sweep_at {
                state.first.retain(|waiting| !waiting.is_closed());
                state.waiting.retain(|waiting| !waiting.is_closed());
                state.sweep_at = (2 * state.all_waiting()).max(SWEPT_FROM);
            }
            match priority {
                Priority::High => state.first.push(share_key, give),
                Priority::Normal => state.waiting.push(share_key, give),
            }
        }
        self.advance();
        // The queue keeps each sender until its receiver is dropped, so the wait ends with a permit.
        place.await.ok()
    }

    /// Assigns free slots to waiting requests.
    fn advance(self: &Arc<Self>) {
        // Permits of abandoned requests are dropped only after the lock is released, because their drop takes the lock.
        let mut untaken = Vec::new();
        let mut state = self.state.lock();
        while let Some((whose, give)) = state.next(self.share) {
            if give.is_closed() {
                continue;
            }
            state.used.add(whose, 1);
            state.used_high += usize::from(whose.priority == Priority::High);
            let line = Arc::clone(self);
            untaken.extend(give.send(Permit::new(move || line.release(whose))).err());
        }
        drop(state);
    }

    fn release(self: &Arc<Self>, whose: QueueClient) {
        self.state.lock().release(whose);
        self.advance();
    }
}

impl FairQueueState {
    /// Returns the next waiting request that may take a free slot.
    fn next(&mut self, share: FairShare) -> Option<(QueueClient, oneshot::Sender<Permit>)> {
        let Self { used, used_high, first, waiting, .. } = self;
        let may = |priority, share_key| used.check(share, QueueClient { priority, share_key }, 1).is_ok();
        let is_ahead = *used_high < (share.max() * 3 / 4).max(1);
        let turns = if is_ahead { [Priority::High, Priority::Normal] } else { [Priority::Normal, Priority::High] };
        turns.into_iter().find_map(|priority| {
            let queues = match priority {
                Priority::High => &mut *first,
                Priority::Normal => &mut *waiting,
            };
            let (share_key, give) = queues.next(|share_key| may(priority, share_key))?;
            Some((QueueClient { priority, share_key }, give))
        })
    }

    fn all_waiting(&self) -> usize {
        self.first.waiting() + self.waiting.waiting()
    }

    fn release(&mut self, whose: QueueClient) {
        self.used.remove(whose, 1);
        self.used_high -= usize::from(whose.priority == Priority::High);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::pin::Pin;

    use futures::FutureExt;

    use super::*;
    use crate::flow::share_key::ShareKey;

    fn client(port: u16) -> ShareKey {
        ShareKey::Connection(([127, 0, 0, 1], port).into())
    }

    type PendingPermit<'a> = Pin<Box<dyn Future<Output = Option<Permit>> + 'a>>;

    /// Requests `count` slots. Returns the permits, and the futures that still wait.
    fn ask(line: &Arc<FairQueue>, share_key: ShareKey, count: usize) -> (Vec<Permit>, Vec<PendingPermit<'_>>) {
        let (mut granted, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let mut pending: PendingPermit<'_> = Box::pin(line.acquire(share_key));
            match pending.as_mut().now_or_never() {
                Some(place) => granted.extend(place),
                None => waiting.push(pending),
            }
        }
        (granted, waiting)
    }

    #[test]
    fn new_client_gets_a_slot_despite_a_client_that_wants_all() {
        let line = FairQueue::new(32);
        let (flood, _waiting) = ask(&line, client(1), 1000);
        assert_eq!(flood.len(), 16, "as many as it leaves");
        let others: Vec<_> = (2..10).map(|port| ask(&line, client(port), 1)).collect();
        assert!(others.iter().all(|(granted, _)| granted.len() == 1));
        let (second, _waiting) = ask(&line, client(10), 1000);
        assert_eq!(second.len(), 4, "half of the eight that are left");
        // Only clients without slots may take the last slots.
        let last: Vec<_> = (11..15).map(|port| ask(&line, client(port), 1)).collect();
        assert!(last.iter().all(|(granted, _)| granted.len() == 1));
        assert_eq!(ask(&line, client(15), 1).0.len(), 0);
    }

    #[test]
    fn slots_of_the_fair_line_go_to_clients_round_robin() {
        let line = FairQueue::new(2);
        let (first, _) = ask(&line, client(1), 1);
        let (second, _) = ask(&line, client(2), 1);
        let (_, mut flood) = ask(&line, client(1), 3);
        let (_, mut other) = ask(&line, client(3), 1);
        drop(second);
        assert!(flood.iter_mut().all(|pending| pending.as_mut().now_or_never().is_none()), "it has one");
        let other = other[0].as_mut().now_or_never().expect("it has none");
        drop((first, other));
        let served: Vec<_> = flood.iter_mut().filter_map(|pending| pending.as_mut().now_or_never()).collect();
        assert_eq!(served.len(), 1, "as many as it leaves, or the one that everybody may have");
    }

    #[test]
    fn priority_request_precedes_older_requests_of_its_client() {
        let line = FairQueue::new(8);
        let (mut flood, mut waiting) = ask(&line, client(1), 1000);
        // A second client takes all slots except the last, which only a client without slots may take.
        let (_others, _) = ask(&line, client(2), 2);
        let (_last, _) = ask(&line, client(3), 1);
        assert_eq!(line.state.lock().used.total(), 7);
        let mut first: Vec<PendingPermit<'_>> = (0..2)
            .map(|_| -> PendingPermit<'_> { Box::pin(line.acquire_with_priority(Priority::High, client(1))) })
            .collect();
        let granted: Vec<_> = first.iter_mut().filter_map(|pending| pending.as_mut().now_or_never()).collect();
        assert_eq!(granted.len(), 1, "the one place that is free, since it holds none of these");
        // Requests of [`Priority::High`] take released slots before older requests.
        drop((flood.pop(), flood.pop(), flood.pop()));
        let second = first[1].as_mut().now_or_never().flatten();
        assert!(second.is_some());
        assert!(waiting.iter_mut().all(|pending| pending.as_mut().now_or_never().is_none()));
    }

    #[test]
    fn priority_requests_leave_slots_to_usual_requests() {
        let line = FairQueue::new(50);
        let first =
            |number: u16| -> PendingPermit<'_> { Box::pin(line.acquire_with_priority(Priority::High, client(number))) };
        let mut pending: Vec<_> = (1..=60).map(|number| (number, first(number))).collect();
        let mut granted = VecDeque::new();
        let gather = |pending: &mut Vec<(u16, PendingPermit<'_>)>, granted: &mut VecDeque<(u16, Permit)>| {
            pending.retain_mut(|(number, place)| match place.as_mut().now_or_never().flatten() {
                Some(place) => {
                    granted.push_back((*number, place));
                    false
                }
                None => true,
            });
        };
        gather(&mut pending, &mut granted);
        assert_eq!(granted.len(), 50, "all, while nothing else waits");
        let mut usual = Vec::new();
        for _ in 0..3 {
            usual.push(ask(&line, client(100 + u16::try_from(usual.len()).unwrap()), 1).1.remove(0));
        }
        for returns in 1.. {
            assert!(returns <= 200, "{} others still wait", usual.len());
            let (number, place) = granted.pop_front().expect("somebody holds a place");
            pending.push((number, first(number)));
            drop(place);
            gather(&mut pending, &mut granted);
            usual.retain_mut(|place| place.as_mut().now_or_never().is_none());
            if usual.is_empty() {
                break;
            }
        }
        // Requests of [`Priority::High`] still have most of the slots.
        assert!(line.state.lock().used_high > 25);
    }

    #[test]
    fn cancelled_requests_leave_the_queue_and_take_no_slots() {
        let line = FairQueue::new(2);
        let (granted, waiting) = ask(&line, client(1), 100);
        assert_eq!((granted.len(), waiting.len()), (1, 99));
        drop(waiting);
        let (second, waiting) = ask(&line, client(2), 1);
        assert_eq!((second.len(), waiting.len()), (1, 0));
        drop((granted, second));
        assert_eq!(ask(&line, client(1), 1).0.len(), 1);
        let state = line.state.lock();
        assert!(state.used.is_empty() && state.used_high == 0 && state.waiting.waiting() == 0);
    }
}
