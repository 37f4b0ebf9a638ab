//! Waits for decisions of a [`Limiter`]: the one file that reads the clock.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tributary_limiters::SpentTokens;

use crate::accounts::{AccountId, KEYS_MAX};
use crate::allowance::Allowance;
use crate::limiter::{Candidate, Granted, Limiter, LimiterDecision, LimiterPermit, Ticket};
use crate::refusal::RefusalCause;
use crate::schema::Queueing;

/// State of a schema, shared by all configurations in which the schema has this name and kind, and by requests with
/// slots.
#[derive(Debug)]
pub(crate) struct Gate<A: Allowance> {
    limiter: Mutex<Limiter<A, oneshot::Sender<Held<A>>>>,
    /// Notifies waiting tasks of a new limit.
    changed: Notify,
}

/// Seats that are given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Held<A: Allowance> {
    gate: Arc<Gate<A>>,
    place: Option<LimiterPermit>,
}

/// A waiting request. Dropping this leaves the queue.
struct Waiting<'a, A: Allowance> {
    gate: &'a Arc<Gate<A>>,
    ticket: Ticket,
    turn: oneshot::Receiver<Held<A>>,
}

impl<A: Allowance> Gate<A> {
    pub(crate) fn new(limit: A::Limit, queueing: Option<Queueing>) -> Arc<Self> {
        let limiter = Mutex::new(Limiter::new(limit, queueing, KEYS_MAX));
        Arc::new(Self { limiter, changed: Notify::new() })
    }

    /// Admits a request, at once or within the maximal wait.
    ///
    /// Cancellation: dropping the future leaves the queue, or gives a new turn to the next request.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        candidate: Candidate,
        queueing: Option<Queueing>,
    ) -> Result<Held<A>, RefusalCause> {
        let mut turn = None;
        let waker = || {
            let (give, taken) = oneshot::channel();
            turn = Some(taken);
            give
        };
        let decision = self.with(|limiter, now, granted| limiter.admit(candidate, now, waker, granted));
        match (decision, turn) {
            (LimiterDecision::Admitted(place), _) => Ok(self.hold_permit(place)),
            (LimiterDecision::Waits { ticket, is_first }, Some(turn)) => {
                if is_first {
                    self.follow_time(ticket.account, ticket.generation);
                }
                let wait_max = queueing.unwrap_or_default().wait_max;
                Waiting { gate: self, ticket, turn }.within(wait_max).await
            }
            (LimiterDecision::Closed, _) => Err(RefusalCause::Closed),
            (LimiterDecision::QueueFull, _) => Err(RefusalCause::QueueFull),
            (LimiterDecision::Exceeded | LimiterDecision::Waits { .. }, _) => Err(RefusalCause::Exceeded),
        }
    }

    /// Sets a new limit. Taken slots stay taken; token buckets start full.
    pub(crate) fn change(self: &Arc<Self>, limit: A::Limit, queueing: Option<Queueing>) {
        self.with(|limiter, now, granted| limiter.change(limit, queueing, now, granted));
        self.changed.notify_waiters();
    }

    /// Numbers of waiting requests and of keys with accounts.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let limiter = self.limiter.lock();
        (limiter.waiting(), limiter.keys())
    }

    /// Whether the limit is unused and no request waits.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.limiter.lock().is_at_rest(Instant::now())
    }

    /// Limit that is in force.
    pub(crate) fn limit(&self) -> A::Limit {
        self.limiter.lock().limit()
    }

    /// Changes the state, and gives turns to waiting requests after the lock is free. A turn of a request that has gone
    /// is given back at once.
    fn with<T>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Limiter<A, oneshot::Sender<Held<A>>>, Instant, &mut Granted<oneshot::Sender<Held<A>>>) -> T,
    ) -> T {
        let mut granted = Vec::new();
        let done = change(&mut self.limiter.lock(), Instant::now(), &mut granted);
        for (give, place) in granted {
            drop(give.send(self.hold_permit(place)));
        }
        done
    }

    fn hold_permit(self: &Arc<Self>, place: LimiterPermit) -> Held<A> {
        Held { gate: Arc::clone(self), place: Some(place) }
    }

    /// Gives turns in an account whenever time has brought enough tokens, until these queues are empty. One task per
    /// account with queues; none for slots.
    fn follow_time(self: &Arc<Self>, account: AccountId, generation: u64) {
        if A::HELD {
            return;
        }
        let gate = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                // Listens before the look, so that no change is missed.
                let mut changed = pin!(gate.changed.notified());
                changed.as_mut().enable();
                let due = gate.with(|limiter, now, granted| {
                    limiter.advance(account, now, granted);
                    limiter.due(account, generation, now)
                });
                let Some(due) = due else { return };
                tokio::select! {
                    () = tokio::time::sleep_until(due) => {}
                    () = changed => {}
                }
            }
        });
    }
}

impl<A: Allowance> Waiting<'_, A> {
    async fn within(mut self, wait_max: Duration) -> Result<Held<A>, RefusalCause> {
        match tokio::time::timeout(wait_max, &mut self.turn).await {
            Ok(Ok(held)) => Ok(held),
            // A turn may come in the moment in which the wait ends.
            _ => self.turn.try_recv().map_err(|_| RefusalCause::TimedOut(wait_max)),
        }
    }
}

impl Held<SpentTokens> {
    /// The request begins: its tokens are spent, and time alone brings them back.
    pub(crate) fn spend(mut self) {
        self.place = None;
    }
}

impl<A: Allowance> Drop for Held<A> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.gate.with(|limiter, now, granted| limiter.give_back(place, now, granted));
        }
    }
}

impl<A: Allowance> Drop for Waiting<'_, A> {
    fn drop(&mut self) {
        self.gate.with(|limiter, now, granted| limiter.cancel(self.ticket, now, granted));
    }
}
