//! Budget of retried requests to a cluster.
//!
//! An overloaded cluster refuses many requests at once. If each request were retried, the load would double or triple.
//! So retries are limited to a fraction of the requests ([`TpsBudget`], as in Finagle and Linkerd). A minimum allows
//! some retries at a cluster with little traffic.
//!
//! At most half of the budget is for [`Cause::Busy`], a response 429, 503 or 401. A client can cause such responses at
//! will (by priority and fairness, for example), and must leave retries for requests on broken connections.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Duration;
use tower::retry::budget::{Budget, TpsBudget};

/// Time window in which requests are counted. 10 s: a past burst or restart is soon forgotten.
const WINDOW: Duration = Duration::from_secs(10);

/// The fraction of requests that may be retried: a fifth.
const PART: f32 = 0.2;

/// Minimal budget in retries per second: 20 in each window, however few requests there are. A closed connection aborts
/// a handful of requests, and two more requests per second do not burden a member.
const FLOOR: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Failed,
    /// The cluster reported that it is busy, or an API server did not accept Tributary's credentials.
    Busy,
}

/// Numbers of retries to a member since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryStatistics {
    /// Number of retried requests.
    pub retries: u64,
    /// Number of requests that were not retried because the budget was spent.
    pub refused: u64,
}

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

    /// Counts the first attempt of a request, which raises the budget.
    pub(crate) fn count_request(&self) {
        self.all.deposit();
        self.busy.deposit();
    }

    /// Takes one retry from the budget. Returns false if the budget is spent.
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

    /// Takes retries until the budget is spent. Returns their number.
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
        (0..1_000).for_each(|_| budget.count_request());
        assert_eq!(drain(&budget, Cause::Failed), 220);
        assert_eq!(budget.statistics().retries, 240);
    }

    #[tokio::test(start_paused = true)]
    async fn retries_after_429_use_at_most_half_of_the_retry_budget() {
        let budget = RetryBudget::new();
        (0..1_000).for_each(|_| budget.count_request());
        assert_eq!(drain(&budget, Cause::Busy), 110);
        assert_eq!(drain(&budget, Cause::Failed), 110);
        assert_eq!(drain(&budget, Cause::Busy), 0);
    }
}
