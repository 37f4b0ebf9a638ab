//! Decides whether a cacher or a cluster answers a request, and combines their answers.
//!
//! ```text
//! handle ─▶ configuration ─▶ admission ─▶ flow_control ─▶ plan ─┬─▶ memory::*   cached objects, by views ─┐
//!                            (flow)       (schemas)       (pure)├─▶ forward::*  one cluster, or all       ─┼─▶
//! response ─▶ client └─▶ own documents: discovery, openapi     ─┘ each error is a Refusal; one function makes a Status
//! of the Refusal, and one an answer of the Status ```
//!
//! No other crate uses the crates `cacher`, `merge` and `proxy` together.

mod aggregated_entry;
mod asked;
mod awaited;
mod caller;
mod candidates_by_plan;
mod cluster_gateway;
mod cluster_resource;
mod configuration;
mod confinement;
mod dispatch;
mod flow_control;
mod flow_shares;
mod forward;
mod handle;
mod health;
mod identities;
mod last_heard_keeper;
mod memory;
mod mixed_releases;
mod own_requests;
mod plan;
mod received;
mod request;
mod request_context;
mod request_reading;
mod request_trace;
mod response;
mod selected_names;
mod selection;
mod served_resources;
mod shared_lookups;
mod stages;
mod switching;
pub mod testing;
mod time_limit;
mod traced_stage;
mod unknown_rights;
mod versions;

pub use crate::aggregated_entry::{answer_at_entry, has_constant_answer};
pub use crate::cluster_gateway::{GatewayHealth, SecretPlace, WriteGatewayHealth};
pub use crate::request_context::{Answer, AuthenticatedSender, RequestArrival, RequestContext};
pub use crate::request_reading::RequestReading;
pub use crate::request_trace::{AUDIT_ID, RequestTrace};
pub use dispatch::{DispatchSettings, EntryPointPolicies};
pub use flow_control::{EntryPointSchemas, FlowSettings, FlowSettingsError, FlowSettingsProblem};
pub use forward::karmada::KarmadaServers;
pub use own_requests::Unanswered;
pub use served_resources::ServedResources;
pub use traced_stage::{TraceContext, TracedStage};

pub use tributary_apimachinery::ClusterAuthorization;
pub use tributary_authentication::{IdentityPolicy, MemberRules};
pub use tributary_fleet::aggregated_group;
pub use tributary_fleet::cluster_status;
pub use tributary_fleet::foreign_member::{CredentialOfName, ForeignMember, ForeignMembers, GatewayFacts};
pub use tributary_fleet::last_heard::{KeepLastHeard, LastHeard, LastHeardError};
pub use tributary_fleet::metrics::{ClientClass, Decision, Metrics};
pub use tributary_fleet::policy::{Policies, ResourcePolicy};
pub use tributary_fleet::report::{self, Report};
pub use tributary_fleet::topology::{ClusterAddress, ClusterSetup, SetupRevision};
pub use tributary_proxy::{ClientUpgrade, user_authorization};
pub use tributary_rights::{CredentialValidity, RememberedActor, SharedMode, User};
pub use tributary_sharing::body::{self, EarlyEnd, end_early};
pub use tributary_sharing::limits::{self, Limits};

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use http::header::USER_AGENT;
use http::request::Parts;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::{AuditLevel, ClusterName, RequestInfo};
use tributary_cacher::ObjectMemoryLimit;
use tributary_fleet::cluster_status::MemberSource;
use tributary_fleet::openapi::OpenApi;
use tributary_fleet::report::{ClusterReport, LimitReport};
use tributary_fleet::topology::{Cluster, EndpointMetrics, Fleet, MemberLimitMetrics, MemberUnreadBytes};
use tributary_merge::Epochs;
use tributary_policy::DispatchAttributes;
use tributary_proxy::ClientTuning;
use tributary_rights::{ReadableCache, RightsMirror};
use tributary_sharing::flow::fair_semaphore::FairSemaphore;
use tributary_sharing::flow::large_bodies::LargeBodies;
use tributary_sharing::flow::long_answers::AnswerPermits;
use tributary_sharing::flow::long_running::LongRunningShares;
use tributary_views::views::Views;
use tributary_views::views::cache_metrics::CacheMetrics;

use crate::caller::Caller;
use crate::cluster_resource::ClusterStore;
use crate::forward::owner::answers::{Answers, LookupKey};
use crate::forward::owner::helm::known_releases::KnownReleases;
use crate::shared_lookups::SharedLookups;
use configuration::ConfigurationSnapshot;
use dispatch::DispatchGate;
use flow_control::{ActiveSchemas, FlowMetrics};
use flow_shares::FlowShares;

/// Callback that stores the lists of clusters (epochs) that compact resourceVersions refer to.
pub type KeepEpochs = Box<dyn Fn(&Epochs) + Send + Sync>;

/// Settings of a router at its start.
#[derive(Default)]
pub struct RouterConfig {
    /// Policies for reads of each resource, for example their consistency.
    pub policies: Policies,
    /// Lists of clusters that compact resourceVersions may refer to, as read from the data directory.
    pub epochs: Epochs,
    /// Callback that stores the lists of clusters after a change.
    pub keep_epochs: Option<KeepEpochs>,
    /// Discovery and OpenAPI answers of clusters, as read from the data directory.
    pub last_heard: LastHeard,
    /// Callback that stores the discovery and OpenAPI answers, some seconds after a change.
    pub keep_last_heard: Option<KeepLastHeard>,
    /// Limits of memory, bodies and requests.
    pub limits: Limits,
    /// True if no other process serves the same clients. Only then can a watch resume from the integer version of a
    /// single object. For such a watch, Tributary needs the versions of all other clusters at the time of the object's
    /// event. Only the log of the process that sent the event has these versions.
    pub alone: bool,
    /// Settings of shared mode, in which each user sees only objects that the user's rights in each cluster allow.
    /// `None` in personal mode: one person uses the endpoint, and sees the objects that the kubeconfig's user sees.
    pub shared: Option<SharedMode>,
}

/// Answers requests. One value for each process, shared by all connections.
pub struct Router {
    fleet: Arc<Fleet>,
    views: Arc<Views>,
    policies: Arc<ArcSwap<Policies>>,
    flow_control: Arc<ArcSwap<ActiveSchemas>>,
    flow_shares: FlowShares,
    dispatch: Arc<DispatchGate>,
    epochs: Arc<ArcSwap<Epochs>>,
    metrics: Arc<Metrics>,
    answer_permits: Arc<AnswerPermits>,
    requests: Arc<FairSemaphore>,
    /// Shares of long-running requests; `None` in personal mode.
    long_running: Option<LongRunningShares>,
    held_bytes: Arc<FairSemaphore>,
    large_bodies: LargeBodies,
    request_timeout: Duration,
    draining: CancellationToken,
    /// True when this process will soon drain.
    leaving: AtomicBool,
    alone: bool,
    openapi: OpenApi,
    locations: Arc<SharedLookups<LookupKey, Answers>>,
    releases: KnownReleases,
    /// Rights of users in each cluster; `None` in personal mode.
    rights: Option<Arc<RightsMirror>>,
    readable_cache: ReadableCache,
    cluster_store: ClusterStore,
    /// Karmada's own servers; `None` without doors of Karmada.
    karmada: ArcSwapOption<KarmadaServers>,
    foreign: watch::Sender<Arc<ForeignMembers>>,
    member_sources: ArcSwap<HashMap<ClusterName, MemberSource>>,
    /// Writer of the health of cluster-gateway's clusters; unset without a hub.
    gateway_health: OnceLock<Arc<dyn WriteGatewayHealth>>,
    started: Instant,
    /// Task that stores the last answers of clusters.
    keeping: Mutex<Option<JoinHandle<()>>>,
}

impl Router {
    /// Creates a router without clusters. Must be called within a tokio runtime.
    pub fn new(config: RouterConfig) -> Arc<Self> {
        let metrics = Arc::new(Metrics::default());
        let used = metrics.used_of(limits::OBJECTS);
        let object_memory = ObjectMemoryLimit::new(config.limits.total_collection_bytes, move |bytes| {
            used.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        });
        let unread = MemberUnreadBytes::new(config.limits.member_unread_bytes, metrics.share(limits::MEMBER_UNREAD));
        let fleet = Fleet::within(object_memory, unread, metrics.member_shares(), config.last_heard.discovery);
        metrics.set_limits(&config.limits);
        let endpoints = EndpointMetrics::for_fleet(&fleet);
        metrics.register(|registry| registry.register_collector(Box::new(endpoints)));
        let member_limits = MemberLimitMetrics::for_fleet(&fleet);
        metrics.register(|registry| registry.register_collector(Box::new(member_limits)));
        let policies = Policies { secrets_by_name: config.shared.is_some(), ..config.policies };
        let policies = Arc::new(ArcSwap::from_pointee(policies));
        let views = Views::new(Arc::clone(&fleet), Arc::clone(&policies), Arc::clone(&metrics), config.limits.clone());
        let cache_metrics = CacheMetrics::for_views(&views);
        metrics.register(|registry| registry.register_collector(Box::new(cache_metrics)));
        let long_running = config.shared.as_ref().map(|_| LongRunningShares {
            requests: FairSemaphore::new(
                "watches and other long-running requests (--max-long-running-requests)",
                config.limits.long_running_requests,
                metrics.share(limits::LONG_RUNNING),
            ),
            upgrades: FairSemaphore::new(
                "connections for exec, attach and port-forward",
                ClientTuning::default().tunnel_permits.all(),
                metrics.share(limits::UPGRADES),
            ),
        });
        let flow_control = Arc::<ArcSwap<ActiveSchemas>>::default();
        let flow_metrics = FlowMetrics(Arc::clone(&flow_control));
        metrics.register(|registry| registry.register_collector(Box::new(flow_metrics)));
        let flow_shares = FlowShares::new(Arc::clone(&flow_control));
        let dispatch = Arc::<DispatchGate>::default();
        metrics.register(|registry| dispatch.register(registry));
        let rights = config.shared.map(|mode| RightsMirror::start(Arc::clone(&fleet), mode, &config.limits));
        let router = Arc::new(Self {
            rights,
            readable_cache: ReadableCache::default(),
            cluster_store: ClusterStore::default(),
            karmada: ArcSwapOption::empty(),
            foreign: watch::Sender::default(),
            member_sources: ArcSwap::default(),
            gateway_health: OnceLock::new(),
            started: Instant::now(),
            keeping: Mutex::default(),
            views,
            policies,
            flow_control,
            flow_shares,
            dispatch,
            epochs: Arc::new(ArcSwap::from_pointee(config.epochs)),
            answer_permits: AnswerPermits::new(config.limits.long_answers, &metrics.answer_permits),
            requests: FairSemaphore::new(
                "requests in flight (--max-requests-inflight)",
                config.limits.requests_in_flight,
                metrics.share(limits::REQUESTS),
            ),
            long_running,
            held_bytes: FairSemaphore::new(
                "buffered bytes of bodies (--max-held-bytes)",
                config.limits.held_bytes,
                metrics.share(limits::BYTES),
            ),
            large_bodies: LargeBodies::default(),
            request_timeout: config.limits.request_timeout,
            metrics,
            draining: CancellationToken::new(),
            leaving: AtomicBool::new(false),
            alone: config.alone,
            locations: Arc::default(),
            releases: KnownReleases::default(),
            openapi: OpenApi::new(Arc::clone(&fleet), config.last_heard.openapi),
            fleet,
        });
        let weak = Arc::downgrade(&router);
        router.fleet.on_forgotten(move |cluster, _| {
            if let Some(router) = weak.upgrade() {
                router.openapi.forget(cluster);
            }
        });
        router.follow_identities(config.keep_epochs);
        router.follow_last_heard(config.keep_last_heard);
        router
    }

    /// Replaces the set of clusters, at start and whenever the configuration changes.
    pub fn set_clusters(&self, clusters: Vec<ClusterSetup>) {
        self.fleet.set(clusters);
        let clusters = self.fleet.clusters();
        self.metrics.keep_clusters(|name| clusters.contains_key(name));
    }

    /// Sets Karmada's own servers. They answer the requests at the doors of Karmada that concern no member.
    pub fn set_karmada(&self, servers: KarmadaServers) {
        self.karmada.store(Some(Arc::new(servers)));
    }

    pub(crate) fn karmada(&self) -> Option<Arc<KarmadaServers>> {
        self.karmada.load_full()
    }

    /// Replaces the members that foreign systems know. A name takes effect at a door once the door has it, too. Streams
    /// end whose member would see a different user now.
    pub fn set_foreign_members(&self, members: Arc<ForeignMembers>) {
        self.foreign.send_replace(members);
    }

    /// Replaces the objects of the hub that describe the clusters.
    pub fn set_member_sources(&self, sources: HashMap<ClusterName, MemberSource>) {
        self.member_sources.store(Arc::new(sources));
    }

    pub(crate) fn member_sources(&self) -> Arc<HashMap<ClusterName, MemberSource>> {
        self.member_sources.load_full()
    }

    /// Sets the writer of the health of cluster-gateway's clusters. A second call has no effect.
    pub fn set_gateway_health_writer(&self, writer: Arc<dyn WriteGatewayHealth>) {
        let _is_set = self.gateway_health.set(writer);
    }

    /// Returns a receiver that is notified when clusters are added or removed, or when a cluster's discovery changes.
    pub fn cluster_changes(&self) -> watch::Receiver<u64> {
        self.fleet.changes()
    }

    /// Registers `forget`, which Tributary calls with the name of a cluster when the name is removed, or begins to mean
    /// a different cluster: a cluster whose kube-system uid differs, or is not known to be equal. The call precedes the
    /// first request to the new cluster, so that `forget` can drop state of the earlier cluster. `forget` must not
    /// block.
    pub fn on_cluster_forgotten(&self, forget: impl Fn(&ClusterName) + Send + Sync + 'static) {
        self.fleet.on_forgotten(move |cluster, _| forget(cluster));
    }

    /// Replaces the policies of resources. Open lists and watches continue under the old policies. But clusters that
    /// the new policies select or exclude join or leave them immediately. In shared mode the cache has only the names
    /// of Secrets, whatever the policies say.
    pub fn set_policies(&self, policies: Policies) {
        let policies = Policies { secrets_by_name: self.rights.is_some(), ..policies };
        self.policies.store(Arc::new(policies));
        for view in self.views.all() {
            view.follow_fleet();
        }
    }

    /// Replaces the flow-control schemas, immediately for all new requests. Running requests keep their permits. Only
    /// the task that reads the configuration calls this function.
    ///
    /// # Errors
    /// [`FlowSettingsError`]. On an error, nothing changes.
    pub fn set_flow_control(&self, settings: FlowSettings) -> Result<(), FlowSettingsError> {
        self.flow_shares.set(settings)
    }

    /// Sets the number of replicas. This process gets its part of each flow-control limit, immediately for all new
    /// requests. Running requests keep their permits.
    pub fn set_replicas(&self, replicas: NonZeroU32) {
        self.flow_shares.set_replicas(replicas);
    }

    /// Replaces the dispatch policies, immediately for all new requests. Open streams end if the new policies refuse
    /// them. Only the task that reads the configuration calls this function.
    pub fn set_dispatch(&self, settings: DispatchSettings) {
        if let Some(rights) = &self.rights {
            rights.freeze(settings.frozen());
        }
        self.dispatch.set(settings);
    }

    /// Returns a copy of the dispatch policies in force.
    pub fn dispatch_settings(&self) -> DispatchSettings {
        self.dispatch.settings()
    }

    /// Returns the audit level that a policy sets for a request. A global policy takes precedence over a policy of the
    /// entry point. `None` if no policy sets a level. Cost: one atomic load if no policy sets levels, otherwise an
    /// additional evaluation of the policies, because audit needs the level before the request begins.
    pub fn audit_level(&self, head: &Parts, info: &RequestInfo, context: &RequestContext) -> Option<AuditLevel> {
        let dispatch = self.dispatch.current().filter(|_| !health::is_check(info))?;
        let mut setting = dispatch.entered(info).filter(|policies| policies.sets_audit_levels()).peekable();
        setting.peek()?;
        let caller = Caller::from_request(&head.headers, context, self.rights()).ok()?;
        let user = caller.acts_as(&context.sender.user).ok()?;
        let user_agent = head.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let attributes = DispatchAttributes::from_request(info, &user.username, &user.groups, user_agent);
        setting.find_map(|policies| policies.audit_level(&attributes))
    }

    /// Replaces the set of denied users, by name. Their new requests are refused, and their open streams end. No effect
    /// in personal mode.
    pub fn deny(&self, users: BTreeSet<String>) {
        if let Some(rights) = &self.rights {
            rights.deny(users);
        }
    }

    /// Makes each open stream check whether its user's credentials [are still valid](CredentialValidity). No effect in
    /// personal mode.
    pub fn authentication_changed(&self) {
        if let Some(rights) = &self.rights {
            rights.notify_followers();
        }
    }

    /// Waits until the first discovery request to each cluster has ended, or until the time limit.
    pub async fn asked_once(&self, within: Duration) {
        self.fleet.asked_once(within).await;
    }

    /// Waits until the rights of users in each cluster are known, until an obstacle prevents this, or until the time
    /// limit. Requests that depend on unknown rights are refused. Returns immediately in personal mode. Cancellation is
    /// safe.
    pub async fn rights_found_once(&self, within: Duration) {
        if let Some(rights) = &self.rights {
            rights.wait_until_found(within).await;
        }
    }

    /// Returns the metrics of this process.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns a report of this process and its clusters. The listener adds its own facts (connections, the process's
    /// memory).
    ///
    /// Cost: some microseconds for each cluster and each cached resource, independent of the number of objects.
    /// Cancellation is safe.
    pub async fn report(&self) -> Report {
        let clusters = self.fleet.clusters();
        let cached = self.views.report().await;
        let mut limits = self.shared_limits();
        limits.extend(clusters.values().flat_map(|cluster| cluster.limit_reports()));
        limits.extend(cached.limits);
        let report = |cluster: &Arc<Cluster>| {
            let Some(mirror) = &self.rights else { return cluster.report() };
            let rights = Some(mirror.condition_of(cluster.name()));
            let (decider, rights_reason) = mirror.decider_of(cluster.name());
            let rights_problem = mirror.unknown_rights_reason_of(cluster.name());
            ClusterReport { rights, rights_decider: Some(decider), rights_reason, rights_problem, ..cluster.report() }
        };
        let clusters = clusters.values().map(report).collect();
        Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.started.elapsed().as_secs(),
            draining: self.is_leaving(),
            ..Report::from_parts(clusters, cached.resources, cached.collections, limits)
        }
    }

    /// Returns the usage of the limits that are common to all clients.
    fn shared_limits(&self) -> Vec<LimitReport> {
        let lasting = self.long_running.as_ref();
        let lasting = lasting.map(|own| [(limits::LONG_RUNNING, &own.requests), (limits::UPGRADES, &own.upgrades)]);
        let shares = [(limits::REQUESTS, &self.requests), (limits::BYTES, &self.held_bytes)];
        let shares = shares.into_iter().chain(lasting.into_iter().flatten());
        let shares = shares.map(|(name, share)| {
            LimitReport::new(name, share.used() as u64, share.max() as u64, Some(share.refused()))
        });
        let answer_permits = self.answer_permits.usage().map(|(length, (used, max, refused))| LimitReport {
            of: Some(format!("{length} answers")),
            ..LimitReport::new("long_answers", used as u64, max as u64, Some(refused))
        });
        let object_memory = self.fleet.object_memory();
        let objects = LimitReport::new(limits::OBJECTS, object_memory.used(), object_memory.max(), None);
        let (used, max, refused) = self.fleet.unread().usage();
        let unread = LimitReport::new(limits::MEMBER_UNREAD, used as u64, max as u64, Some(refused));
        shares.chain(answer_permits).chain([objects, unread]).collect()
    }

    /// Makes `/readyz` fail, so that load balancers choose a different replica. Requests are served until
    /// [`drain`](Self::drain).
    pub fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) || self.draining.is_cancelled()
    }

    /// Ends watches with a last bookmark, and makes `/readyz` fail. Other requests are still answered.
    pub fn drain(&self) {
        self.draining.cancel();
        for view in self.views.all() {
            view.wake();
        }
    }

    pub(crate) fn epochs(&self) -> Arc<Epochs> {
        self.epochs.load_full()
    }

    /// Returns the list of clusters (epochs) in a form that follows later changes. For answers during which the list
    /// may change.
    pub(crate) fn present_epochs(&self) -> Arc<ArcSwap<Epochs>> {
        Arc::clone(&self.epochs)
    }

    pub(crate) fn configuration(&self) -> ConfigurationSnapshot {
        // The policies are loaded before the schemas. A removed schema stays in force a moment longer than the policies
        // that name it, so each schema that these policies name still exists.
        let dispatch = self.dispatch.current();
        ConfigurationSnapshot {
            policies: self.policies.load_full(),
            flow_control: self.flow_control.load_full(),
            dispatch,
            merged_discovery: self.fleet.merged_discovery(),
            clusters: self.fleet.clusters(),
            epochs: self.epochs(),
            foreign: Arc::clone(&self.foreign.borrow()),
        }
    }

    /// Returns whether the resourceVersion of one cluster is a version of the whole fleet. This is so if this process
    /// and its data directory have never known another cluster. A removed cluster counts, because a client with an
    /// older version may not know yet that the cluster was removed. A cluster without the resource counts, because
    /// another process may know that the cluster serves the resource.
    pub(crate) fn is_whole(&self, cluster: &ClusterName) -> bool {
        self.fleet.has_only(cluster) && self.epochs().contain_only(cluster)
    }

    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Subscribes to the members that foreign systems know.
    pub(crate) fn foreign_members(&self) -> watch::Receiver<Arc<ForeignMembers>> {
        self.foreign.subscribe()
    }

    pub(crate) fn dispatch(&self) -> &Arc<DispatchGate> {
        &self.dispatch
    }

    pub(crate) fn fleet(&self) -> &Arc<Fleet> {
        &self.fleet
    }

    /// Returns the rights of users in each cluster; `None` in personal mode.
    pub(crate) fn rights(&self) -> Option<&Arc<RightsMirror>> {
        self.rights.as_ref()
    }

    pub(crate) fn readable_cache(&self) -> &ReadableCache {
        &self.readable_cache
    }

    /// Returns the objects of the resource `clusters`.
    pub(crate) fn cluster_store(&self) -> &ClusterStore {
        &self.cluster_store
    }

    pub(crate) fn views(&self) -> &Arc<Views> {
        &self.views
    }

    pub(crate) fn answer_permits(&self) -> &Arc<AnswerPermits> {
        &self.answer_permits
    }

    /// Returns the running lookups of objects in clusters, which requests can share.
    pub(crate) fn locations(&self) -> &Arc<SharedLookups<LookupKey, Answers>> {
        &self.locations
    }

    /// Returns the clusters of Helm releases, according to recent answers of members.
    pub(crate) fn releases(&self) -> &KnownReleases {
        &self.releases
    }

    pub(crate) fn requests(&self) -> &Arc<FairSemaphore> {
        &self.requests
    }

    /// Returns the shares of long-running requests; `None` in personal mode.
    pub(crate) fn long_running(&self) -> Option<&LongRunningShares> {
        self.long_running.as_ref()
    }

    pub(crate) fn held_bytes(&self) -> &Arc<FairSemaphore> {
        &self.held_bytes
    }

    pub(crate) fn large_bodies(&self) -> &LargeBodies {
        &self.large_bodies
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.request_timeout
    }

    /// Returns the token whose cancellation ends watches.
    pub(crate) fn draining(&self) -> &CancellationToken {
        &self.draining
    }
}
