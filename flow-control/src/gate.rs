//! The waiting around a [`Limiter`]: the one file that reads the clock.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tributary_limiters::SpentTokens;

use crate::accounts::{AccountId, KEYS_MAX};
use crate::allowance::Allowance;
use crate::attributes::{Flow, Key};
use crate::limiter::{Granted, Limiter, LimiterDecision, LimiterPermit, Ticket};
use crate::refusal::RefusalCause;
use crate::schema::Queueing;

/// A schema's state, shared by all configurations in which it has this name and kind, and by what holds places.
#[derive(Debug)]
pub(crate) struct Gate<A: Allowance> {
    limiter: Mutex<Limiter<A, oneshot::Sender<Held<A>>>>,
    /// Another limit came into force.
    changed: Notify,
}

/// A place that is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Held<A: Allowance> {
    gate: Arc<Gate<A>>,
    place: Option<LimiterPermit>,
}

/// One that waits. Dropped, it waits no longer.
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

    /// Lets a request in, at once or within the time that one may wait.
    ///
    /// Cancel: dropping the future gives up the place in the queue, or the turn that it was just given.
    ///
    /// # Errors
    /// Why it is refused.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        who: (Key, Flow),
        width: u32,
        queueing: Option<Queueing>,
    ) -> Result<Held<A>, RefusalCause> {
        let mut turn = None;
        let waker = || {
            let (give, taken) = oneshot::channel();
            turn = Some(taken);
            give
        };
        let decision = self.with(|limiter, now, granted| limiter.admit(who, width, now, waker, granted));
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

    /// Another limit comes into force. Taken slots stay taken; token buckets begin anew.
    pub(crate) fn change(self: &Arc<Self>, limit: A::Limit, queueing: Option<Queueing>) {
        self.with(|limiter, now, granted| limiter.change(limit, queueing, now, granted));
        self.changed.notify_waiters();
    }

    /// How many wait, and how many keys have used something.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let limiter = self.limiter.lock();
        (limiter.waiting(), limiter.keys())
    }

    /// Whether nothing is used, and nobody waits.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.limiter.lock().is_at_rest(Instant::now())
    }

    /// What is in force.
    pub(crate) fn limit(&self) -> A::Limit {
        self.limiter.lock().limit()
    }

    /// Does something with the state, and tells those to whom it gave turns once the lock is free: a turn that nobody
    /// takes any more is given back at once.
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

    /// Comes back for an account when time has brought what somebody there waits for, until nobody waits in these
    /// queues. One task per account in which somebody waits, and none where only what is given back makes room.
    fn follow_time(self: &Arc<Self>, account: AccountId, generation: u64) {
        if A::HELD {
            return;
        }
        let gate = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                // Listening before looking: a change in between is not missed.
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
            // Given in the moment in which the time was over.
            _ => self.turn.try_recv().map_err(|_| RefusalCause::TimedOut(wait_max)),
        }
    }
}

impl Held<SpentTokens> {
    /// The request begins: what it took is spent, and comes back by time alone.
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
