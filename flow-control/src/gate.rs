//! Asynchronous waits for the decisions of a [`Limiter`]. No other file of the crate reads the clock.

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

/// Usage of a schema. All configurations with a schema of this name and kind share one gate. The permits of requests in
/// flight refer to the gate, too.
#[derive(Debug)]
pub(crate) struct Gate<A: Allowance> {
    limiter: Mutex<Limiter<A, oneshot::Sender<GatePermit<A>>>>,
    /// After a change of the limit, wakes the tasks that wait for tokens.
    changed: Notify,
}

/// Seats of an admitted request. Dropping this value frees the seats.
#[derive(Debug)]
pub(crate) struct GatePermit<A: Allowance> {
    gate: Arc<Gate<A>>,
    permit: Option<LimiterPermit>,
}

/// A waiting request. Dropping this value removes the request from the queue.
struct Waiting<'a, A: Allowance> {
    gate: &'a Arc<Gate<A>>,
    ticket: Ticket,
    granted_permit: oneshot::Receiver<GatePermit<A>>,
}

impl<A: Allowance> Gate<A> {
    pub(crate) fn new(limit: A::Limit, queueing: Option<Queueing>) -> Arc<Self> {
        let limiter = Mutex::new(Limiter::new(limit, queueing, KEYS_MAX));
        Arc::new(Self { limiter, changed: Notify::new() })
    }

    /// Admits a request at once, or within the maximal wait.
    ///
    /// Cancellation: dropping the future removes the request from the queue, or passes a granted permit to the next
    /// request.
    ///
    /// # Errors
    /// The cause of the refusal.
    pub(crate) async fn admit(
        self: &Arc<Self>,
        candidate: Candidate,
        queueing: Option<Queueing>,
    ) -> Result<GatePermit<A>, RefusalCause> {
        let mut granted_permit = None;
        let waker = || {
            let (sender, receiver) = oneshot::channel();
            granted_permit = Some(receiver);
            sender
        };
        let decision = self.with(|limiter, now, granted| limiter.admit(candidate, now, waker, granted));
        match (decision, granted_permit) {
            (LimiterDecision::Admitted(permit), _) => Ok(self.new_permit(permit)),
            (LimiterDecision::Waits { ticket, is_first }, Some(granted_permit)) => {
                if is_first {
                    self.grant_as_tokens_refill(ticket.account, ticket.generation);
                }
                let wait_max = queueing.unwrap_or_default().wait_max;
                Waiting { gate: self, ticket, granted_permit }.within(wait_max).await
            }
            (LimiterDecision::Closed, _) => Err(RefusalCause::Closed),
            (LimiterDecision::QueueFull, _) => Err(RefusalCause::QueueFull),
            (LimiterDecision::Exceeded | LimiterDecision::Waits { .. }, _) => Err(RefusalCause::Exceeded),
        }
    }

    /// Sets a new limit. Slots in use stay in use, and token buckets become full.
    pub(crate) fn change(self: &Arc<Self>, limit: A::Limit, queueing: Option<Queueing>) {
        self.with(|limiter, now, granted| limiter.change(limit, queueing, now, granted));
        self.changed.notify_waiters();
    }

    /// Returns the number of waiting requests and the number of keys with accounts.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let limiter = self.limiter.lock();
        (limiter.waiting(), limiter.keys())
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.limiter.lock().is_unused(Instant::now())
    }

    pub(crate) fn limit(&self) -> A::Limit {
        self.limiter.lock().limit()
    }

    /// Changes the limiter, releases the lock, and wakes the requests that the change admits. If the future of a woken
    /// request was dropped, the request's seats are freed at once.
    fn with<T>(
        self: &Arc<Self>,
        change: impl FnOnce(
            &mut Limiter<A, oneshot::Sender<GatePermit<A>>>,
            Instant,
            &mut Granted<oneshot::Sender<GatePermit<A>>>,
        ) -> T,
    ) -> T {
        let mut granted = Vec::new();
        let done = change(&mut self.limiter.lock(), Instant::now(), &mut granted);
        for (give, permit) in granted {
            drop(give.send(self.new_permit(permit)));
        }
        done
    }

    fn new_permit(self: &Arc<Self>, permit: LimiterPermit) -> GatePermit<A> {
        GatePermit { gate: Arc::clone(self), permit: Some(permit) }
    }

    /// Admits waiting requests of an account whenever enough tokens have refilled, until the account's queues are
    /// empty. Spawns one task for each account with queues. For slots, no task is necessary.
    fn grant_as_tokens_refill(self: &Arc<Self>, account: AccountId, generation: u64) {
        if A::IS_FREED_AT_END {
            return;
        }
        let gate = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                // The task subscribes before it reads the state, so that it misses no change of the limit.
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
    async fn within(mut self, wait_max: Duration) -> Result<GatePermit<A>, RefusalCause> {
        match tokio::time::timeout(wait_max, &mut self.granted_permit).await {
            Ok(Ok(permit)) => Ok(permit),
            // At the timeout, the permit may just have been granted, so the channel is read once more.
            _ => self.granted_permit.try_recv().map_err(|_| RefusalCause::TimedOut(wait_max)),
        }
    }
}

impl GatePermit<SpentTokens> {
    /// Marks the tokens as spent, so that dropping the permit does not return the tokens. Only the passage of time
    /// refills them.
    pub(crate) fn spend(mut self) {
        self.permit = None;
    }
}

impl<A: Allowance> Drop for GatePermit<A> {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.gate.with(|limiter, now, granted| limiter.give_back(permit, now, granted));
        }
    }
}

impl<A: Allowance> Drop for Waiting<'_, A> {
    fn drop(&mut self) {
        self.gate.with(|limiter, now, granted| limiter.cancel(self.ticket, now, granted));
    }
}
