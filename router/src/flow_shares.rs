//! What of each schema's limit is this replica's, where several serve together, and what it lends the others and
//! borrows of them. Who asks them, and over what, is the server's.

use std::collections::BTreeMap;
use std::mem::discriminant;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::ClusterName;
use tributary_flow_control::{GovernedSchema, Loans, ReplicaId, Replicas, Schema};

use crate::flow_control::{FlowSettings, FlowSettingsError, GovernedPlaces, PlaceSchemas};

/// How much more than it uses a replica keeps, or asks for: an eighth, so that a little more demand meets no refusal.
const HEADROOM_OF_USED: u32 = 8;

/// So much of a schema's limit, asked for or lent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitShare {
    /// The cluster whose own view the schema is of; `None` for the merged view.
    pub cluster: Option<ClusterName>,
    /// The schema.
    pub schema: Arc<str>,
    /// The whole limit, for each key: slots, or tokens in a second. What another replica has otherwise it does not
    /// lend.
    pub limit: u32,
    /// How much of it, for each key, what was lent before included.
    pub amount: u32,
}

/// A schema, by its place and its name.
type SchemaAt = (Option<ClusterName>, Arc<str>);

/// What is this replica's of all limits. One per process.
#[derive(Debug)]
pub struct FlowShares {
    replicas: Replicas,
    governed: Arc<ArcSwap<GovernedPlaces>>,
    limits: Mutex<BTreeMap<SchemaAt, OwnShare>>,
}

/// One limit.
#[derive(Debug)]
struct OwnShare {
    /// The schema with the limit of all replicas together.
    whole: Schema,
    loans: Loans,
    /// How many requests had been refused when it was last looked at.
    refused: u64,
    /// Whether there were more since the time before, or somebody waited.
    is_short: bool,
}

impl FlowShares {
    /// Of this many replicas; no schemas yet.
    pub(crate) fn new(replicas: Replicas, governed: Arc<ArcSwap<GovernedPlaces>>) -> Self {
        Self { replicas, governed, limits: Mutex::default() }
    }

    /// Takes over other schemas: this replica has its part of each, by what is lent and borrowed of those that stay.
    ///
    /// # Errors
    /// [`FlowSettingsError`]; then nothing is changed.
    pub(crate) fn set(&self, settings: FlowSettings) -> Result<(), FlowSettingsError> {
        let now = Instant::now();
        let mut limits = self.limits.lock();
        let mut next = BTreeMap::new();
        let mut share = |cluster: Option<&ClusterName>, place: PlaceSchemas| {
            let own = place.schemas.into_iter().map(|whole| {
                let at = (cluster.cloned(), Arc::clone(&whole.name));
                let limit = OwnShare::next(limits.get(&at), whole);
                let own = self.replicas.share(&limit.whole, &limit.loans, now);
                next.insert(at, limit);
                own
            });
            PlaceSchemas { schemas: own.collect(), all: place.all }
        };
        let merged = share(None, settings.merged);
        let clusters = settings.clusters.into_iter().map(|(name, place)| {
            let place = share(Some(&name), place);
            (name, place)
        });
        let own = FlowSettings { merged, clusters: clusters.collect() };
        let before = self.governed.load_full();
        self.governed.store(Arc::new(before.next(own)?));
        // Policies may name one that goes for a moment longer, and nobody follows its loans any more.
        for (at, own) in limits.iter_mut().filter(|(at, _)| !next.contains_key(at)) {
            own.loans.give_up_borrowed();
            if let Some(schema) = before.schema(at.0.as_ref(), &at.1) {
                own.apply(schema, self.replicas, now);
            }
        }
        *limits = next;
        Ok(())
    }

    /// What this replica wants of the others: of each limit of which its own part does not suffice it. Call it once in
    /// a second: what was refused or waits since the last call says whether more is wanted than is used.
    pub fn wanted(&self) -> Vec<LimitShare> {
        let governed = self.governed.load();
        let mut limits = self.limits.lock();
        let wanted = limits.iter_mut().filter_map(|(at, own)| {
            let (schema, limit) = (governed.schema(at.0.as_ref(), &at.1)?, own.whole.kind.amount()?);
            own.look_at(schema);
            let needed = if own.is_short { limit } else { with_headroom(schema.used_most()).min(limit) };
            let amount = needed.checked_sub(self.replicas.part(limit)).filter(|amount| *amount > 0)?;
            let (cluster, schema) = at.clone();
            Some(LimitShare { cluster, schema, limit, amount })
        });
        wanted.collect()
    }

    /// What of that one replica is asked for: all that the others do not lend already. `other` is `None` for one that
    /// has never answered.
    pub fn asked_of(&self, other: Option<ReplicaId>, wanted: &[LimitShare]) -> Vec<LimitShare> {
        let now = Instant::now();
        let limits = self.limits.lock();
        let asked = wanted.iter().filter_map(|wish| {
            let own = limits.get(&wish.at())?;
            let amount = own.loans.asked_of(other, wish.amount, now);
            (amount > 0).then(|| LimitShare { amount, ..wish.clone() })
        });
        asked.collect()
    }

    /// Another replica asks for these: what it is lent, from now on for [`LOAN`](tributary_flow_control::LOAN). This
    /// replica has so much less at once.
    pub fn lend(&self, other: ReplicaId, asked: &[LimitShare]) -> Vec<LimitShare> {
        let now = Instant::now();
        let governed = self.governed.load();
        let mut limits = self.limits.lock();
        let lent = asked.iter().filter_map(|wish| {
            let own = limits.get_mut(&wish.at()).filter(|own| own.whole.kind.amount() == Some(wish.limit))?;
            let (schema, part) =
                (governed.schema(wish.cluster.as_ref(), &wish.schema)?, self.replicas.part(wish.limit));
            let needed = match own.is_short || own.is_short_now(schema) {
                true => part,
                false => with_headroom(schema.used_most()),
            };
            let amount = own.loans.lend(part, needed, (other, wish.amount), now);
            own.apply(schema, self.replicas, now);
            (amount > 0).then(|| LimitShare { amount, ..wish.clone() })
        });
        lent.collect()
    }

    /// Another replica has lent these; it was asked at this time.
    pub fn borrow(&self, other: ReplicaId, lent: &[LimitShare], asked: Instant) {
        let now = Instant::now();
        let governed = self.governed.load();
        let mut limits = self.limits.lock();
        for LimitShare { cluster, schema, limit, amount } in lent {
            let own = limits.get_mut(&(cluster.clone(), Arc::clone(schema)));
            if let Some(own) = own.filter(|own| own.whole.kind.amount() == Some(*limit))
                && let Some(schema) = governed.schema(cluster.as_ref(), schema)
            {
                own.loans.borrow((other, *amount), asked, now);
                own.apply(schema, self.replicas, now);
            }
        }
    }

    /// Puts into force what this replica has now that loans are over. When the next one is; `None` where there is none.
    pub fn settle(&self) -> Option<Instant> {
        let now = Instant::now();
        let governed = self.governed.load();
        let limits = self.limits.lock();
        let ends = limits.iter().filter_map(|((cluster, name), own)| {
            own.apply(governed.schema(cluster.as_ref(), name)?, self.replicas, now);
            own.loans.next_end(now)
        });
        ends.min()
    }
}

/// With what is kept beyond it.
fn with_headroom(used: u32) -> u32 {
    used.saturating_add(used.div_ceil(HEADROOM_OF_USED))
}

impl LimitShare {
    fn at(&self) -> SchemaAt {
        (self.cluster.clone(), Arc::clone(&self.schema))
    }
}

impl OwnShare {
    /// What was lent and borrowed stays so where the schema limits the same as before. What was borrowed of a limit
    /// that is lowered is given up: it may be more than all of the new one.
    fn next(before: Option<&Self>, whole: Schema) -> Self {
        let before = before.filter(|before| discriminant(&before.whole.kind) == discriminant(&whole.kind));
        let (mut loans, refused, is_short) =
            before.map(|before| (before.loans.clone(), before.refused, before.is_short)).unwrap_or_default();
        if before.is_some_and(|before| before.whole.kind.amount() > whole.kind.amount()) {
            loans.give_up_borrowed();
        }
        Self { whole, loans, refused, is_short }
    }

    fn look_at(&mut self, schema: &GovernedSchema) {
        self.is_short = self.is_short_now(schema);
        self.refused = schema.usage().refused.iter().sum();
    }

    /// Whether more came than there is room for, since it was last looked at.
    fn is_short_now(&self, schema: &GovernedSchema) -> bool {
        let usage = schema.usage();
        usage.waiting > 0 || usage.refused.iter().sum::<u64>() > self.refused
    }

    /// Puts into force what is this replica's.
    fn apply(&self, schema: &GovernedSchema, replicas: Replicas, now: Instant) {
        let own = replicas.share(&self.whole, &self.loans, now);
        if schema.in_force() != own.kind.amount() {
            schema.limit_to(&own.kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use tributary_flow_control::{LOAN, Limited, MaxRequestsInflight, SchemaKind, TokenBucket};

    use super::*;

    const FIRST: ReplicaId = ReplicaId(1);
    const SECOND: ReplicaId = ReplicaId(2);

    fn slots(max: u32) -> FlowSettings {
        let limit = MaxRequestsInflight { max, count_long_running: true };
        settings(SchemaKind::MaxRequestsInflight(Limited { limit, by: Vec::new(), queueing: None }))
    }

    fn settings(kind: SchemaKind) -> FlowSettings {
        let merged = PlaceSchemas { schemas: vec![Schema { name: "all".into(), kind }], all: None };
        FlowSettings { merged, ..FlowSettings::default() }
    }

    fn replica(settings: FlowSettings) -> FlowShares {
        let two = Replicas::of(NonZeroU32::new(2).unwrap());
        let own = FlowShares::new(two, Arc::default());
        own.set(settings).unwrap();
        own
    }

    impl FlowShares {
        fn schema(&self) -> GovernedSchema {
            self.governed.load().schema(None, "all").unwrap().clone()
        }

        fn has(&self) -> u32 {
            self.schema().in_force().unwrap()
        }
    }

    /// One asks the other for what it wants.
    fn ask(one: (&FlowShares, ReplicaId), other: (&FlowShares, ReplicaId)) {
        let wanted = one.0.wanted();
        let asked = one.0.asked_of(Some(other.1), &wanted);
        let at = Instant::now();
        one.0.borrow(other.1, &other.0.lend(one.1, &asked), at);
    }

    /// As many requests as are let in.
    async fn fill(own: &FlowShares) -> Vec<tributary_flow_control::AdmittedRequest> {
        let schema = own.schema();
        let mut held = Vec::new();
        while let Ok(one) = schema.admit(&crate::flow_control::testing_attributes()).await {
            held.push(one);
        }
        held
    }

    #[tokio::test(start_paused = true)]
    async fn one_limit_holds_over_two_and_goes_to_who_needs_it() {
        let (first, second) = (replica(slots(100)), replica(slots(100)));
        assert_eq!((first.has(), second.has(), first.wanted()), (50, 50, Vec::new()));
        let mut held = fill(&first).await;
        assert_eq!(held.len(), 50);
        for _ in 0..10 {
            ask((&first, FIRST), (&second, SECOND));
            held.extend(fill(&first).await);
            assert!(first.has() + second.has() <= 100);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!((first.has(), second.has()), (99, 1), "one is kept");
        // The other needs its part: it has it back once the loan is over.
        assert_eq!(fill(&second).await.len(), 1);
        for _ in 0..LOAN.as_secs() {
            tokio::time::advance(Duration::from_secs(1)).await;
            second.wanted();
            let _ = fill(&second).await;
            ask((&first, FIRST), (&second, SECOND));
        }
        for own in [&first, &second] {
            own.settle();
        }
        assert_eq!((first.has(), second.has()), (50, 50));
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_is_lowered_holds_at_once_whatever_was_borrowed() {
        let (first, second) = (replica(slots(1_000)), replica(slots(1_000)));
        let mut held = fill(&first).await;
        for _ in 0..10 {
            ask((&first, FIRST), (&second, SECOND));
            held.extend(fill(&first).await);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(first.has() > 800, "{}", first.has());
        // Another is larger: nothing is given up.
        first.set(slots(1_100)).unwrap();
        assert!(first.has() > 850, "{}", first.has());
        first.set(slots(1_000)).unwrap();
        let (mut at_first, mut at_second) = (first.has(), second.has());
        assert!(at_first + at_second <= 1_000, "{at_first} and {at_second}");
        ask((&first, FIRST), (&second, SECOND));
        for own in [&first, &second] {
            own.set(slots(10)).unwrap();
        }
        (at_first, at_second) = (first.has(), second.has());
        assert!(at_first + at_second <= 10, "{at_first} and {at_second} of 10");
        assert_eq!(fill(&second).await.len() as u32, at_second);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_borrowed_is_over_when_the_other_is_lost_and_stays_when_the_configuration_changes() {
        let bucket = |qps, burst| {
            let [qps, burst] = [qps, burst].map(|number| NonZeroU32::new(number).unwrap());
            settings(SchemaKind::TokenBucket(Limited {
                limit: TokenBucket { qps, burst },
                by: Vec::new(),
                queueing: None,
            }))
        };
        let (first, second) = (replica(bucket(100, 200)), replica(bucket(100, 200)));
        assert_eq!(fill(&first).await.len(), 100, "half of the burst");
        ask((&first, FIRST), (&second, SECOND));
        assert_eq!((first.has(), second.has()), (75, 25));
        first.set(bucket(100, 400)).unwrap();
        assert_eq!(first.has(), 75);
        // Another limit there is another configuration: nothing of it is lent.
        second.set(bucket(200, 400)).unwrap();
        let _ = fill(&first).await;
        ask((&first, FIRST), (&second, SECOND));
        assert_eq!((first.has(), second.has()), (75, 75));
        let end = first.settle().unwrap();
        assert_eq!(end - Instant::now(), LOAN);
        tokio::time::advance(LOAN).await;
        assert_eq!((first.settle(), first.has()), (None, 50));
        // What limits something else has lent nothing.
        ask((&first, FIRST), (&second, SECOND));
        first.set(slots(100)).unwrap();
        assert_eq!((first.has(), first.settle()), (50, None));
        assert!(
            first
                .set(FlowSettings {
                    merged: PlaceSchemas { all: Some("no".into()), ..PlaceSchemas::default() },
                    ..FlowSettings::default()
                })
                .is_err()
        );
        assert_eq!(first.has(), 50);
    }
}
