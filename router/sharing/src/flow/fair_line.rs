//! A few at once, clients in turn: what somebody behind us does for all of them.
//!
//! A client that asks for much has its own line, and nobody stands behind it there. Of the places that there are it may
//! hold as many as it leaves to others, as in [`fair_share`](crate::flow::fair_share): so one that comes later finds a
//! place that is free at once, though those which are taken are held for long.
//! A client that holds none may have the last one. What is to be done first comes before all else that waits, up to
//! three quarters of the places: it may have more only where nothing else waits that may have one, so that the other
//! goes on, however many clients have something to be done first. What a client holds of the one is nothing of what it
//! may hold of the other.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tributary_apimachinery::Permit;
use tributary_limiters::{FairShare, ShareHolder, Shares};

use crate::flow::holder::Holder;
use crate::flow::long_answers::HolderQueues;

/// How many wait before those are looked for that have gone away.
const SWEPT_FROM: usize = 64;

/// Which of those who wait come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Turn {
    /// Before all others, while those of its kind hold less than three quarters of the places.
    First,
    /// After those.
    #[default]
    Usual,
}

/// The holder of a place: a client, whose questions of the two turns count apart.
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

/// Places, and who waits for one.
#[derive(Debug)]
pub struct FairLine {
    share: FairShare,
    state: Mutex<FairLineQueue>,
}

#[derive(Debug)]
struct FairLineQueue {
    taken: Shares<PlaceHolder>,
    /// How many of these are held by those who came first.
    taken_first: usize,
    /// Those who come before the others who wait.
    first: HolderQueues<oneshot::Sender<Permit>>,
    waiting: HolderQueues<oneshot::Sender<Permit>>,
    /// How many wait when those are looked for next that have gone away.
    sweep_at: usize,
}

impl FairLine {
    /// So many places, at least 1: of several a client alone has half, and a single one goes round.
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

    /// Waits for a place. Cancel: dropping the future gives it up.
    pub async fn acquire(self: &Arc<Self>, holder: Holder) -> Option<Permit> {
        self.take_in(Turn::Usual, holder).await
    }

    /// The same, of those who come first or of the others.
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
        // Nobody's is dropped before it was given a place.
        place.await.ok()
    }

    /// Gives free places to those who wait.
    fn advance(self: &Arc<Self>) {
        // Places that nobody took any more are dropped after the lock: dropping one takes it.
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
    /// The next who waits and may have one of the places that are free.
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

    /// What a client has that asks for so many: the places that it was given, and the others that it waits for.
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
    fn whoever_comes_finds_a_place_though_another_asks_for_all_and_gives_none_back() {
        let line = FairLine::new(32);
        let (flood, _waiting) = ask(&line, client(1), 1000);
        assert_eq!(flood.len(), 16, "as many as it leaves");
        let others: Vec<_> = (2..10).map(|port| ask(&line, client(port), 1)).collect();
        assert!(others.iter().all(|(given, _)| given.len() == 1));
        let (second, _waiting) = ask(&line, client(10), 1000);
        assert_eq!(second.len(), 4, "half of the eight that are left");
        // The last ones are for those who have none.
        let last: Vec<_> = (11..15).map(|port| ask(&line, client(port), 1)).collect();
        assert!(last.iter().all(|(given, _)| given.len() == 1));
        assert_eq!(ask(&line, client(15), 1).0.len(), 0);
    }

    #[test]
    fn clients_are_served_in_turn() {
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
    fn what_comes_first_does_not_wait_for_what_its_own_client_asked_before() {
        let line = FairLine::new(8);
        let (mut flood, mut waiting) = ask(&line, client(1), 1000);
        // Another has what is left but one, which nobody may have who has any.
        let (_others, _) = ask(&line, client(2), 2);
        let (_last, _) = ask(&line, client(3), 1);
        assert_eq!(line.state.lock().taken.held(), 7);
        let mut first: Vec<Asked<'_>> =
            (0..2).map(|_| -> Asked<'_> { Box::pin(line.take_in(Turn::First, client(1))) }).collect();
        let given: Vec<_> = first.iter_mut().filter_map(|asked| asked.as_mut().now_or_never()).collect();
        assert_eq!(given.len(), 1, "the one place that is free, since it holds none of these");
        // What is given back is theirs as soon as they may have it, and none of those who wait for longer.
        drop((flood.pop(), flood.pop(), flood.pop()));
        let second = first[1].as_mut().now_or_never().flatten();
        assert!(second.is_some());
        assert!(waiting.iter_mut().all(|asked| asked.as_mut().now_or_never().is_none()));
    }

    #[test]
    fn what_comes_first_leaves_something_to_the_others_however_many_want_it() {
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
        // Who comes first has the most all the same.
        assert!(line.state.lock().taken_first > 25);
    }

    #[test]
    fn who_goes_away_leaves_nothing() {
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
