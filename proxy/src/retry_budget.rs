//! Budget of repeated requests to a cluster.
//!
//! A cluster in trouble refuses many requests at once. If each were repeated, the cluster would get two and three times
//! the load. So repeated requests stay a fraction of the others ([`TpsBudget`], as in Finagle and Linkerd). A floor
//! allows some at a cluster with little traffic.
//!
//! At most half of the budget is for [`Cause::Busy`]: a client can cause such answers at will (by priority and
//! fairness, for example), and has to leave some to requests of broken connections.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Duration;
use tower::retry::budget::{Budget, TpsBudget};

/// The requests of this time count. 10 s: a burst that is over, and a restart, are soon forgotten.
const WINDOW: Duration = Duration::from_secs(10);

/// The part of the requests that is sent again: a fifth.
const PART: f32 = 0.2;

/// The floor, in requests per second: 20 in each window, however few requests there are. A connection that ends takes a
/// handful of requests with it, and a member does not notice two more a second.
const FLOOR: u32 = 2;

/// The reason for which a request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Failed,
    /// The cluster answered that it is busy, or an API server did not know the sender.
    Busy,
}

/// The requests that a member was sent again since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryStatistics {
    /// Requests that were sent again.
    pub retries: u64,
    /// Requests that were not sent again, because the budget was spent.
    pub refused: u64,
}

/// The budget of one member.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    all: TpsBudget,
    busy: TpsBudget,
    retries: AtomicU64,
    refused: AtomicU64,
}

impl RetryBudget {
    pub(crate) fn new() -> Self {
        let (retries, refused) = Default::default();
        let busy = TpsBudget::new(WINDOW, FLOOR / 2, PART / 2.0);
        Self { all: TpsBudget::new(WINDOW, FLOOR, PART), busy, retries, refused }
    }

    /// Counts a request that is sent for the first time.
    pub(crate) fn note_request(&self) {
        self.all.deposit();
        self.busy.deposit();
    }

    /// Takes a request to be sent again off the budget. Gives false where the budget is spent.
    pub(crate) fn withdraw(&self, cause: Cause) -> bool {
        let is_allowed = (cause == Cause::Failed || self.busy.withdraw()) && self.all.withdraw();
        let counter = if is_allowed { &self.retries } else { &self.refused };
        counter.fetch_add(1, Ordering::Relaxed);
        is_allowed
    }

    pub(crate) fn statistics(&self) -> RetryStatistics {
        RetryStatistics { retries: self.retries.load(Ordering::Relaxed), refused: self.refused.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of requests that may be sent again now.
    fn drain(budget: &RetryBudget, cause: Cause) -> usize {
        (0..10_000).filter(|_| budget.withdraw(cause)).count()
    }

    #[tokio::test(start_paused = true)]
    async fn retry_budget_is_a_fifth_of_recent_requests_and_a_minimum() {
        let budget = RetryBudget::new();
        assert_eq!(drain(&budget, Cause::Failed), 20, "without any requests");
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(drain(&budget, Cause::Failed), 0);
        tokio::time::advance(Duration::from_secs(2)).await;
        (0..1_000).for_each(|_| budget.note_request());
        assert_eq!(drain(&budget, Cause::Failed), 220);
        assert_eq!(budget.statistics().retries, 240);
    }

    #[tokio::test(start_paused = true)]
    async fn busy_answers_leave_half_to_requests_that_fail() {
        let budget = RetryBudget::new();
        (0..1_000).for_each(|_| budget.note_request());
        assert_eq!(drain(&budget, Cause::Busy), 110);
        assert_eq!(drain(&budget, Cause::Failed), 110);
        assert_eq!(drain(&budget, Cause::Busy), 0);
    }
}
