//! What of each schema's limit is this replica's, where several serve together, and what it lends the others and
//! borrows of them. Who asks them, and over what, is the server's.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::ClusterName;
use tributary_flow_control::{GovernedSchema, Loans, ReplicaId, Replicas, Schema};

use crate::flow_control::{FlowSettings, FlowSettingsError, GovernedPlaces, PlaceSchemas};

/// How much more than it uses a replica keeps, or asks for: an eighth, so that a little more demand meets no refusal.
const HEADROOM_OF_USED: u32 = 8;

/// Of a limit that each key has of its own a replica keeps one in so many of its part for each, whatever they use:
/// half. What is lent is lent of all keys, and one of them that is refused at another replica, somebody's storm, is no
/// reason to leave the others here with what the busiest of them happens to use.
const KEPT_FOR_EACH_KEY: u32 = 2;

/// How long what the busiest key uses is not counted anew for others that ask: 100 ms. Nobody is let in while it is
/// counted, some 100 µs with all the keys that there may be, and each of the others asks once in a second.
const COUNTED_FOR: Duration = Duration::from_millis(100);

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
    governed: Arc<ArcSwap<GovernedPlaces>>,
    own: Mutex<OwnShares>,
}

/// This replica's of all limits.
#[derive(Debug)]
struct OwnShares {
    /// Those that are configured.
    configured: Replicas,
    /// The same, or more, where more answer.
    replicas: Replicas,
    limits: BTreeMap<SchemaAt, OwnShare>,
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
    /// What was last counted.
    counted: Option<UsedMost>,
}

/// What the key used that used most.
#[derive(Clone, Copy, Debug)]
struct UsedMost {
    at: Instant,
    used: u32,
    /// How many requests of all keys had begun.
    begun: u64,
}

impl FlowShares {
    /// Of this many replicas; no schemas yet.
    pub(crate) fn new(replicas: Replicas, governed: Arc<ArcSwap<GovernedPlaces>>) -> Self {
        let own = OwnShares { configured: replicas, replicas, limits: BTreeMap::new() };
        Self { governed, own: Mutex::new(own) }
    }

    /// So many replicas answer now, this one among them. Where those are more than are configured, as while one takes
    /// the place of another, each has its part of so many, so that all together have no more than the limit.
    pub fn answering(&self, count: u32) {
        let mut own = self.own.lock();
        let replicas = own.configured.of_whom_answer(count);
        if std::mem::replace(&mut own.replicas, replicas) == replicas {
            return;
        }
        let (now, governed) = (Instant::now(), self.governed.load());
        for ((cluster, name), limit) in &own.limits {
            if let Some(schema) = governed.schema(cluster.as_ref(), name) {
                limit.apply(schema, replicas, now);
            }
        }
    }

    /// How many replicas share each limit now.
    pub fn count(&self) -> NonZeroU32 {
        self.own.lock().replicas.count()
    }

    /// Takes over other schemas: this replica has its part of each, by what is lent and borrowed of those that stay.
    ///
    /// # Errors
    /// [`FlowSettingsError`]; then nothing is changed.
    pub(crate) fn set(&self, settings: FlowSettings) -> Result<(), FlowSettingsError> {
        let now = Instant::now();
        let mut own = self.own.lock();
        let OwnShares { replicas, limits, .. } = &mut *own;
        let mut next = BTreeMap::new();
        let mut share = |cluster: Option<&ClusterName>, place: PlaceSchemas| {
            let own = place.schemas.into_iter().map(|whole| {
                let at = (cluster.cloned(), Arc::clone(&whole.name));
                let limit = OwnShare::next(limits.get(&at), whole);
                let own = replicas.share(&limit.whole, &limit.loans, now);
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
                own.apply(schema, *replicas, now);
            }
        }
        *limits = next;
        Ok(())
    }

    /// What this replica wants of the others: of each limit of which its own part does not suffice it. Call it once in
    /// a second: what was refused or waits since the last call says whether more is wanted than is used.
    pub fn wanted(&self) -> Vec<LimitShare> {
        let governed = self.governed.load();
        let mut own = self.own.lock();
        let OwnShares { replicas, limits, .. } = &mut *own;
        let wanted = limits.iter_mut().filter_map(|(at, own)| {
            let (schema, limit) = (governed.schema(at.0.as_ref(), &at.1)?, own.whole.kind.amount()?);
            own.look_at(schema);
            let needed = if own.is_short { limit } else { with_headroom(schema.used_most()).min(limit) };
            let amount = needed.checked_sub(replicas.part(limit)).filter(|amount| *amount > 0)?;
            let (cluster, schema) = at.clone();
            Some(LimitShare { cluster, schema, limit, amount })
        });
        wanted.collect()
    }

    /// What of that one replica is asked for: all that the others do not lend already. `other` is `None` for one that
    /// has never answered.
    pub fn asked_of(&self, other: Option<ReplicaId>, wanted: &[LimitShare]) -> Vec<LimitShare> {
        let now = Instant::now();
        let all = self.own.lock();
        let asked = wanted.iter().filter_map(|wish| {
            let own = all.limits.get(&wish.at())?;
            let amount = own.loans.asked_of(other, wish.amount, now);
            (amount > 0).then(|| LimitShare { amount, ..wish.clone() })
        });
        asked.collect()
    }

    /// Another replica asks for these: what it is lent, from now on for [`LOAN`](tributary_flow_control::LOAN). This
    /// replica has so much less at once. Of a limit that it names several times the first counts.
    pub fn lend(&self, other: ReplicaId, asked: &[LimitShare]) -> Vec<LimitShare> {
        let now = Instant::now();
        let governed = self.governed.load();
        let mut own = self.own.lock();
        let OwnShares { replicas, limits, .. } = &mut *own;
        let lent = each_once(asked).filter_map(|wish| {
            let own = limits.get_mut(&wish.at()).filter(|own| own.whole.kind.amount() == Some(wish.limit))?;
            let (schema, part) = (governed.schema(wish.cluster.as_ref(), &wish.schema)?, replicas.part(wish.limit));
            let needed = match own.is_short || own.is_short_now(schema) {
                true => part,
                false => with_headroom(own.used_most(schema, now)),
            };
            let kept = if own.whole.kind.is_of_each_key() { part.div_ceil(KEPT_FOR_EACH_KEY) } else { 0 };
            let amount = own.loans.lend(part, needed.max(kept), (other, wish.amount), now);
            own.apply(schema, *replicas, now);
            (amount > 0).then(|| LimitShare { amount, ..wish.clone() })
        });
        lent.collect()
    }

    /// Another replica has lent these; it was asked at this time. Of a limit that it names several times the first
    /// counts.
    pub fn borrow(&self, other: ReplicaId, lent: &[LimitShare], asked: Instant) {
        let now = Instant::now();
        let governed = self.governed.load();
        let mut own = self.own.lock();
        let OwnShares { replicas, limits, .. } = &mut *own;
        for LimitShare { cluster, schema, limit, amount } in each_once(lent) {
            let own = limits.get_mut(&(cluster.clone(), Arc::clone(schema)));
            if let Some(own) = own.filter(|own| own.whole.kind.amount() == Some(*limit))
                && let Some(schema) = governed.schema(cluster.as_ref(), schema)
            {
                own.loans.borrow((other, *amount), asked, now);
                own.apply(schema, *replicas, now);
            }
        }
    }

    /// Puts into force what this replica has now that loans are over. When the next one is; `None` where there is none.
    pub fn settle(&self) -> Option<Instant> {
        let now = Instant::now();
        let governed = self.governed.load();
        let all = self.own.lock();
        let ends = all.limits.iter().filter_map(|((cluster, name), own)| {
            own.apply(governed.schema(cluster.as_ref(), name)?, all.replicas, now);
            own.loans.next_end(now)
        });
        ends.min()
    }
}

/// Each limit once, however often a message names it.
fn each_once(shares: &[LimitShare]) -> impl Iterator<Item = &LimitShare> {
    let mut told = BTreeSet::new();
    shares.iter().filter(move |share| told.insert((share.cluster.as_ref(), &*share.schema)))
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
        Self { whole, loans, refused, is_short, counted: None }
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

    /// What the key uses that uses most, or more: what has begun since that was last counted may all have been its,
    /// also what was let in provisionally.
    fn used_most(&mut self, schema: &GovernedSchema, now: Instant) -> u32 {
        let begun = schema.begun();
        let before = self.counted.filter(|counted| now.saturating_duration_since(counted.at) < COUNTED_FOR);
        let counted = before.unwrap_or_else(|| UsedMost { at: now, used: schema.used_most(), begun });
        self.counted = Some(counted);
        let since = u32::try_from(begun.saturating_sub(counted.begun)).unwrap_or(u32::MAX);
        counted.used.saturating_add(since)
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
    use tributary_flow_control::{Dimension, LOAN, Limited, MaxRequestsInflight, SchemaKind, TokenBucket};

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

    /// More comes to the first than there is room for, for ten seconds, in each of which it asks the second for that.
    async fn storm(first: &FlowShares, second: &FlowShares) -> Vec<tributary_flow_control::AdmittedRequest> {
        let whole = first.has() + second.has();
        let mut held = fill(first).await;
        for _ in 0..10 {
            ask((first, FIRST), (second, SECOND));
            held.extend(fill(first).await);
            assert!(first.has() + second.has() <= whole);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        held
    }

    /// The second needs its part for as long as a loan lasts, while the first asks for more.
    async fn need_back(first: &FlowShares, second: &FlowShares) {
        for _ in 0..LOAN.as_secs() {
            tokio::time::advance(Duration::from_secs(1)).await;
            second.wanted();
            let _refused = fill(second).await;
            ask((first, FIRST), (second, SECOND));
        }
        for own in [first, second] {
            own.settle();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_limit_holds_over_two_and_goes_to_who_needs_it() {
        let (first, second) = (replica(slots(100)), replica(slots(100)));
        assert_eq!((first.has(), second.has(), first.wanted()), (50, 50, Vec::new()));
        let half = fill(&first).await;
        assert_eq!(half.len(), 50);
        let _more = storm(&first, &second).await;
        assert_eq!((first.has(), second.has()), (99, 1), "one is kept");
        // The other needs its part: it has it back once the loan is over.
        assert_eq!(fill(&second).await.len(), 1);
        need_back(&first, &second).await;
        assert_eq!((first.has(), second.has()), (50, 50));
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_one_message_names_often_is_lent_and_borrowed_once() {
        let (first, second) = (replica(slots(100)), replica(slots(100)));
        let wish = |amount| LimitShare { cluster: None, schema: "all".into(), limit: 100, amount };
        let asked: Vec<_> = [5].into_iter().chain([1; 4_095]).map(wish).collect();
        let lent = second.lend(FIRST, &asked);
        assert_eq!((lent, second.has()), (vec![wish(5)], 45));
        first.borrow(SECOND, &[wish(5), wish(40)], Instant::now());
        assert_eq!(first.has(), 55);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_used_is_not_counted_for_each_question_and_never_taken_for_less() {
        let own = replica(slots(100));
        let lent = || own.lend(FIRST, &[LimitShare { cluster: None, schema: "all".into(), limit: 100, amount: 100 }]);
        let amounts = || lent().iter().map(|share| share.amount).collect::<Vec<_>>();
        let (schema, mut held) = (own.schema(), Vec::new());
        for _ in 0..40 {
            held.push(schema.admit(&crate::flow_control::testing_attributes()).await.unwrap());
        }
        assert_eq!(amounts(), [3], "of five");
        held.clear();
        assert_eq!(amounts(), [4], "it was counted just now");
        tokio::time::advance(COUNTED_FOR).await;
        assert_eq!(amounts(), [27]);
        for _ in 0..20 {
            held.push(schema.admit(&crate::flow_control::testing_attributes()).await.unwrap());
        }
        assert_eq!(amounts(), [27], "what was let in since is used");
    }

    /// What may turn out to count elsewhere has its place until then.
    #[tokio::test(start_paused = true)]
    async fn what_is_let_in_provisionally_is_not_lent() {
        let own = replica(slots(100));
        let lend = || own.lend(FIRST, &[LimitShare { cluster: None, schema: "all".into(), limit: 100, amount: 100 }]);
        let schema = own.schema();
        lend();
        assert_eq!(own.has(), 25, "half of what is not used is lent");
        let attributes = crate::flow_control::testing_attributes();
        let held: Vec<_> = (0..20).map(|_| schema.admit_at_all(&attributes, &[None]).unwrap()).collect();
        lend();
        assert!(own.has() as usize >= held.len(), "{} of {}", own.has(), held.len());
    }

    /// What one user is refused at a replica is asked for of all users' limits at the others.
    #[tokio::test(start_paused = true)]
    async fn one_keys_storm_leaves_half_of_their_part_to_the_keys_of_another_replica() {
        let limit = MaxRequestsInflight { max: 100, count_long_running: true };
        let by = vec![Dimension::User];
        let of_each = || settings(SchemaKind::MaxRequestsInflight(Limited { limit, by: by.clone(), queueing: None }));
        let (first, second) = (replica(of_each()), replica(of_each()));
        let _held = storm(&first, &second).await;
        assert_eq!((first.has(), second.has()), (75, 25), "of 50 each");
        // Whoever asks for more there has all of it back once the loan is over.
        assert_eq!(fill(&second).await.len(), 25);
        need_back(&first, &second).await;
        assert_eq!((first.has(), second.has()), (50, 50));
    }

    /// As in a rolling update, while the new pod is there and the old one is still.
    #[tokio::test(start_paused = true)]
    async fn a_surplus_replica_makes_the_parts_smaller_as_long_as_it_is_there() {
        let [first, second, surplus] = [(); 3].map(|()| replica(slots(100)));
        let all = || first.has() + second.has() + surplus.has();
        let held = fill(&first).await;
        ask((&first, FIRST), (&second, SECOND));
        assert_eq!((first.has(), second.has(), all()), (75, 25, 150), "nobody has heard of it yet");
        for own in [&first, &second, &surplus] {
            own.answering(3);
        }
        assert_eq!((first.has(), second.has(), surplus.has()), (58, 8, 33));
        tokio::time::advance(LOAN).await;
        for own in [&first, &second] {
            own.settle();
        }
        assert_eq!((first.has(), second.has(), surplus.has()), (33, 33, 33));
        // They lend each other what they do not use, as before.
        let _more = fill(&first).await;
        for other in [(&second, SECOND), (&surplus, ReplicaId(3))] {
            ask((&first, FIRST), other);
        }
        assert!(first.has() > 50 && all() <= 100, "{} of {}", first.has(), all());
        drop(held);
        tokio::time::advance(LOAN).await;
        for own in [&first, &second] {
            own.settle();
            own.answering(2);
        }
        assert_eq!((first.has(), second.has()), (50, 50), "it has gone");
        first.answering(1);
        assert_eq!(first.has(), 50, "who hears of nobody is not alone");
        first.answering(3);
        first.set(slots(10)).unwrap();
        assert_eq!((first.has(), first.count().get()), (3, 3), "of another limit, too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_is_lowered_holds_at_once_whatever_was_borrowed() {
        let (first, second) = (replica(slots(1_000)), replica(slots(1_000)));
        let _held = storm(&first, &second).await;
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
