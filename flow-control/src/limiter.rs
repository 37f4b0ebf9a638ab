//! One schema: who is let in, who waits, who is refused. Time is an argument; nothing here waits.
//!
//! ```text
//! admit ──▶ admitted                                     room, and nobody waits
//!      ├──▶ waits ──▶ granted, by what is given back,
//!      │      │       by time, or by another limit
//!      │      └─────▶ cancelled                          its time is over, or it is gone
//!      └──▶ refused                                      no room, and no queue
//! ```
//!
//! Whoever changes something gives turns to those that it makes room for, so that nobody waits for whom there is room.
//! Only time passes unseen: [`Limiter::due`] says when to come back for an account.

use tokio::time::Instant;
use tributary_limiters::{FairShare, Shares};

use crate::accounts::{AccountId, Accounts, KeyAccount};
use crate::allowance::Allowance;
use crate::attributes::{Flow, Key};
use crate::fair_queues::FairQueues;
use crate::queue::Waiter;
use crate::schema::Queueing;

/// A schema's state.
#[derive(Debug)]
pub(crate) struct Limiter<A: Allowance, W> {
    limit: A::Limit,
    queueing: Option<Queueing>,
    accounts: Accounts<A, W>,
    /// The requests that wait, of all keys together: each key has queues of its own, and with enough keys (resources,
    /// for instance) one user could take all places.
    waiting: Shares<Flow>,
    /// The number of the last ticket, and of the last queues.
    last: u64,
}

/// What a request holds that was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimiterPermit {
    pub(crate) account: AccountId,
    pub(crate) seats: u32,
    /// When it was taken.
    since: Instant,
    /// What it came from, if it waited.
    turn: Option<Turn>,
}

/// The queue that a request had its turn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    generation: u64,
    queue: usize,
}

/// By what one that waits is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) account: AccountId,
    /// Of the queues in which it waits.
    pub(crate) generation: u64,
    queue: usize,
    number: u64,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimiterDecision {
    /// It is let in.
    Admitted(LimiterPermit),
    /// It waits. `is_first`: nobody did so in this account, so that nobody comes back for it yet.
    Waits {
        /// By what it is found.
        ticket: Ticket,
        /// Whether it is the first that waits there.
        is_first: bool,
    },
    /// There is nothing.
    Closed,
    /// There is no room, and waiting is not provided for.
    Exceeded,
    /// There is no room, and none to wait in, for whoever asks.
    QueueFull,
}

/// Turns that are given: whom to tell, and what they hold from now on.
pub(crate) type Granted<W> = Vec<(W, LimiterPermit)>;

impl<A: Allowance, W> Limiter<A, W> {
    /// A schema of which nothing is used, for so many keys at most.
    pub(crate) fn new(limit: A::Limit, queueing: Option<Queueing>, keys_max: usize) -> Self {
        Self { limit, queueing, accounts: Accounts::new(keys_max), waiting: Shares::default(), last: 0 }
    }

    /// What is in force.
    pub(crate) fn limit(&self) -> A::Limit {
        self.limit
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.held()
    }

    /// How many keys have used something.
    pub(crate) fn keys(&self) -> usize {
        self.accounts.keys()
    }

    /// Whether nothing is used, and nobody waits. Cost: a look at each account.
    pub(crate) fn is_at_rest(&mut self, now: Instant) -> bool {
        self.accounts.all_mut().all(|(_, account)| account.is_at_rest(now))
    }

    /// Decides about a request. `waker` is called if it waits. Cost: where nobody waits, two looks into a map.
    pub(crate) fn admit(
        &mut self,
        (key, flow): (Key, Flow),
        width: u32,
        now: Instant,
        waker: impl FnOnce() -> W,
        granted: &mut Granted<W>,
    ) -> LimiterDecision {
        let Some(seats) = A::seats(self.limit, width) else { return LimiterDecision::Closed };
        let id = match self.try_admit(key, seats, now, granted) {
            Ok(place) => return LimiterDecision::Admitted(place),
            Err(id) => id,
        };
        let (Some(queueing), Some(account)) = (self.queueing, self.accounts.get_mut(id)) else {
            return LimiterDecision::Exceeded;
        };
        if self.waiting.check(FairShare::without_reserve(queueing.waiting_max()), flow, 1).is_err() {
            return LimiterDecision::QueueFull;
        }
        self.last += 1;
        let number = self.last;
        let is_first = account.queues.is_none();
        let queues = account.queues.get_or_insert_with(|| Box::new(FairQueues::new(number, queueing.deck, now)));
        let queue = queues.choose(flow);
        if queues.length_for(queue, flow) >= usize::from(queueing.length.get()) {
            return LimiterDecision::QueueFull;
        }
        queues.push(queue, Waiter { ticket: number, flow, seats, waker: waker() }, now);
        self.waiting.add(flow, 1);
        LimiterDecision::Waits {
            ticket: Ticket { account: id, generation: queues.generation, queue, number },
            is_first,
        }
    }

    /// Takes so much of a key's account, if it is there and nobody waits for it.
    ///
    /// # Errors
    /// The account that has not so much.
    fn try_admit(
        &mut self,
        key: Key,
        seats: u32,
        now: Instant,
        granted: &mut Granted<W>,
    ) -> Result<LimiterPermit, AccountId> {
        let id = self.accounts.open(key, now);
        // What time has brought is theirs who wait.
        self.advance(id, now, granted);
        let account = self.accounts.get_mut(id).filter(|account| account.queues.is_none());
        match account.is_some_and(|account| account.allowance.try_spend(self.limit, seats, now)) {
            true => Ok(LimiterPermit { account: id, seats, since: now, turn: None }),
            false => Err(id),
        }
    }

    /// Takes back what a request held that is over, or what was not used of a turn.
    pub(crate) fn give_back(&mut self, place: LimiterPermit, now: Instant, granted: &mut Granted<W>) {
        let LimiterPermit { account: id, seats, since, turn } = place;
        let Some(account) = self.accounts.get_mut(id) else { return };
        account.allowance.give_back(self.limit, seats, since, now);
        if let (Some(turn), Some(queues)) = (turn, &mut account.queues)
            && A::HELD
            && queues.generation == turn.generation
        {
            queues.end(turn.queue, seats, since, now);
        }
        self.advance(id, now, granted);
        self.accounts.close(id, now);
    }

    /// Takes one out that waits no longer. Whether it did.
    pub(crate) fn cancel(&mut self, ticket: Ticket, now: Instant, granted: &mut Granted<W>) -> bool {
        let Some(account) = self.accounts.get_mut(ticket.account) else { return false };
        let Some(queues) = account.queues.as_mut() else { return false };
        let Some(gone) = queues.remove(ticket.queue, ticket.number) else { return false };
        self.waiting.remove(gone.flow, 1);
        // It may have been too wide for what is free.
        self.advance(ticket.account, now, granted);
        self.accounts.close(ticket.account, now);
        true
    }

    /// Gives turns to those in an account for whom there is room.
    pub(crate) fn advance(&mut self, id: AccountId, now: Instant, granted: &mut Granted<W>) {
        if let Some(account) = self.accounts.get_mut(id) {
            account.give_turns(id, self.limit, now, &mut self.waiting, granted);
        }
    }

    /// When time will have brought what the next one in this account waits for, once turns were given; `None` where
    /// nobody waits in these queues of it, or time alone brings nothing.
    pub(crate) fn due(&self, id: AccountId, generation: u64, now: Instant) -> Option<Instant> {
        let account = self.accounts.get(id)?;
        let queues = account.queues.as_ref().filter(|queues| queues.generation == generation)?;
        account.allowance.due(self.limit, A::seats(self.limit, queues.awaited()?)?, now)
    }

    /// Changes the limit. Taken slots stay taken, even if they are more than the new limit; token buckets begin anew.
    pub(crate) fn change(
        &mut self,
        limit: A::Limit,
        queueing: Option<Queueing>,
        now: Instant,
        granted: &mut Granted<W>,
    ) {
        self.queueing = queueing;
        if limit == self.limit {
            return;
        }
        for (id, account) in self.accounts.all_mut() {
            account.allowance.change_limit();
            account.give_turns(id, limit, now, &mut self.waiting, granted);
        }
        self.limit = limit;
    }
}

impl<A: Allowance, W> KeyAccount<A, W> {
    /// Gives turns to those for whom there is room, who are among those that wait no longer.
    fn give_turns(
        &mut self,
        id: AccountId,
        limit: A::Limit,
        now: Instant,
        waiting: &mut Shares<Flow>,
        granted: &mut Granted<W>,
    ) {
        let Some(queues) = &mut self.queues else { return };
        // What the next one takes is awaited: whoever takes much would never find it if those who take little went
        // first.
        while let Some((queue, seats)) = queues.next(now)
            && let Some(seats) = A::seats(limit, seats)
            && self.allowance.try_spend(limit, seats, now)
            && let Some(waiter) = queues.pop(queue)
        {
            match A::HELD {
                true => queues.begin(queue, seats, now),
                false => queues.spend(queue, seats),
            }
            let turn = Turn { generation: queues.generation, queue };
            waiting.remove(waiter.flow, 1);
            granted.push((waiter.waker, LimiterPermit { account: id, seats, since: now, turn: Some(turn) }));
        }
        if queues.waiting() == 0 {
            self.queues = None;
        }
    }
}

#[cfg(test)]
mod tests;
