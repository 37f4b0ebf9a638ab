//! Mirror of the roles and bindings of all clusters.

mod known;
mod probes;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::DropGuard;
use tokio_util::task::AbortOnDropHandle;
use tributary_answers::refusal::ClusterFailure;
use tributary_apimachinery::{ClusterAuthorization, ClusterName, GroupVersionResource, ObjectDecoder, UserInfo};
use tributary_authorization::{FleetRights, RbacKind, Sample};
use tributary_cacher::{Cacher, CacherConfig, CacherState, ObjectRetention, Precedence, ReflectorTuning, StaleReason};
use tributary_fleet::report::{RightsCondition, RightsDecider};
use tributary_fleet::topology::{Cluster, Fleet, next_state};
use tributary_proxy::Transport;
use tributary_sharing::limits::Limits;

pub(super) use self::known::RightsStamp;
use self::known::{KnownRights, MirrorStates};
use self::probes::ImpersonationProbes;
use super::SharedMode;
use super::actor::{Actor, UserSelector};
use super::allowed_facts::{AllowedFacts, DecisionMethod};
use super::compiled::CompiledRights;
use super::confirmation::{self, Confirmation};
use super::decider::{Decider, ReviewCause};
use super::detector::{self, MirroredRules};
use super::feed::MirrorFeed;
use super::impersonation::ImpersonationFilter;
use super::impersonation_probe::{self, ImpersonationObserver};
use super::mirror_state::{BEHIND_MAX, MirrorState};
use super::reviews::Reviews;
use super::unknown_rights_reason::{ReviewState, UnknownRightsReason};

/// Interval of checks for changed clusters and renewed credentials. Views use the same interval.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Period over which watches reopen after Tributary's credentials in a cluster are renewed. The period may be long,
/// because the old and the new credentials read the same roles and bindings.
const REOPENED_WITHIN: Duration = Duration::from_secs(50);

/// Maximum size of the objects of one RBAC kind in one cluster, in bytes. 64 MiB hold some hundred thousand objects,
/// ten times the number in large clusters. Above the limit, the rights in the cluster are unknown.
const COLLECTION_BYTES_MAX: u64 = 64 << 20;

/// Part of the memory limit for all objects that one RBAC kind of one cluster may take: a 64th, which is 16 MiB of 1
/// GiB, or some thirty thousand objects. So the four kinds of a cluster take at most a 16th, however many objects users
/// create.
const PART_OF_ALL: u64 = 64;

/// Mirror of the roles and bindings of all clusters.
pub struct RightsMirror {
    fleet: Arc<Fleet>,
    mode: SharedMode,
    kind_bytes: u64,
    compiled: Arc<CompiledRights>,
    reviews: Arc<Reviews>,
    members: Mutex<MirroredClusters>,
    mirrors: ArcSwap<MirrorStates>,
    /// Names of the users that Tributary denies.
    denied: ArcSwap<BTreeSet<String>>,
}

#[derive(Default)]
struct MirroredClusters {
    by_name: BTreeMap<ClusterName, MirroredCluster>,
    probes: ImpersonationProbes,
    known: BTreeSet<ClusterName>,
    /// Last logged reason for unknown rights, for each cluster with unknown rights.
    unknown_rights_reasons: BTreeMap<ClusterName, UnknownRightsReason>,
}

impl MirroredClusters {
    /// Sets for each cluster whether its other collections may resume only after its roles and bindings are up to date.
    fn set_precedence(&self, known: &BTreeSet<ClusterName>, mirrors: &BTreeMap<ClusterName, KnownRights>) {
        for (name, member) in &self.by_name {
            let precedence = member.cluster.precedence();
            match mirrors.get(name).map(|own| &own.state) {
                Some(MirrorState::Current) => precedence.begin(),
                Some(MirrorState::Behind { .. }) if known.contains(name) => precedence.lost(),
                // Without known rights, no objects of the cluster are shown, so its collections may be read in any
                // order.
                _ => precedence.nothing(),
            }
        }
    }

    /// Returns the reason if the rights of users in a cluster are unknown, else `None`.
    fn unknown_rights_reason_of(&self, cluster: &ClusterName, known: &KnownRights) -> Option<UnknownRightsReason> {
        let member = self.by_name.get(cluster)?;
        let kinds = RbacKind::ALL.into_iter().map(RbacKind::resource);
        let states: Vec<_> = kinds.zip(member.cachers.iter().map(|cacher| cacher.state())).collect();
        let review_state = if known.is_frozen { ReviewState::Frozen } else { ReviewState::Sent };
        UnknownRightsReason::from_collections(&states, known.state.holds(Instant::now()), &known.decider, review_state)
    }

    /// Logs the reason for unknown rights in a cluster if it differs from the last logged reason.
    fn log_unknown_rights_reason(&mut self, cluster: &ClusterName, known: &KnownRights) {
        let Some(unknown_rights_reason) =
            self.unknown_rights_reason_of(cluster, known).filter(UnknownRightsReason::is_trouble)
        else {
            self.unknown_rights_reasons.remove(cluster);
            return;
        };
        if self.unknown_rights_reasons.get(cluster) != Some(&unknown_rights_reason) {
            tracing::warn!(%cluster, reason = %unknown_rights_reason,
                "the rights of users in the cluster are unknown: answers omit the cluster, or are refused");
            self.unknown_rights_reasons.insert(cluster.clone(), unknown_rights_reason);
        }
    }
}

struct MirroredCluster {
    /// The cluster for which the mirror was started. A changed configuration creates a new [`Cluster`].
    cluster: Arc<Cluster>,
    /// Number of credential renewals that were complete when the cachers last reopened their watches.
    renewals: u64,
    feed: Arc<MirrorFeed>,
    cachers: Vec<Arc<Cacher>>,
    confirmation: Arc<Confirmation>,
    _confirming: AbortOnDropHandle<()>,
    decider: Decider,
    _detector: Option<DropGuard>,
    /// Time up to which the mirror with the previous configuration of the same cluster was complete. `None` if there
    /// was none.
    earlier: Option<Instant>,
}

impl MirroredCluster {
    /// Returns the detected method. `Undecided` if the configuration sets the method.
    fn found(&self) -> Decider {
        match self.cluster.setup.authorization {
            ClusterAuthorization::Auto => self.decider.clone(),
            _ => Decider::Undecided,
        }
    }

    fn log_changes(&mut self) {
        let renewals = self.cluster.renewals();
        if self.renewals != renewals {
            self.renewals = renewals;
            self.cachers.iter().for_each(|cacher| cacher.reopen(REOPENED_WITHIN));
        }
    }
}

impl RightsMirror {
    /// Starts to follow the roles and bindings of all clusters. Must be called within a tokio runtime.
    pub fn start(fleet: Arc<Fleet>, mode: SharedMode, limits: &Limits) -> Arc<Self> {
        let mut changes = fleet.changes();
        let mirror = Arc::new(Self {
            reviews: Reviews::new(Arc::clone(&fleet), mode.clone()),
            fleet,
            mode,
            kind_bytes: kind_bytes(limits),
            compiled: Arc::default(),
            members: Mutex::default(),
            mirrors: ArcSwap::default(),
            denied: ArcSwap::default(),
        });
        let weak = Arc::downgrade(&mirror);
        mirror.fleet.on_forgotten(move |cluster, _| {
            if let Some(mirror) = weak.upgrade() {
                mirror.forget_cluster(cluster);
            }
        });
        let weak = Arc::downgrade(&mirror);
        tokio::spawn(async move {
            loop {
                let Some(mirror) = weak.upgrade() else { break };
                mirror.follow_fleet();
                let next = mirror.next_check();
                drop(mirror);
                tokio::select! {
                    changed = changes.changed() => if changed.is_err() { break },
                    () = sleep_until(next) => {}
                }
            }
        });
        mirror
    }

    #[cfg(test)]
    pub(super) fn without_clusters() -> Arc<Self> {
        use tributary_cacher::ObjectMemoryLimit;
        use tributary_fleet::topology::{MemberShareMetrics, MemberUnreadBytes};

        let object_memory = ObjectMemoryLimit::new(Limits::default().total_collection_bytes, |_| ());
        let (unread, shares) = (MemberUnreadBytes::default(), MemberShareMetrics::default());
        let fleet = Fleet::within(object_memory, unread, shares, std::collections::BTreeMap::new());
        Self::start(fleet, SharedMode::default(), &Limits::default())
    }

    /// Returns the current compiled rights. The returned value is immutable.
    pub fn compiled(&self) -> Guard<Arc<FleetRights>> {
        self.compiled.now()
    }

    pub(super) fn decision_method(&self, cluster: &ClusterName) -> Option<DecisionMethod> {
        self.mirrors.load().by_name.get(cluster)?.decision_method(Instant::now())
    }

    /// Returns the facts for a decision that the cluster itself does not check again. If the mirrored roles and
    /// bindings are up to date, the decision uses them, else only results of reviews since `begun`. Read the [compiled
    /// rights](Self::compiled) after this call, because rights are compiled before the state of the mirror is
    /// published.
    pub(super) fn current_facts(&self, cluster: &ClusterName, begun: Instant) -> AllowedFacts {
        let mirrors = self.mirrors.load();
        let known = mirrors.by_name.get(cluster);
        // While a cluster does not answer, a lost right may go unnoticed even though its watches are not interrupted
        // yet.
        let is_in_reach = || self.cluster(cluster).is_some_and(|own| !own.is_out_of_reach());
        match known.and_then(|known| Some((known, known.decision_method(Instant::now())?))) {
            Some((known, DecisionMethod::Rules)) if !(is_in_reach() && known.is_of_now()) => {
                AllowedFacts::ReviewedSince(begun)
            }
            Some((_, decision_method)) => AllowedFacts::Current(Some(decision_method)),
            None => AllowedFacts::Current(None),
        }
    }

    pub(super) fn impersonation_filter(&self, cluster: &ClusterName) -> ImpersonationFilter {
        match self.mirrors.load().constrained.contains(cluster) {
            true => ImpersonationFilter::Constrained,
            false => ImpersonationFilter::Legacy,
        }
    }

    pub(super) fn cluster(&self, name: &ClusterName) -> Option<Arc<Cluster>> {
        self.fleet.cluster(name)
    }

    pub(super) fn reviews(&self) -> &Arc<Reviews> {
        &self.reviews
    }

    /// Returns whether the rights in a cluster are known now.
    pub fn knows(&self, cluster: &ClusterName) -> bool {
        self.mirrors.load().by_name.get(cluster).is_some_and(|known| known.is_valid(Instant::now()))
    }

    /// Stamp of the current rights of the acting user and of the sender.
    pub(super) fn stamp(&self, acting: &UserInfo, user: Option<&UserInfo>) -> RightsStamp {
        // The compiled rights are read before the state of the mirrors, because rights are compiled before the state is
        // published.
        let compiled = self.compiled.now();
        let acting = compiled.generation_of(acting);
        let generations = [acting, user.map_or(acting, |user| compiled.generation_of(user))];
        drop(compiled);
        RightsStamp { generations, mirrors: self.mirrors.load_full() }
    }

    /// Returns how up to date the rights in a cluster are.
    pub fn condition_of(&self, cluster: &ClusterName) -> RightsCondition {
        let mirrors = self.mirrors.load();
        mirrors.by_name.get(cluster).map(|known| known.state.condition(Instant::now())).unwrap_or_default()
    }

    /// Returns the method by which rights in a cluster are decided, and the reason if the cluster needs access reviews.
    pub fn decider_of(&self, cluster: &ClusterName) -> (RightsDecider, Option<String>) {
        match self.mirrors.load().by_name.get(cluster) {
            Some(KnownRights { state: MirrorState::Live, .. }) => (RightsDecider::Live, None),
            Some(KnownRights { decider: Decider::Rbac, .. }) => (RightsDecider::Rbac, None),
            Some(KnownRights { decider: Decider::Review(cause), .. }) => {
                (RightsDecider::Review, Some(cause.to_string()))
            }
            Some(KnownRights { decider: Decider::Undecided, .. }) | None => (RightsDecider::Undecided, None),
        }
    }

    /// Returns the reason if the rights of users in a cluster are unknown, else `None`.
    pub fn unknown_rights_reason_of(&self, cluster: &ClusterName) -> Option<String> {
        let known = self.mirrors.load().by_name.get(cluster).cloned()?;
        let unknown_rights_reason = self.members.lock().unknown_rights_reason_of(cluster, &known);
        let too_many =
            || self.compiled.now().exceeds_subject_limit(cluster).then_some(UnknownRightsReason::TooManySubjects);
        unknown_rights_reason.or_else(too_many).map(|unknown_rights_reason| unknown_rights_reason.to_string())
    }

    /// Returns whether a cluster has more roles or bindings than the limits allow. A user with rights in a single
    /// namespace can create that many bindings.
    pub(super) fn is_too_large(&self, cluster: &ClusterName) -> bool {
        let members = self.members.lock();
        let mut cachers = members.by_name.get(cluster).into_iter().flat_map(|member| &member.cachers);
        cachers.any(|cacher| {
            matches!(cacher.state().reason(), Some(StaleReason::TooLarge(_) | StaleReason::MemoryLimitReached { .. }))
        })
    }

    /// Returns the clusters whose rights are unknown, each with the reason.
    pub fn unknown_rights_reasons(&self) -> Vec<ClusterFailure> {
        let names = self.clusters().into_iter();
        let causes = names.filter_map(|cluster| Some((self.unknown_rights_reason_of(&cluster)?, cluster)));
        causes.map(|(cause, cluster)| ClusterFailure { cluster, cause, age: None }).collect()
    }

    /// Returns whether the actor's rights are unknown in some clusters, and all these clusters need a repair before the
    /// rights become known. Clusters that the actor cannot reach are ignored, because answers to the actor must not
    /// reveal their state.
    pub(super) fn has_lasting_obstacle(&self, actor: &Actor) -> bool {
        let compiled = self.compiled.now();
        let reasons: BTreeMap<_, _> = {
            let members = self.members.lock();
            members.unknown_rights_reasons.iter().map(|(name, reason)| (name.clone(), reason.lasts())).collect()
        };
        let clusters = self.fleet.clusters();
        let reachable = clusters.iter().filter(|(name, _)| actor.reaches(name).is_ok());
        let lasting = reachable.filter_map(|(name, cluster)| {
            let is_silent = self.decision_method(name) != Some(DecisionMethod::Rules) && cluster.is_out_of_reach();
            let is_beyond = |user_selector| compiled.has_unknown_rights(name, actor.rbac_user_in(name, user_selector));
            let is_lasting = is_silent || [UserSelector::User, UserSelector::Acting].into_iter().any(is_beyond);
            is_lasting.then_some(true).or_else(|| reasons.get(name).copied())
        });
        let mut lasting = lasting.peekable();
        lasting.peek().is_some() && lasting.all(|lasts| lasts)
    }

    /// Sets the users that Tributary denies, and notifies the followers of rights.
    pub fn deny(&self, users: BTreeSet<String>) {
        self.denied.store(Arc::new(users));
        self.compiled.record_known_clusters();
    }

    /// Sets the clusters to which Tributary sends no access reviews. Their last review results stay valid as long as
    /// the results of unreachable clusters.
    pub fn freeze(&self, clusters: BTreeSet<ClusterName>) {
        let before = self.reviews.answers().freeze(clusters.clone());
        if *before == clusters {
            return;
        }
        let mut members = self.members.lock();
        before.symmetric_difference(&clusters).for_each(|name| self.state_changed_of(&mut members, name));
        drop(members);
        self.compiled.record_known_clusters();
    }

    /// Notifies all watches and streams that follow rights.
    pub fn notify_followers(&self) {
        self.compiled.record_known_clusters();
    }

    /// Returns whether Tributary denies the sender. The list of denied users may contain the name that the
    /// authenticator reports, or the name that clusters see.
    pub fn denies(&self, actor: &Actor) -> bool {
        let denied = self.denied.load();
        !denied.is_empty() && actor.sender_names().any(|name| denied.contains(name))
    }

    /// Returns the maximum duration of a stream.
    pub fn max_stream_age(&self) -> Option<Duration> {
        self.mode.max_stream_age
    }

    /// Returns the names of the configured clusters.
    pub fn clusters(&self) -> Vec<ClusterName> {
        self.fleet.clusters().keys().cloned().collect()
    }

    /// Subscribes to changes of rights and of the set of clusters with known rights.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.compiled.changes()
    }

    /// Returns the time of the next check: after [`CHECK_INTERVAL`], or earlier if known rights expire.
    fn next_check(&self) -> Instant {
        let now = Instant::now();
        let look = now + CHECK_INTERVAL;
        self.mirrors.load().expires_at.filter(|at| *at > now).map_or(look, |at| at.min(look))
    }

    fn follow_fleet(self: &Arc<Self>) {
        // The lock is taken before the clusters are read. So a cluster that is removed meanwhile is not added again.
        let mut members = self.members.lock();
        let clusters = self.fleet.clusters();
        members.by_name.retain(|name, member| {
            let stays = clusters.contains_key(name);
            if !stays {
                member.feed.end();
                self.compiled.leave(name);
            }
            stays
        });
        members.probes.follow(&clusters, |cluster| self.probe(cluster));
        for (name, cluster) in clusters.iter() {
            match is_live(cluster) {
                true => self.forget(&mut members.by_name, name),
                false => self.follow(&mut members.by_name, name, cluster),
            }
        }
        let state = |(name, cluster): (&ClusterName, &Arc<Cluster>)| match is_live(cluster) {
            true => KnownRights::none(MirrorState::Live),
            false => self.known_of(name, members.by_name.get(name)),
        };
        let mirrors: BTreeMap<_, _> = clusters.iter().map(|it| (it.0.clone(), state(it))).collect();
        mirrors.iter().for_each(|(name, known)| members.log_unknown_rights_reason(name, known));
        members.unknown_rights_reasons.retain(|name, _| clusters.contains_key(name));
        self.publish(&mut members, mirrors);
    }

    /// Removes the rights in a cluster that is no longer configured, or whose name now belongs to a different cluster.
    fn forget_cluster(&self, name: &ClusterName) {
        let mut members = self.members.lock();
        self.forget(&mut members.by_name, name);
        let mut mirrors = self.mirrors.load().by_name.clone();
        mirrors.remove(name);
        self.publish(&mut members, mirrors);
        self.reviews.answers().forget(name);
    }

    fn probe(self: &Arc<Self>, cluster: &Arc<Cluster>) -> Option<DropGuard> {
        let _of_members = self.fleet.enter();
        let seen: Weak<dyn ImpersonationObserver> = Arc::<Self>::downgrade(self);
        impersonation_probe::start(seen, cluster)
    }

    fn follow(
        self: &Arc<Self>,
        members: &mut BTreeMap<ClusterName, MirroredCluster>,
        name: &ClusterName,
        cluster: &Arc<Cluster>,
    ) {
        if members.get(name).is_some_and(|member| member.cluster.incarnation() != cluster.incarnation()) {
            self.forget(members, name);
        }
        let (earlier, cachers) = match members.get_mut(name) {
            Some(member) if Arc::ptr_eq(&member.cluster, cluster) => return member.log_changes(),
            Some(member) => match self.replace(name, member) {
                Some(earlier) => (Some((earlier, member.found())), member.cachers.clone()),
                None => (None, Vec::new()),
            },
            None => (None, Vec::new()),
        };
        if let Ok(transport) = cluster.transport() {
            let member = self.begin(cluster, &transport, earlier, &cachers);
            members.insert(name.clone(), member);
        } else if members.remove(name).is_some() {
            self.compiled.leave(name);
        }
    }

    fn forget(&self, members: &mut BTreeMap<ClusterName, MirroredCluster>, name: &ClusterName) {
        if let Some(member) = members.remove(name) {
            member.feed.end();
            self.compiled.leave(name);
        }
    }

    /// Ends the mirror that a cluster had before a change of its configuration. The compiled rights stay. Returns the
    /// time up to which the mirror was complete.
    fn replace(&self, name: &ClusterName, before: &MirroredCluster) -> Option<Instant> {
        before.feed.end();
        let known = match self.state_of(Some(before)) {
            MirrorState::Unread | MirrorState::Live => None,
            MirrorState::Current => Some(Instant::now()),
            MirrorState::Behind { since, .. } => Some(since),
        };
        if known.is_none() {
            self.compiled.leave(name);
        }
        known
    }

    fn begin(
        self: &Arc<Self>,
        cluster: &Arc<Cluster>,
        transport: &Transport,
        earlier: Option<(Instant, Decider)>,
        before: &[Arc<Cacher>],
    ) -> MirroredCluster {
        let _of_members = self.fleet.enter();
        let feed = MirrorFeed::new(&self.compiled, cluster.name().clone());
        let mut before = before.iter().map(|cacher| &**cacher);
        let cachers = RbacKind::ALL.into_iter().map(|kind| {
            let resource = GroupVersionResource::new(RbacKind::GROUP, "v1", kind.resource());
            let config = CacherConfig {
                cluster: cluster.name().clone(),
                decoder: ObjectDecoder::new(&resource.group_version().to_string(), kind.as_str(), [].into()),
                resource,
                namespace: None,
                list_permits: cluster.list_permits().clone(),
                // RBAC objects may use the memory reserve. So a user who fills the memory with other objects does not
                // make rights unknown.
                object_memory: self.fleet.object_memory().with_reserve(),
                precedence: Precedence::default(),
                retention: ObjectRetention::UntilPublished,
                tuning: ReflectorTuning { collection_size_max: self.kind_bytes, ..ReflectorTuning::default() },
            };
            let cacher = Arc::new(Cacher::start_after(before.next(), config, transport.clone(), feed.for_kind(kind)));
            self.forward_states(cluster, &cacher);
            cacher
        });
        let cachers: Vec<_> = cachers.collect();
        let confirmation = Confirmation::new(&cachers);
        let (unconfirmed, precedence, confirmed) =
            (cachers.clone(), cluster.precedence().clone(), Arc::clone(&confirmation));
        let _confirming =
            AbortOnDropHandle::new(tokio::spawn(confirmation::confirm(unconfirmed, precedence, confirmed)));
        let renewals = cluster.renewals();
        let (earlier, found) = earlier.unzip();
        let rules: Weak<dyn MirroredRules> = Arc::<Self>::downgrade(self);
        let (decider, _detector) = match cluster.setup.authorization {
            // The method that was detected before a change of the configuration stays in use until the next detection.
            ClusterAuthorization::Auto => (found.unwrap_or_default(), detector::start(rules, cluster)),
            ClusterAuthorization::Rbac => (Decider::Rbac, None),
            ClusterAuthorization::Review => (Decider::Review(ReviewCause::Configured), detector::start(rules, cluster)),
            ClusterAuthorization::Live => (Decider::Review(ReviewCause::Configured), None),
        };
        let cluster = Arc::clone(cluster);
        MirroredCluster { cluster, renewals, feed, cachers, confirmation, _confirming, decider, _detector, earlier }
    }

    /// Forwards each state of a cacher, and each change of its cluster's health, to the mirror. The task ends with the
    /// cacher.
    fn forward_states(self: &Arc<Self>, cluster: &Arc<Cluster>, cacher: &Arc<Cacher>) {
        let (mirror, name, mut health) = (Arc::downgrade(self), cluster.name().clone(), cluster.health());
        let (of, mut states): (Weak<Cacher>, _) = (Arc::downgrade(cacher), cacher.states());
        states.mark_changed();
        tokio::spawn(async move {
            while next_state(&of, &mut states, &mut health).await {
                states.mark_unchanged();
                let Some(mirror) = mirror.upgrade() else { break };
                mirror.state_changed(&name);
            }
        });
    }

    fn state_changed(&self, name: &ClusterName) {
        self.state_changed_of(&mut self.members.lock(), name);
    }

    fn state_changed_of(&self, members: &mut MirroredClusters, name: &ClusterName) {
        let Some(member) = members.by_name.get(name) else { return };
        let known = self.known_of(name, Some(member));
        members.log_unknown_rights_reason(name, &known);
        let mut mirrors = self.mirrors.load().by_name.clone();
        mirrors.insert(name.clone(), known);
        self.publish(members, mirrors);
    }

    fn publish(&self, members: &mut MirroredClusters, mirrors: BTreeMap<ClusterName, KnownRights>) {
        let now = Instant::now();
        let known = mirrors.iter().filter(|(_, known)| known.is_valid(now)).map(|(cluster, _)| cluster.clone());
        let known: BTreeSet<_> = known.collect();
        members.set_precedence(&known, &mirrors);
        let constrained = members.probes.constrained();
        let before = self.mirrors.load();
        if members.known == known && before.by_name == mirrors && before.constrained == constrained {
            return;
        }
        for cluster in known.difference(&members.known) {
            tracing::info!(%cluster, "the rights of users in the cluster are known");
        }
        for cluster in members.known.difference(&known).filter(|cluster| mirrors.contains_key(*cluster)) {
            tracing::warn!(%cluster, "the rights of users in the cluster are no longer known");
        }
        members.known = known;
        let expires_at = mirrors.values().filter_map(|known| known.state.ends()).filter(|end| *end > now).min();
        self.mirrors.store(Arc::new(MirrorStates { by_name: mirrors, constrained, expires_at }));
        self.compiled.record_known_clusters();
    }

    fn known_of(&self, name: &ClusterName, member: Option<&MirroredCluster>) -> KnownRights {
        let decider = member.map(|member| member.decider.clone()).unwrap_or_default();
        let confirmation = member.map(|member| Arc::clone(&member.confirmation));
        let is_frozen = self.reviews.answers().is_frozen(name);
        KnownRights { state: self.state_of(member), decider, confirmation, is_frozen }
    }

    fn state_of(&self, member: Option<&MirroredCluster>) -> MirrorState {
        let Some(member) = member else { return MirrorState::Unread };
        let states: Vec<CacherState> = member.cachers.iter().map(|cacher| cacher.state()).collect();
        let valid_for = if member.cluster.is_out_of_reach() { self.mode.stale_rights } else { BEHIND_MAX };
        MirrorState::from_collections(&states, member.feed.is_following(), member.earlier, valid_for)
    }
}

impl MirroredRules for RightsMirror {
    fn changes(&self) -> watch::Receiver<u64> {
        self.compiled.changes()
    }

    fn compiled(&self) -> Guard<Arc<FleetRights>> {
        self.compiled.now()
    }

    fn samples(&self, cluster: &ClusterName, count: usize, round: usize) -> Vec<Sample> {
        self.compiled.samples(cluster, count, round)
    }

    fn has_read(&self, cluster: &Arc<Cluster>) -> bool {
        let members = self.members.lock();
        let member = members.by_name.get(cluster.name()).filter(|member| Arc::ptr_eq(&member.cluster, cluster));
        member.is_some_and(|member| member.feed.is_following())
    }

    fn set_decider(&self, cluster: &Arc<Cluster>, decider: Decider) {
        let (mut members, name) = (self.members.lock(), cluster.name());
        let Some(member) = members.by_name.get_mut(name).filter(|own| Arc::ptr_eq(&own.cluster, cluster)) else {
            return;
        };
        if member.decider == decider {
            return;
        }
        match &decider {
            Decider::Review(reason) => {
                tracing::warn!(cluster = %name, %reason, "roles and bindings alone do not decide the rights of users in the cluster");
            }
            Decider::Rbac | Decider::Undecided => {
                tracing::info!(cluster = %name, "roles and bindings alone decide the rights of users in the cluster");
            }
        }
        member.decider = decider;
        self.state_changed_of(&mut members, name);
    }
}

impl ImpersonationObserver for RightsMirror {
    fn set_impersonation_filter(&self, cluster: &Arc<Cluster>, filter: ImpersonationFilter) {
        let mut members = self.members.lock();
        if !members.probes.found(cluster, filter) {
            return;
        }
        let mirrors = self.mirrors.load().by_name.clone();
        self.publish(&mut members, mirrors);
    }
}

fn is_live(cluster: &Cluster) -> bool {
    match cluster.setup.authorization {
        ClusterAuthorization::Auto | ClusterAuthorization::Rbac | ClusterAuthorization::Review => false,
        ClusterAuthorization::Live => true,
    }
}

fn kind_bytes(limits: &Limits) -> u64 {
    limits.collection_bytes.min(limits.total_collection_bytes / PART_OF_ALL).min(COLLECTION_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rbac_objects_of_one_cluster_get_a_small_memory_limit() {
        const MIB: u64 = 1 << 20;
        // Limit of one collection and limit of all collections, with the resulting limit of each RBAC kind.
        let rows = [
            ((1024 * MIB, 4096 * MIB), 64 * MIB),
            ((8192 * MIB, 32768 * MIB), 64 * MIB),
            ((256 * MIB, 1024 * MIB), 16 * MIB),
            ((16 * MIB, 64 * MIB), MIB),
            ((1000, 64 * MIB), 1000),
        ];
        for ((collection_bytes, total_collection_bytes), expected) in rows {
            let limits = Limits { collection_bytes, total_collection_bytes, ..Limits::default() };
            assert_eq!(kind_bytes(&limits), expected, "{collection_bytes} of {total_collection_bytes}");
        }
    }
}
