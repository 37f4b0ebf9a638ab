//! Flow-control schemas. A schema consists of a limit, the dimensions of its keys, and its queues.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::Duration;

use crate::attributes::Dimension;
use crate::hand::Deck;

/// A flow-control schema. Dispatch policies refer to a schema by its name. The terms are those of KubeGateway's
/// `flowControlSchemas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// Name of the schema, unique in a configuration.
    pub name: Arc<str>,
    /// Kind of the limit.
    pub kind: SchemaKind,
}

impl Schema {
    /// Returns this schema with a part of its limit, for one of `replicas` replicas of Tributary.
    ///
    /// The sum of the parts does not exceed the limit, with one exception: if the limit is smaller than the number of
    /// replicas, each replica gets 1. A replica with a limit of 0 would refuse every request from the load balancer. A
    /// limit of 0 stays 0. Queues stay unchanged, because each replica has separate queues.
    #[must_use]
    pub fn divided_among(mut self, replicas: NonZeroU32) -> Self {
        let part = |limit: NonZeroU32| NonZeroU32::new(limit.get() / replicas).unwrap_or(NonZeroU32::MIN);
        match &mut self.kind {
            SchemaKind::Exempt => {}
            SchemaKind::MaxRequestsInflight(Limited { limit, .. }) => {
                limit.max = NonZeroU32::new(limit.max).map_or(0, |max| part(max).get());
            }
            SchemaKind::TokenBucket(Limited { limit, .. }) => {
                *limit = TokenBucket { qps: part(limit.qps), burst: part(limit.burst) };
            }
        }
        self
    }
}

/// Kind of a limit. A schema keeps its usage when a new configuration changes its limit, but not when its kind changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaKind {
    /// No limit: requests are only counted.
    Exempt,
    /// Limit of requests in flight.
    MaxRequestsInflight(Limited<MaxRequestsInflight>),
    /// Limit of requests per second.
    TokenBucket(Limited<TokenBucket>),
}

/// A limit with the dimensions of its keys and its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited<L> {
    /// Limit of each key.
    pub limit: L,
    /// Dimensions of a key. Each combination of their values has a separate limit. Without dimensions, all requests of
    /// the schema share one limit.
    pub by: Vec<Dimension>,
    /// Queues for requests beyond the limit; `None` refuses these requests at once.
    pub queueing: Option<Queueing>,
}

/// Limit of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxRequestsInflight {
    /// Maximal number of requests in flight. 0 refuses all requests, including long-running requests.
    pub max: u32,
    /// Whether long-running requests take slots. If false, they are admitted without a slot and counted separately.
    pub count_long_running: bool,
}

/// Limit of requests per second. Each request spends tokens at its start, even if it is long-running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Number of tokens that refill in a second.
    pub qps: NonZeroU32,
    /// Number of tokens in a full bucket.
    pub burst: NonZeroU32,
}

/// Queues for waiting requests, as in kube-apiserver's `LimitResponse` of type `Queue` (KEP-1040, API Priority and
/// Fairness).
///
/// Each key has separate queues. All keys of a schema together have at most `queues` × `length` waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queueing {
    /// Number of queues, and number of queues that one flow may use.
    pub deck: Deck,
    /// Maximal number of waiting requests in one queue.
    pub length: NonZeroU16,
    /// Maximal wait of a request.
    pub wait_max: Duration,
}

impl Queueing {
    pub(crate) fn waiting_max(&self) -> usize {
        usize::from(self.deck.queues()) * usize::from(self.length.get())
    }
}

impl Default for Queueing {
    /// kube-apiserver's default queues (64 queues, hands of 8 queues, length 50: `flowcontrol/v1/defaults.go`), and a
    /// wait of one second. A short wait avoids most refusals, and requests do not accumulate.
    fn default() -> Self {
        Self {
            deck: Deck::default(),
            length: const { NonZeroU16::new(50).expect("not zero") },
            wait_max: Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(value: u32) -> NonZeroU32 {
        NonZeroU32::new(value).unwrap()
    }

    fn bucket(qps: u32, burst: u32) -> Schema {
        let limit = TokenBucket { qps: number(qps), burst: number(burst) };
        let kind = SchemaKind::TokenBucket(Limited { limit, by: Vec::new(), queueing: None });
        Schema { name: "tenants".into(), kind }
    }

    fn slots(max: u32) -> Schema {
        let limit = MaxRequestsInflight { max, count_long_running: false };
        let kind = SchemaKind::MaxRequestsInflight(Limited { limit, by: Vec::new(), queueing: None });
        Schema { name: "tenants".into(), kind }
    }

    proptest! {
        #[test]
        fn limits_of_all_replicas_do_not_exceed_the_configured_limit(max in 0_u32..100_000, replicas in 1_u32..200) {
            let divided = slots(max).divided_among(number(replicas));
            let SchemaKind::MaxRequestsInflight(Limited { limit, .. }) = divided.kind else { unreachable!() };
            let sum = limit.max * replicas;
            match max {
                0 => prop_assert_eq!(sum, 0),
                _ if max < replicas => prop_assert_eq!(sum, replicas, "one at each"),
                _ => prop_assert!(sum <= max && max - sum < replicas),
            }
        }
    }

    #[test]
    fn replicas_divide_rate_and_burst_equally() {
        assert_eq!(bucket(100, 1_000).divided_among(number(3)), bucket(33, 333));
        assert_eq!(bucket(2, 30).divided_among(number(3)), bucket(1, 10));
        assert_eq!(bucket(7, 8).divided_among(NonZeroU32::MIN), bucket(7, 8));
    }
}
