//! Decides who answers a request, a cacher or a cluster, and joins the two.
//!
//! ```text
//! RequestInfo::parse → plan (pure) ─┬─ Get, List, Watch  → memory::*  (memory)      ─┐
//!                                   ├─ Owner, Create, …  → forward::* (one cluster) ─┼─▶ answer
//!                                   └─ Discovery, Health → documents               ─┘
//! every error is a Status; one function here turns it into an answer
//! ```
//!
//! This is the only crate that sees cachers, merge and proxy at once.

pub mod body;
mod caller;
mod configuration;
mod deadline;
pub mod discovery;
pub mod flow;
pub mod forward;
mod handle;
pub mod health;
mod lifetime;
pub mod limits;
pub mod memory;
pub mod metrics;
pub mod negotiate;
pub mod openapi;
pub mod plan;
pub mod policy;
mod refusal;
mod request;
pub mod response;
pub mod topology;
pub mod versions;
pub mod view;
pub mod views;

pub use crate::flow::long_answers::Peer;
pub use crate::forward::one_cluster::ForwardedWatch;
pub use body::{Body, BoxError};
pub use caller::User;
pub use limits::Limits;
pub use metrics::Metrics;
pub use policy::{Consistency, ItemResourceVersions, Partial, Policies, Policy, ResourcePattern};
pub use topology::ClusterSetup;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::{ClusterName, ClusterSelector, GroupVersionResource, ObjectKey, Status};
use tributary_merge::Epochs;

use crate::flow::fair_share::{FairShare, Holder};
use crate::flow::large_bodies::LargeBodies;
use crate::flow::long_answers::Lanes;
use crate::forward::locate::{Located, Question};
use crate::forward::shared_questions::SharedQuestions;
use configuration::Configuration;
use discovery::ServedResource;
use lifetime::Lifetime;
use limits::NAMESPACE_UNUSED_AFTER;
use openapi::OpenApi;
use topology::{EndpointMetrics, Fleet, Identity};
use view::{EarlierStandings, KNOWN_WITHIN, Standing, Standings, View};
use views::Views;

/// What is known of namespaces.
struct Namespaces {
    view: Arc<View>,
    standings: Arc<Standings>,
}

impl Namespaces {
    /// Whether it is known of each of these clusters that it has no such namespace. One that was written to through this process is
    /// there, and so is one that was made, though its own event may be on its way. `of` is the view that is asked for.
    fn is_missing(&self, of: &View, clusters: &[ClusterName], namespace: &str) -> bool {
        let is_fresh = |cluster| self.standings.of(cluster) == Some(&Standing::Fresh);
        let key = ObjectKey::new("", namespace);
        clusters.iter().all(|cluster| is_fresh(cluster) && !of.fences.concern(cluster, namespace))
            && self.view.fences.pending_of(key.as_str()).is_empty()
            && !self.view.log().find(key.as_str()).iter().any(|(cluster, _)| clusters.contains(cluster))
    }
}

/// Keeps the lists of clusters that compact resourceVersions refer to, beyond this process.
pub type KeepEpochs = Box<dyn Fn(&Epochs) + Send + Sync>;

/// What a router starts with.
#[derive(Default)]
pub struct RouterConfig {
    /// How resources are treated.
    pub policies: Policies,
    /// The lists of clusters that compact resourceVersions may refer to, as the data directory keeps them.
    pub epochs: Epochs,
    /// Is given the lists when they change, to keep them.
    pub keep_epochs: Option<KeepEpochs>,
    /// What is held at most.
    pub limits: Limits,
    /// Whether no other process serves the same clients. Only then can a watch go on from the integer of one object: the
    /// places of the other clusters are taken from this process's log, which is no other's.
    pub alone: bool,
}

/// Answers requests. One per process; shared by all connections.
pub struct Router {
    fleet: Arc<Fleet>,
    views: Arc<Views>,
    policies: Arc<ArcSwap<Policies>>,
    epochs: ArcSwap<Epochs>,
    metrics: Arc<Metrics>,
    lanes: Arc<Lanes>,
    requests: Arc<FairShare>,
    held_bytes: Arc<FairShare>,
    large_bodies: LargeBodies,
    request_timeout: Duration,
    draining: CancellationToken,
    alone: bool,
    openapi: OpenApi,
    locations: Arc<SharedQuestions<Question, Located>>,
}

impl Router {
    /// A router without clusters. Must be called within a tokio runtime.
    pub fn new(config: RouterConfig) -> Arc<Self> {
        let metrics = Arc::new(Metrics::default());
        let fleet = Fleet::new(metrics.member_shares());
        metrics.set_limits(&config.limits);
        let endpoints = EndpointMetrics::of(&fleet);
        metrics.register(|registry| registry.register_collector(Box::new(endpoints)));
        let policies = Arc::new(ArcSwap::from_pointee(config.policies));
        let views = Views::new(Arc::clone(&fleet), Arc::clone(&policies), Arc::clone(&metrics), config.limits.clone());
        let router = Arc::new(Self {
            views,
            policies,
            epochs: ArcSwap::from_pointee(config.epochs),
            lanes: Lanes::new(config.limits.long_answers, &metrics.lanes),
            requests: FairShare::new(
                "requests in flight (--max-requests-inflight)",
                config.limits.requests_in_flight,
                metrics.share(limits::REQUESTS),
            ),
            held_bytes: FairShare::new(
                "bytes of bodies (--max-held-bytes)",
                config.limits.held_bytes,
                metrics.share(limits::BYTES),
            ),
            large_bodies: LargeBodies::default(),
            request_timeout: config.limits.request_timeout,
            metrics,
            draining: CancellationToken::new(),
            alone: config.alone,
            locations: Arc::default(),
            openapi: OpenApi::new(Arc::clone(&fleet)),
            fleet,
        });
        router.follow_identities(config.keep_epochs);
        router
    }

    /// Takes over a new set of clusters, at start and whenever the configuration changes.
    pub fn set_clusters(&self, clusters: Vec<ClusterSetup>) {
        self.fleet.set(clusters);
    }

    /// Takes over new policies. Lists and watches that are open go on under the old ones, but that clusters which are selected or
    /// no longer selected come and go in them at once.
    pub fn set_policies(&self, policies: Policies) {
        self.policies.store(Arc::new(policies));
        for view in self.views.all() {
            view.follow_fleet();
        }
    }

    /// Waits until each cluster has been asked once what it serves, or the time is up.
    pub async fn asked_once(&self, within: Duration) {
        self.fleet.asked_once(within).await;
    }

    /// Pairs of clusters that have one kube-system uid: one member under two names. The first pair by name.
    pub fn same_cluster_twice(&self) -> Option<(ClusterName, ClusterName)> {
        let clusters = self.fleet.clusters();
        let mut first_of = HashMap::new();
        let pairs = clusters.values().filter_map(|cluster| {
            let first: &ClusterName = first_of.entry(cluster.uid()?).or_insert(cluster.name());
            (first != cluster.name()).then(|| (first.clone(), cluster.name().clone()))
        });
        pairs.min()
    }

    /// Each cluster and what is wrong with it, by name.
    pub fn cluster_problems(&self) -> Vec<(ClusterName, Option<String>)> {
        self.fleet.clusters().values().map(|cluster| (cluster.name().clone(), cluster.problem())).collect()
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Ends watches with a last bookmark, and makes `/readyz` fail. Other requests are still answered.
    pub fn drain(&self) {
        self.draining.cancel();
        for view in self.views.all() {
            view.wake();
        }
    }

    /// The epochs of compact versions.
    pub(crate) fn epochs(&self) -> Arc<Epochs> {
        self.epochs.load_full()
    }

    /// What a request that comes now sees of the configuration.
    pub(crate) fn configuration(&self) -> Configuration {
        Configuration {
            policies: self.policies.load_full(),
            union: self.fleet.union(),
            clusters: self.fleet.clusters(),
            epochs: self.epochs(),
        }
    }

    /// Whether a version of one cluster says where all are: as far as this process and its data directory know, there never was
    /// another. Who got a version while there was one need not have been told that it left. One that does not serve the resource
    /// counts: another process may know that it does.
    pub(crate) fn is_whole(&self, cluster: &ClusterName) -> bool {
        self.fleet.has_only(cluster) && self.epochs().are_of(cluster)
    }

    /// Whether no other process serves the same clients.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// The members.
    pub(crate) fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// The views.
    pub(crate) fn views(&self) -> &Arc<Views> {
        &self.views
    }

    /// Who may write long answers.
    pub(crate) fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    /// The questions where objects are.
    pub(crate) fn locations(&self) -> &Arc<SharedQuestions<Question, Located>> {
        &self.locations
    }

    /// The requests that are in flight.
    pub(crate) fn requests(&self) -> &Arc<FairShare> {
        &self.requests
    }

    /// What is held of bodies.
    pub(crate) fn held_bytes(&self) -> &Arc<FairShare> {
        &self.held_bytes
    }

    /// The turns of large bodies.
    pub(crate) fn large_bodies(&self) -> &LargeBodies {
        &self.large_bodies
    }

    /// How long a request may take that does not last.
    pub(crate) fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// Ends when watches are to end.
    pub(crate) fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// The view for a read of one name: whichever holds the namespace, and how its clusters stand. Waits only for first
    /// attempts.
    ///
    /// # Errors
    /// 429 where no further namespace can be held.
    pub(crate) async fn view(
        &self,
        configuration: &Configuration,
        served: &ServedResource,
        namespace: Option<&str>,
        user: Holder,
    ) -> Result<(Arc<View>, EarlierStandings), Status> {
        let everything = ClusterSelector::default();
        let (view, before) =
            self.view_of(configuration, served, namespace, &everything, Partial::Allow, Lifetime::Once, user).await;
        Ok((view, before?))
    }

    /// The view for a read of the clusters that are wanted, and how these stand. Where a member forbids the collection of all
    /// namespaces and one is asked for, the view of that namespace takes its place.
    ///
    /// # Errors
    /// (beside the view) 429 where clusters are unknown and a partial answer is denied, or no further namespace can be held.
    pub(crate) async fn view_of(
        &self,
        configuration: &Configuration,
        served: &ServedResource,
        namespace: Option<&str>,
        wanted: &ClusterSelector,
        partial: Partial,
        reading: Lifetime,
        user: Holder,
    ) -> (Arc<View>, Result<EarlierStandings, Status>) {
        let (view, standings) = self.held(configuration, served, namespace, wanted, partial, reading, user).await;
        let before = standings.map(|mut standings| {
            let policy = configuration.policy(&served.resource);
            for (cluster, standing) in Standing::left_out(served) {
                if policy.selects(&cluster) && wanted.matches(&cluster) {
                    Arc::make_mut(&mut standings).set(cluster, standing);
                }
            }
            EarlierStandings::new(standings, wanted, partial)
        });
        (view, before)
    }

    async fn held(
        &self,
        configuration: &Configuration,
        served: &ServedResource,
        namespace: Option<&str>,
        wanted: &ClusterSelector,
        partial: Partial,
        reading: Lifetime,
        user: Holder,
    ) -> (Arc<View>, Result<Arc<Standings>, Status>) {
        let deadline = Instant::now() + KNOWN_WITHIN;
        let own = configuration.policy(&served.resource).view_of(served.description.namespaced(), namespace);
        let view = self.views.get_or_start(served, own).await;
        // With a partial answer allowed this is never refused.
        let standings = view.known(Partial::Allow, wanted, deadline).await;
        let mut standings = standings.unwrap_or_else(|_| view.standings_of(wanted));
        if let Some(namespace) = namespace.filter(|_| own.is_none() && standings.is_one_forbidden()) {
            let forbidding: Vec<_> = standings.forbidding().cloned().collect();
            if reading == Lifetime::Follows || !self.is_missing(&view, &forbidding, namespace).await {
                return match self.part(&view, &forbidding, namespace, user).await {
                    Ok(part) => {
                        let standings = part.known(partial, wanted, deadline).await;
                        (part, standings)
                    }
                    // Where what was held of them all is still served, want of room keeps nobody from it.
                    Err(_) if !standings.is_one_given_up() => {
                        let standings = view.known(partial, wanted, deadline).await;
                        (view, standings)
                    }
                    Err(status) => (view, Err(status)),
                };
            }
            // Nothing is held of a namespace that is not there: that it has no objects is known.
            for cluster in forbidding {
                if !standings.of(&cluster).is_some_and(Standing::is_known) {
                    Arc::make_mut(&mut standings).set(cluster, Standing::NoNamespace);
                }
            }
        }
        if partial == Partial::Allow || standings.are_known() {
            return (view, Ok(standings));
        }
        let standings = view.known(partial, wanted, deadline).await;
        (view, standings)
    }

    /// The view of one namespace beside that of all, which these clusters forbid to read. Where all that may be held are in use, one goes
    /// of a namespace that is nowhere, or has been forbidden for long: watches of names that were made up keep nobody out. Not for one
    /// that is nowhere itself, and none that is forbidden and new: two of them would take turns for ever.
    async fn part(
        &self,
        whole: &Arc<View>,
        forbidding: &[ClusterName],
        namespace: &str,
        user: Holder,
    ) -> Result<Arc<View>, Status> {
        let part = self.views.get_or_start_part(whole, namespace, user);
        let Err(full) = part else { return part };
        let known = self.namespaces(forbidding).await;
        let is_missing =
            |namespace: &str| known.as_ref().is_some_and(|known| known.is_missing(whole, forbidding, namespace));
        let is_idle = |part: &Arc<View>| {
            let namespace = part.namespace.as_deref().unwrap_or_default();
            let is_forbidden = || part.age() >= NAMESPACE_UNUSED_AFTER && part.is_forbidden_by_all(forbidding);
            part.log().objects() == 0 && (is_missing(namespace) || is_forbidden())
        };
        if is_missing(namespace) || !self.views.end_idle_part(whole, user, is_idle) {
            return Err(full);
        }
        self.views.get_or_start_part(whole, namespace, user)
    }

    /// What is known of the namespaces of these clusters; `None` where they are not held. Waits only for the first attempts at these: of
    /// the others nothing is asked, and one that answers nothing would delay the read by half a minute.
    async fn namespaces(&self, clusters: &[ClusterName]) -> Option<Namespaces> {
        let namespaces = GroupVersionResource::new("", "v1", "namespaces");
        let configuration = self.configuration();
        let served = configuration.union.get(&namespaces).filter(|served| configuration.is_held(served, None))?;
        let view = self.views.get_or_start(served, None).await;
        let standings = view.attempted(clusters, Instant::now() + KNOWN_WITHIN).await;
        Some(Namespaces { view, standings })
    }

    /// Whether none of these clusters has a namespace, as far as the view of namespaces knows them all. Where something was written to it
    /// through this process, it is there, though its own event may be on its way.
    async fn is_missing(&self, view: &View, clusters: &[ClusterName], namespace: &str) -> bool {
        let Some(known) = self.namespaces(clusters).await else { return false };
        let key = ObjectKey::new("", namespace);
        known.view.own_writes_of_seen(&key).await.is_ok() && known.is_missing(view, clusters, namespace)
    }

    /// Keeps the epochs of compact versions at the identities of the clusters as they are now.
    fn follow_identities(self: &Arc<Self>, keep: Option<KeepEpochs>) {
        let (weak, mut changes) = (Arc::downgrade(self), self.fleet.changes());
        let reported = Mutex::new(None);
        tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                let Some(router) = weak.upgrade() else { break };
                router.update_epochs(keep.as_deref());
                let twins = router.same_cluster_twice();
                let mut reported = reported.lock();
                if let Some((first, second)) = &twins
                    && *reported != twins
                {
                    tracing::error!(%first, %second, "two contexts lead to one cluster (one kube-system uid): its objects are shown under the first alone; remove one");
                }
                *reported = twins;
            }
        });
    }

    /// Makes the list of the clusters' identities, once each has been asked: until then their versions come one by one.
    ///
    /// One that has not answered is who it was before: it says nothing meanwhile. One that answers and does not tell has no uid.
    fn update_epochs(&self, keep: Option<&(dyn Fn(&Epochs) + Send + Sync)>) {
        let clusters = self.fleet.clusters();
        if clusters.is_empty() || !clusters.values().all(|cluster| cluster.is_asked()) {
            return;
        }
        let mut epochs = (*self.epochs()).clone();
        let identities: Vec<_> = clusters
            .values()
            .map(|cluster| {
                let uid = match &*cluster.identity() {
                    Identity::Known(uid) => uid.to_string(),
                    Identity::Withheld => String::new(),
                    Identity::Unknown => epochs.uid_of(cluster.name()).unwrap_or_default().to_owned(),
                };
                (cluster.name().clone(), uid)
            })
            .collect();
        if epochs.update(identities) {
            if let Some(keep) = keep {
                keep(&epochs);
            }
            self.epochs.store(Arc::new(epochs));
        }
    }
}
