//! Decisions of one schema: a request is admitted, waits, or is refused. Time is an argument; this module does not
//! wait.
//!
//! ```text
//! admit ──▶ admitted                                     room, and nobody waits
//!      ├──▶ waits ──▶ granted, by what is given back,
//!      │      │       by time, or by another limit
//!      │      └─────▶ cancelled                          its time is over, or it is gone
//!      └──▶ refused                                      no room, and no queue
//! ```
//!
//! Each change gives turns to the requests that it makes room for. Only time passes unseen: [`Limiter::due`] is the
//! time for the next look at an account.

use tokio::time::Instant;
use tributary_limiters::{FairShare, Shares};

use crate::accounts::{AccountId, Accounts, KeyAccount};
use crate::allowance::Allowance;
use crate::attributes::{Flow, Key};
use crate::fair_queues::FairQueues;
use crate::queue::Waiter;
use crate::schema::Queueing;

/// Limit, accounts and waiting requests of a schema.
#[derive(Debug)]
pub(crate) struct Limiter<A: Allowance, W> {
    limit: A::Limit,
    queueing: Option<Queueing>,
    accounts: Accounts<A, W>,
    /// The requests that wait, of all keys together: each key has queues of its own, and with enough keys (resources,
    /// for instance) one user could take all places.
    waiting: Shares<Flow>,
    /// Number of the last ticket, and of the last queues.
    last: u64,
}

/// A request before the decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) key: Key,
    pub(crate) flow: Flow,
    pub(crate) width: u32,
}

/// Seats of an admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimiterPermit {
    pub(crate) account: AccountId,
    pub(crate) seats: u32,
    /// Time of the admission.
    since: Instant,
    /// Queue of the request, if it waited.
    turn: Option<Turn>,
}

/// Queue from which a request was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    generation: u64,
    queue: usize,
}

/// Identifier of a waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) account: AccountId,
    /// Generation of the queues.
    pub(crate) generation: u64,
    queue: usize,
    number: u64,
}

/// Decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimiterDecision {
    /// The request is admitted.
    Admitted(LimiterPermit),
    /// The request waits in a queue.
    Waits {
        /// Identifier of the waiting request.
        ticket: Ticket,
        /// Whether the account had no waiting requests, so that no task follows the time yet.
        is_first: bool,
    },
    /// The limit is 0.
    Closed,
    /// The limit is reached, and the schema has no queues.
    Exceeded,
    /// The limit is reached, and the queue of the flow is full.
    QueueFull,
}

/// New turns: the waker and the seats of each request.
pub(crate) type Granted<W> = Vec<(W, LimiterPermit)>;

impl<A: Allowance, W> Limiter<A, W> {
    /// Creates an unused limit for at most `keys_max` accounts.
    pub(crate) fn new(limit: A::Limit, queueing: Option<Queueing>, keys_max: usize) -> Self {
        Self { limit, queueing, accounts: Accounts::new(keys_max), waiting: Shares::default(), last: 0 }
    }

    /// Limit that is in force.
    pub(crate) fn limit(&self) -> A::Limit {
        self.limit
    }

    /// Number of waiting requests.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.total()
    }

    /// Number of keys with accounts.
    pub(crate) fn keys(&self) -> usize {
        self.accounts.keys()
    }

    /// Whether the limit is unused and no request waits. Cost: a look at each account.
    pub(crate) fn is_at_rest(&mut self, now: Instant) -> bool {
        self.accounts.all_mut().all(|(_, account)| account.is_at_rest(now))
    }

    /// Decides about a request, and calls `waker` for a request that waits. Cost: without queues, two lookups in a map.
    pub(crate) fn admit(
        &mut self,
        candidate: Candidate,
        now: Instant,
        waker: impl FnOnce() -> W,
        granted: &mut Granted<W>,
    ) -> LimiterDecision {
        let Candidate { key, flow, width } = candidate;
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

    /// Takes seats of a key's account, if enough are free and no request waits for them.
    ///
    /// # Errors
    /// The account without enough free seats.
    fn try_admit(
        &mut self,
        key: Key,
        seats: u32,
        now: Instant,
        granted: &mut Granted<W>,
    ) -> Result<LimiterPermit, AccountId> {
        let id = self.accounts.open(key, now);
        // Waiting requests have a right to the tokens that time has brought.
        self.advance(id, now, granted);
        let account = self.accounts.get_mut(id).filter(|account| account.queues.is_none());
        match account.is_some_and(|account| account.allowance.try_spend(self.limit, seats, now)) {
            true => Ok(LimiterPermit { account: id, seats, since: now, turn: None }),
            false => Err(id),
        }
    }

    /// Takes back the seats of a request that has ended, or that left after its turn.
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

    /// Removes a waiting request. Returns whether the request was waiting.
    pub(crate) fn cancel(&mut self, ticket: Ticket, now: Instant, granted: &mut Granted<W>) -> bool {
        let Some(account) = self.accounts.get_mut(ticket.account) else { return false };
        let Some(queues) = account.queues.as_mut() else { return false };
        let Some(gone) = queues.remove(ticket.queue, ticket.number) else { return false };
        self.waiting.remove(gone.flow, 1);
        // The request may have been too wide for the free seats.
        self.advance(ticket.account, now, granted);
        self.accounts.close(ticket.account, now);
        true
    }

    /// Gives turns to requests of an account while seats are free.
    pub(crate) fn advance(&mut self, id: AccountId, now: Instant, granted: &mut Granted<W>) {
        if let Some(account) = self.accounts.get_mut(id) {
            account.give_turns(id, self.limit, now, &mut self.waiting, granted);
        }
    }

    /// Time at which the next request of an account finds its tokens, after turns were given; `None` if no request
    /// waits in these queues, or for slots.
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
    /// Gives turns to waiting requests while seats are free.
    fn give_turns(
        &mut self,
        id: AccountId,
        limit: A::Limit,
        now: Instant,
        waiting: &mut Shares<Flow>,
        granted: &mut Granted<W>,
    ) {
        let Some(queues) = &mut self.queues else { return };
        // The next request goes first: narrow requests that overtake would keep a wide request waiting for ever.
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
