//! A concurrency limit with a fair queue, for costly work that only few requests may cause at a time.
//!
//! Each client has its own queue, so a client with many requests delays no other client. Clients share the slots as a
//! [`FairShare`] without a reserve. A new client finds a free slot at once, even if other slots are in use for long,
//! and only a client without a slot may take the last one. Requests of [`Turn::First`] precede all other requests.
//! While other requests wait, they take at most three quarters of the slots. The slots of a client's two priorities are
//! counted separately.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tributary_apimachinery::Permit;
use tributary_limiters::{FairShare, ShareHolder, Shares};

use crate::flow::holder::Holder;
use crate::flow::long_answers::HolderQueues;

/// Number of waiting requests at which the queue first removes abandoned requests.
const SWEPT_FROM: usize = 64;

/// Priority of a waiting request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Turn {
    /// Requests that precede usual requests. While usual requests wait, they take at most three quarters of the slots.
    First,
    /// Requests that follow requests of [`Turn::First`].
    #[default]
    Usual,
}

/// Holder of a slot: a client with one of the two priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PlaceHolder {
    turn: Turn,
    holder: Holder,
}

impl ShareHolder for PlaceHolder {
    fn group(self) -> Option<u64> {
        None
    }
}

/// Slots, and queues of requests that wait for a slot.
#[derive(Debug)]
pub struct FairLine {
    share: FairShare,
    state: Mutex<FairLineQueue>,
}

#[derive(Debug)]
struct FairLineQueue {
    taken: Shares<PlaceHolder>,
    /// Number of slots that requests of [`Turn::First`] use.
    taken_first: usize,
    /// Queues of the requests of [`Turn::First`].
    first: HolderQueues<oneshot::Sender<Permit>>,
    waiting: HolderQueues<oneshot::Sender<Permit>>,
    /// Number of waiting requests at the next removal of abandoned requests.
    sweep_at: usize,
}

impl FairLine {
    /// Creates a queue with `at_once` slots, at least 1. A single client can take half of the slots.
    pub fn new(at_once: usize) -> Arc<Self> {
        let state = FairLineQueue {
            taken: Shares::default(),
            taken_first: 0,
            first: HolderQueues::default(),
            waiting: HolderQueues::default(),
            sweep_at: SWEPT_FROM,
        };
        Arc::new(Self { share: FairShare::without_reserve(at_once.max(1)), state: Mutex::new(state) })
    }

    /// Waits for a slot with [`Turn::Usual`]. Cancellation: dropping the future leaves the queue.
    pub async fn acquire(self: &Arc<Self>, holder: Holder) -> Option<Permit> {
        self.take_in(Turn::Usual, holder).await
    }

    /// Waits for a slot with the given priority. Cancellation: dropping the future leaves the queue.
    pub async fn take_in(self: &Arc<Self>, turn: Turn, holder: Holder) -> Option<Permit> {
        let (give, place) = oneshot::channel();
        {
            let mut state = self.state.lock();
            if state.all_waiting() >= state.sweep_at {
                state.first.retain(|waiting| !waiting.is_closed());
                state.waiting.retain(|waiting| !waiting.is_closed());
                state.sweep_at = (2 * state.all_waiting()).max(SWEPT_FROM);
            }
            match turn {
                Turn::First => state.first.push(holder, give),
                Turn::Usual => state.waiting.push(holder, give),
            }
        }
        self.advance();
        // The queue drops no sender before its receiver is dropped.
        place.await.ok()
    }

    /// Assigns free slots to waiting requests.
    fn advance(self: &Arc<Self>) {
        // Permits of abandoned requests drop after the lock is released, because their drop takes the lock.
        let mut untaken = Vec::new();
        let mut state = self.state.lock();
        while let Some((whose, give)) = state.next(self.share) {
            if give.is_closed() {
                continue;
            }
            state.taken.add(whose, 1);
            state.taken_first += usize::from(whose.turn == Turn::First);
            let line = Arc::clone(self);
            untaken.extend(give.send(Permit::new(move || line.give_back(whose))).err());
        }
        drop(state);
    }

    fn give_back(self: &Arc<Self>, whose: PlaceHolder) {
        self.state.lock().give_back(whose);
        self.advance();
    }
}

impl FairLineQueue {
    /// Returns the next waiting request that may take a free slot.
    fn next(&mut self, share: FairShare) -> Option<(PlaceHolder, oneshot::Sender<Permit>)> {
        let Self { taken, taken_first, first, waiting, .. } = self;
        let may = |turn, holder| taken.check(share, PlaceHolder { turn, holder }, 1).is_ok();
        let is_ahead = *taken_first < (share.max() * 3 / 4).max(1);
        let turns = if is_ahead { [Turn::First, Turn::Usual] } else { [Turn::Usual, Turn::First] };
        turns.into_iter().find_map(|turn| {
            let queues = match turn {
                Turn::First => &mut *first,
                Turn::Usual => &mut *waiting,
            };
            let (holder, give) = queues.next(|holder| may(turn, holder))?;
            Some((PlaceHolder { turn, holder }, give))
        })
    }

    fn all_waiting(&self) -> usize {
        self.first.waiting() + self.waiting.waiting()
    }

    fn give_back(&mut self, whose: PlaceHolder) {
        self.taken.remove(whose, 1);
        self.taken_first -= usize::from(whose.turn == Turn::First);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::pin::Pin;

    use futures::FutureExt;

    use super::*;
    use crate::flow::holder::Holder;

    fn client(port: u16) -> Holder {
        Holder::Connection(([127, 0, 0, 1], port).into())
    }

    type Asked<'a> = Pin<Box<dyn Future<Output = Option<Permit>> + 'a>>;

    /// Requests `count` slots. Returns the permits, and the futures that still wait.
    fn ask(line: &Arc<FairLine>, holder: Holder, count: usize) -> (Vec<Permit>, Vec<Asked<'_>>) {
        let (mut given, mut waiting) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let mut asked: Asked<'_> = Box::pin(line.acquire(holder));
            match asked.as_mut().now_or_never() {
                Some(place) => given.extend(place),
                None => waiting.push(asked),
            }
        }
        (given, waiting)
    }

    #[test]
    fn new_client_gets_a_slot_despite_a_client_that_wants_all() {
        let line = FairLine::new(32);
        let (flood, _waiting) = ask(&line, client(1), 1000);
        assert_eq!(flood.len(), 16, "as many as it leaves");
        let others: Vec<_> = (2..10).map(|port| ask(&line, client(port), 1)).collect();
        assert!(others.iter().all(|(given, _)| given.len() == 1));
        let (second, _waiting) = ask(&line, client(10), 1000);
        assert_eq!(second.len(), 4, "half of the eight that are left");
        // Only clients without slots may take the last slots.
        let last: Vec<_> = (11..15).map(|port| ask(&line, client(port), 1)).collect();
        assert!(last.iter().all(|(given, _)| given.len() == 1));
        assert_eq!(ask(&line, client(15), 1).0.len(), 0);
    }

    #[test]
    fn slots_of_the_fair_line_go_to_clients_round_robin() {
        let line = FairLine::new(2);
        let (first, _) = ask(&line, client(1), 1);
        let (second, _) = ask(&line, client(2), 1);
        let (_, mut flood) = ask(&line, client(1), 3);
        let (_, mut other) = ask(&line, client(3), 1);
        drop(second);
        assert!(flood.iter_mut().all(|asked| asked.as_mut().now_or_never().is_none()), "it has one");
        let other = other[0].as_mut().now_or_never().expect("it has none");
        drop((first, other));
        let served: Vec<_> = flood.iter_mut().filter_map(|asked| asked.as_mut().now_or_never()).collect();
        assert_eq!(served.len(), 1, "as many as it leaves, or the one that everybody may have");
    }

    #[test]
    fn priority_request_precedes_older_requests_of_its_client() {
        let line = FairLine::new(8);
        let (mut flood, mut waiting) = ask(&line, client(1), 1000);
        // A second client takes all slots except the last, which only a client without slots may take.
        let (_others, _) = ask(&line, client(2), 2);
        let (_last, _) = ask(&line, client(3), 1);
        assert_eq!(line.state.lock().taken.total(), 7);
        let mut first: Vec<Asked<'_>> =
            (0..2).map(|_| -> Asked<'_> { Box::pin(line.take_in(Turn::First, client(1))) }).collect();
        let given: Vec<_> = first.iter_mut().filter_map(|asked| asked.as_mut().now_or_never()).collect();
        assert_eq!(given.len(), 1, "the one place that is free, since it holds none of these");
        // Requests of [`Turn::First`] take released slots before older requests.
        drop((flood.pop(), flood.pop(), flood.pop()));
        let second = first[1].as_mut().now_or_never().flatten();
        assert!(second.is_some());
        assert!(waiting.iter_mut().all(|asked| asked.as_mut().now_or_never().is_none()));
    }

    #[test]
    fn priority_requests_leave_slots_to_usual_requests() {
        let line = FairLine::new(50);
        let first = |number: u16| -> Asked<'_> { Box::pin(line.take_in(Turn::First, client(number))) };
        let mut asked: Vec<_> = (1..=60).map(|number| (number, first(number))).collect();
        let mut given = VecDeque::new();
        let gather = |asked: &mut Vec<(u16, Asked<'_>)>, given: &mut VecDeque<(u16, Permit)>| {
            asked.retain_mut(|(number, place)| match place.as_mut().now_or_never().flatten() {
                Some(place) => {
                    given.push_back((*number, place));
                    false
                }
                None => true,
            });
        };
        gather(&mut asked, &mut given);
        assert_eq!(given.len(), 50, "all, while nothing else waits");
        let mut usual = Vec::new();
        for _ in 0..3 {
            usual.push(ask(&line, client(100 + u16::try_from(usual.len()).unwrap()), 1).1.remove(0));
        }
        for returns in 1.. {
            assert!(returns <= 200, "{} others still wait", usual.len());
            let (number, place) = given.pop_front().expect("somebody holds a place");
            asked.push((number, first(number)));
            drop(place);
            gather(&mut asked, &mut given);
            usual.retain_mut(|place| place.as_mut().now_or_never().is_none());
            if usual.is_empty() {
                break;
            }
        }
        // Requests of [`Turn::First`] still have most slots.
        assert!(line.state.lock().taken_first > 25);
    }

    #[test]
    fn cancelled_requests_leave_the_queue_and_take_no_slots() {
        let line = FairLine::new(2);
        let (given, waiting) = ask(&line, client(1), 100);
        assert_eq!((given.len(), waiting.len()), (1, 99));
        drop(waiting);
        let (second, waiting) = ask(&line, client(2), 1);
        assert_eq!((second.len(), waiting.len()), (1, 0));
        drop((given, second));
        assert_eq!(ask(&line, client(1), 1).0.len(), 1);
        let state = line.state.lock();
        assert!(state.taken.is_empty() && state.taken_first == 0 && state.waiting.waiting() == 0);
    }
}
