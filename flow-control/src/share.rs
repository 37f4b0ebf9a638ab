//! What of a limit is one replica's, where several serve together.

use std::num::NonZeroU32;

use tokio::time::Instant;

use crate::loans::Loans;
use crate::schema::{Limited, MaxRequestsInflight, Schema, SchemaKind, TokenBucket};

/// How many replicas share each limit, and which of them this is.
///
/// Each has its part whether it hears from the others or not: what it does not know cannot make the sum too large. The
/// parts add up to the limit where ranks are known, and to no more where they are not. Only a limit of fewer than one
/// per replica is exceeded: each has 1 of it, because a replica with none would refuse all that a load balancer sends
/// it. 0 stays 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicas {
    count: NonZeroU32,
    rank: Option<u32>,
}

/// One, which has all.
impl Default for Replicas {
    fn default() -> Self {
        Self::of(NonZeroU32::MIN)
    }
}

impl Replicas {
    /// So many.
    pub fn of(count: NonZeroU32) -> Self {
        Self { count, rank: None }
    }

    /// So many, of which this is the one of this rank, from 0 on: what does not divide evenly is the first ones'. All
    /// must have another rank, and count alike. `None` for a rank that there is not.
    pub fn ranked(count: NonZeroU32, rank: u32) -> Option<Self> {
        (rank < count.get()).then_some(Self { count, rank: Some(rank) })
    }

    /// The same where so many answer, this one among them: as many as there are more than are counted share each limit
    /// with the others. Where fewer answer nothing changes: who is cut off is not alone.
    #[must_use]
    pub fn of_whom_answer(self, answering: u32) -> Self {
        NonZeroU32::new(answering).filter(|answering| *answering > self.count).map_or(self, Self::of)
    }

    /// How many.
    pub fn count(self) -> NonZeroU32 {
        self.count
    }

    /// This replica's part of a limit.
    pub fn part(self, limit: u32) -> u32 {
        let count = self.count.get();
        let rest = self.rank.is_some_and(|rank| rank < limit % count);
        (limit / count + u32::from(rest)).max(limit.min(1))
    }

    /// A schema with this replica's part of its limit, by what it has lent and borrowed of that: never more than the
    /// limit, whatever others say that they lend. A burst is shared as the rate is. Queues stay as they are: each
    /// replica has its own.
    #[must_use]
    pub fn share(self, schema: &Schema, loans: &Loans, now: Instant) -> Schema {
        let part = |limit| loans.part(self.part(limit), now).min(limit);
        let mut own = schema.clone();
        match &mut own.kind {
            SchemaKind::Exempt => {}
            SchemaKind::MaxRequestsInflight(Limited { limit: MaxRequestsInflight { max, .. }, .. }) => {
                *max = part(*max)
            }
            SchemaKind::TokenBucket(Limited { limit: TokenBucket { qps, burst }, .. }) => {
                let own_qps = part(qps.get());
                let own_burst = u64::from(burst.get()) * u64::from(own_qps) / u64::from(qps.get());
                *burst = NonZeroU32::new(u32::try_from(own_burst).unwrap_or(u32::MAX)).unwrap_or(NonZeroU32::MIN);
                *qps = NonZeroU32::new(own_qps).unwrap_or(NonZeroU32::MIN);
            }
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::loans::ReplicaId;

    proptest! {
        #[test]
        fn parts_are_no_more_than_the_limit_and_of_known_ranks_all_of_it(limit in 0_u32..100_000, count in 1_u32..200) {
            let count = NonZeroU32::new(count).unwrap();
            let unranked = u64::from(Replicas::of(count).part(limit)) * u64::from(count.get());
            let ranked = (0..count.get()).filter_map(|rank| Replicas::ranked(count, rank));
            let ranked: u64 = ranked.map(|own| u64::from(own.part(limit))).sum();
            if limit == 0 || limit >= count.get() {
                prop_assert_eq!(ranked, u64::from(limit));
                prop_assert!(unranked <= ranked && ranked - unranked < u64::from(count.get()));
            } else {
                prop_assert_eq!((ranked, unranked), (u64::from(count.get()), u64::from(count.get())), "one each");
            }
        }
    }

    #[test]
    fn of_a_bucket_rate_and_burst_are_shared_alike() {
        let [qps, burst] = [100, 1_000].map(|number| NonZeroU32::new(number).unwrap());
        let kind = |qps, burst| {
            let limited = Limited { limit: TokenBucket { qps, burst }, by: Vec::new(), queueing: None };
            SchemaKind::TokenBucket(limited)
        };
        let schema = Schema { name: "tenants".into(), kind: kind(qps, burst) };
        let now = Instant::now();
        let mut loans = Loans::default();
        let three = Replicas::of(NonZeroU32::new(3).unwrap());
        let own = |qps: u32, burst: u32| kind(NonZeroU32::new(qps).unwrap(), NonZeroU32::new(burst).unwrap());
        assert_eq!(three.share(&schema, &loans, now).kind, own(33, 330));
        loans.borrow((ReplicaId(1), 7), now, now);
        assert_eq!(three.share(&schema, &loans, now).kind, own(40, 400));
        loans.borrow((ReplicaId(2), u32::MAX), now, now);
        assert_eq!(three.share(&schema, &loans, now).kind, own(100, 1_000), "no more than all");
    }

    #[test]
    fn who_is_there_beside_those_that_are_counted_has_a_part_too() {
        let two = Replicas::ranked(NonZeroU32::new(2).unwrap(), 0).unwrap();
        for (answering, expected) in [(0, 2), (1, 2), (2, 2), (3, 3), (7, 7)] {
            assert_eq!(two.of_whom_answer(answering).count().get(), expected);
        }
        assert_eq!((two.of_whom_answer(2).part(101), two.of_whom_answer(3).part(101)), (51, 33));
    }

    #[test]
    fn there_is_no_rank_beyond_the_last() {
        let three = NonZeroU32::new(3).unwrap();
        assert!(Replicas::ranked(three, 2).is_some() && Replicas::ranked(three, 3).is_none());
        assert_eq!([0, 1, 2].map(|rank| Replicas::ranked(three, rank).unwrap().part(10)), [4, 3, 3]);
        assert_eq!(Replicas::of(three).part(10), 3);
        assert_eq!(Replicas::default().part(10), 10);
    }
}
