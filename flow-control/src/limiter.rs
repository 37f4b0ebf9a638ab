//! Decisions of one schema: a request is admitted, waits, or is refused. The caller passes the time as an argument, and
//! this module never waits.
//!
//! ```text
//! admit ──▶ admitted                                     seats are free, and no request waits
//!      ├──▶ waits ──▶ granted, by freed seats,
//!      │      │       by time, or by another limit
//!      │      └─────▶ cancelled                          timeout, or the client has gone
//!      └──▶ refused                                      no free seats, and no queue
//! ```
//!
//! A change of the state that frees seats also admits the requests that wait for them. Tokens refill without an event:
//! [`Limiter::due`] returns the time at which the caller must call [`Limiter::advance`].

use tokio::time::Instant;
use tributary_limiters::{FairShare, Shares};

use crate::accounts::{AccountId, Accounts, KeyAccount};
use crate::allowance::Allowance;
use crate::attributes::{Flow, Key};
use crate::fair_queues::FairQueues;
use crate::queue::Waiter;
use crate::schema::Queueing;

/// Limit, accounts and waiting requests of a schema. A seat is one slot or one token.
#[derive(Debug)]
pub(crate) struct Limiter<A: Allowance, W> {
    limit: A::Limit,
    queueing: Option<Queueing>,
    accounts: Accounts<A, W>,
    /// Number of waiting requests of each flow, over all keys. Each key has separate queues, so without this limit one
    /// user with many keys (resources, for instance) could fill all queues.
    waiting: Shares<Flow>,
    /// Last number that was assigned to a waiting request (its ticket), or to the queues of a key (their generation).
    last: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) key: Key,
    pub(crate) flow: Flow,
    pub(crate) width: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimiterPermit {
    pub(crate) account: AccountId,
    pub(crate) seats: u32,
    since: Instant,
    /// Queue in which the request waited before its admission; `None` if the request did not wait.
    from_queue: Option<QueueRef>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueueRef {
    generation: u64,
    queue: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) account: AccountId,
    /// Generation of the queues in which the request waits: distinguishes earlier and later queues of a key.
    pub(crate) generation: u64,
    queue: usize,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimiterDecision {
    Admitted(LimiterPermit),
    Waits {
        ticket: Ticket,
        /// Whether the account had no queues before this request. If so, a task that waits for tokens must be started.
        is_first: bool,
    },
    /// The request is refused because the limit is 0.
    Closed,
    /// The request is refused because the limit is reached and the schema has no queues.
    Exceeded,
    /// The request is refused because the limit is reached and the queue of the flow is full.
    QueueFull,
}

/// Requests that are admitted and must be woken, with the waker and the permit of each.
pub(crate) type Granted<W> = Vec<(W, LimiterPermit)>;

impl<A: Allowance, W> Limiter<A, W> {
    pub(crate) fn new(limit: A::Limit, queueing: Option<Queueing>, keys_max: usize) -> Self {
        Self { limit, queueing, accounts: Accounts::new(keys_max), waiting: Shares::default(), last: 0 }
    }

    pub(crate) fn limit(&self) -> A::Limit {
        self.limit
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.total()
    }

    pub(crate) fn keys(&self) -> usize {
        self.accounts.keys()
    }

    /// Returns whether every account is unused and no request waits. Cost: linear in the number of accounts.
    pub(crate) fn is_unused(&mut self, now: Instant) -> bool {
        self.accounts.all_mut().all(|(_, account)| account.is_unused(now))
    }

    /// Decides about a request. Calls `waker` only if the request waits. Without queues, the cost is two map lookups.
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
            Ok(permit) => return LimiterDecision::Admitted(permit),
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

    /// Takes seats from the account of a key, if enough seats are free and no other request waits.
    ///
    /// # Errors
    /// The identifier of the key's account, if too few seats are free or another request waits.
    fn try_admit(
        &mut self,
        key: Key,
        seats: u32,
        now: Instant,
        granted: &mut Granted<W>,
    ) -> Result<LimiterPermit, AccountId> {
        let id = self.accounts.open(key, now);
        // Waiting requests are admitted before the new request: they take the tokens that have refilled.
        self.advance(id, now, granted);
        let account = self.accounts.get_mut(id).filter(|account| account.queues.is_none());
        match account.is_some_and(|account| account.allowance.try_spend(self.limit, seats, now)) {
            true => Ok(LimiterPermit { account: id, seats, since: now, from_queue: None }),
            false => Err(id),
        }
    }

    /// Frees the seats of a request that has ended, or whose future was dropped after its admission.
    pub(crate) fn give_back(&mut self, permit: LimiterPermit, now: Instant, granted: &mut Granted<W>) {
        let LimiterPermit { account: id, seats, since, from_queue } = permit;
        let Some(account) = self.accounts.get_mut(id) else { return };
        account.allowance.give_back(self.limit, seats, since, now);
        if let (Some(from_queue), Some(queues)) = (from_queue, &mut account.queues)
            && A::IS_FREED_AT_END
            && queues.generation == from_queue.generation
        {
            queues.end(from_queue.queue, seats, since, now);
        }
        self.advance(id, now, granted);
        self.accounts.close(id, now);
    }

    /// Removes a waiting request. Returns whether the request was waiting.
    pub(crate) fn cancel(&mut self, ticket: Ticket, now: Instant, granted: &mut Granted<W>) -> bool {
        let Some(account) = self.accounts.get_mut(ticket.account) else { return false };
        let Some(queues) = account.queues.as_mut() else { return false };
        let Some(removed) = queues.remove(ticket.queue, ticket.number) else { return false };
        self.waiting.remove(removed.flow, 1);
        // The removed request may have needed more seats than were free. Later requests that need fewer seats may now
        // be admitted.
        self.advance(ticket.account, now, granted);
        self.accounts.close(ticket.account, now);
        true
    }

    /// Admits waiting requests of an account as long as seats are free.
    pub(crate) fn advance(&mut self, id: AccountId, now: Instant, granted: &mut Granted<W>) {
        if let Some(account) = self.accounts.get_mut(id) {
            account.grant_permits(id, self.limit, now, &mut self.waiting, granted);
        }
    }

    /// Returns the time at which an account has enough tokens for its next request. `None` for slots, or if no request
    /// waits in the queues of this generation. Call `advance` before this function.
    pub(crate) fn due(&self, id: AccountId, generation: u64, now: Instant) -> Option<Instant> {
        let account = self.accounts.get(id)?;
        let queues = account.queues.as_ref().filter(|queues| queues.generation == generation)?;
        account.allowance.due(self.limit, A::seats(self.limit, queues.next_seats()?)?, now)
    }

    /// Changes the limit. Slots in use stay in use, even above the new limit, and token buckets become full.
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
            account.grant_permits(id, limit, now, &mut self.waiting, granted);
        }
        self.limit = limit;
    }
}

impl<A: Allowance, W> KeyAccount<A, W> {
    fn grant_permits(
        &mut self,
        id: AccountId,
        limit: A::Limit,
        now: Instant,
        waiting: &mut Shares<Flow>,
        granted: &mut Granted<W>,
    ) {
        let Some(queues) = &mut self.queues else { return };
        // No request overtakes the request to serve next. If small requests could overtake, they could block a request
        // for many seats forever.
        while let Some((queue, seats)) = queues.next(now)
            && let Some(seats) = A::seats(limit, seats)
            && self.allowance.try_spend(limit, seats, now)
            && let Some(waiter) = queues.pop(queue)
        {
            match A::IS_FREED_AT_END {
                true => queues.begin(queue, seats, now),
                false => queues.spend(queue, seats),
            }
            let from_queue = QueueRef { generation: queues.generation, queue };
            waiting.remove(waiter.flow, 1);
            granted
                .push((waiter.waker, LimiterPermit { account: id, seats, since: now, from_queue: Some(from_queue) }));
        }
        if queues.waiting() == 0 {
            self.queues = None;
        }
    }
}

#[cfg(test)]
mod tests;
