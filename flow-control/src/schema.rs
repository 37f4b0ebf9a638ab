//! What a schema says: how much there is, for each of what, and who may wait.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::Duration;

use crate::attributes::Dimension;
use crate::hand::Deck;

/// A schema: rules of dispatch refer to it by name. The words are those of KubeGateway's `flowControlSchemas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The name, unique among the schemas.
    pub name: Arc<str>,
    /// What it limits.
    pub kind: SchemaKind,
}

impl Schema {
    /// This schema with the part of its limit that one of so many replicas has. The parts add up to no more than the
    /// limit, except where the limit is smaller than the number of replicas: then each replica has 1, because a replica
    /// without any would refuse every request that a load balancer sends to it. 0 stays 0. Queues stay as they are:
    /// each replica has its own.
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

/// What a schema limits. State survives a change of everything but the variant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaKind {
    /// Nothing.
    Exempt,
    /// How many requests are in flight at once.
    MaxRequestsInflight(Limited<MaxRequestsInflight>),
    /// How many requests begin in a second.
    TokenBucket(Limited<TokenBucket>),
}

/// A limit, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limited<L> {
    /// How much each key has.
    pub limit: L,
    /// What makes a key: each combination of their values has a limit of its own; where there are none, all requests of
    /// the schema share one.
    pub by: Vec<Dimension>,
    /// Who may wait for how long; `None` where what finds no room is refused at once.
    pub queueing: Option<Queueing>,
}

/// How many requests may be in flight at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxRequestsInflight {
    /// How many; 0 refuses all, those that last, too.
    pub max: u32,
    /// Whether what lasts takes a place like any other request. Otherwise it is let in, and counted apart.
    pub count_long_running: bool,
}

/// How many requests may begin. What lasts spends a token when it begins, like any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// How many tokens come back in a second.
    pub qps: NonZeroU32,
    /// How many there are at most, and at first.
    pub burst: NonZeroU32,
}

/// Who may wait, as kube-apiserver's `LimitResponse` of type `Queue` has it (KEP-1040, API Priority and Fairness).
///
/// Each key has such queues. Those of a schema hold together no more than `queues` × `length`, however many keys it
/// has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queueing {
    /// Among how many queues flows are spread, and among how many of them each chooses.
    pub deck: Deck,
    /// How many requests wait in a queue at most.
    pub length: NonZeroU16,
    /// How long one waits at most.
    pub wait_max: Duration,
}

impl Queueing {
    /// How many requests of a schema wait at most.
    pub(crate) fn waiting_max(&self) -> usize {
        usize::from(self.deck.queues()) * usize::from(self.length.get())
    }
}

impl Default for Queueing {
    /// kube-apiserver's defaults for the queues (64, a hand of 8, 50 in each: `flowcontrol/v1/defaults.go`), and a
    /// second: a short wait instead of a 429, not a second place where requests pile up.
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
        fn parts_of_all_replicas_are_no_more_than_the_limit(max in 0_u32..100_000, replicas in 1_u32..200) {
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
    fn rate_and_burst_are_divided_alike() {
        assert_eq!(bucket(100, 1_000).divided_among(number(3)), bucket(33, 333));
        assert_eq!(bucket(2, 30).divided_among(number(3)), bucket(1, 10));
        assert_eq!(bucket(7, 8).divided_among(NonZeroU32::MIN), bucket(7, 8));
    }
}
