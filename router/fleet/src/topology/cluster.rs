//! One cluster, and the task that keeps its discovery up to date.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, StatusCode};
use jiff::Timestamp;
use parking_lot::Mutex;
use rand::Rng;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use tributary_answers::refusal::{LimitRefusal, MissingPermission, Refusal};
use tributary_apimachinery::{ClusterName, GroupVersion, GroupVersionResource, Permit, RequestClass, explain};
use tributary_cacher::{ListPermits, ObjectMemoryLimit, Precedence};
use tributary_proxy::{ClusterClient, Reachability, Transport, UidMatch, is_uid, nearest_tick};
use tributary_sharing::body;
use tributary_sharing::flow::fair_queue::FairQueue;
use tributary_sharing::flow::fair_semaphore::{FairPermit, FairSemaphore, ShareMetrics};
use tributary_sharing::flow::share_key::ShareKey;
use tributary_sharing::limits::{ANSWER_WINDOW, WATCH_WINDOW};

use super::address::ClusterAddress;
use super::followed_kinds::{FollowedKinds, KindsOf};
use super::health::ClusterHealth;
use super::incarnation::Incarnation;
use super::kind_changes::KindChanges;
use super::mark::ClusterMark;
use super::member_unread::MemberUnreadBytes;
use super::served::Served;
use super::server_version::ServerVersion;
use super::setup::ClusterSetup;
use crate::discovery::{FetchError, Fetched, MemberDiscovery, MemberDocuments, NotMergedReason, Undescribed, fetch};
use crate::report::ClusterCondition;

/// Interval of discovery requests to a cluster. An unchanged answer is a 304 of a few hundred bytes. A new CRD is
/// served after 10 s at the latest, and at once if Tributary may watch CustomResourceDefinitions.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(10);

/// Interval of discovery requests to a cluster whose CustomResourceDefinitions or APIServices cannot be watched, while
/// clients read a custom kind that the cluster lacks. 1 s: clients see a new kind about as soon as with a watch.
const UNWATCHED_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time for which a refusal of discovery may be temporary: a kube-apiserver that has just started answers 403
/// until it has read its roles.
const STARTING_MAX: Duration = Duration::from_secs(30);

/// Interval of discovery requests to a cluster that has just replaced a different cluster of the same name, until the
/// first answer. 1 s, because Tributary refuses requests for the name until then.
const SUCCESSOR_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of requests for facts that only an upgrade or a restore changes: the core group, the version and the uid.
/// 60 s: with an interval of 10 s, half of the requests to an idle fleet would be such requests. These requests are
/// also sent after a fault, after an outage, and when a client requests a resource that discovery lacks. In addition,
/// each new connection requests the uid.
const RARE_INTERVAL: Duration = Duration::from_secs(60);

/// Minimum time between two discovery requests to a cluster that client requests trigger.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);

/// Maximum time for which a client's request waits for discovery.
const REFRESH_WAIT: Duration = Duration::from_secs(3);

/// Maximum time for which a client's request waits for discovery, if the previous wait took longer than this time. 300
/// ms: with a longer wait, a slow cluster would delay each 404, and each create of kinds that the cluster lacks. After
/// the wait, the discovery continues in the cluster's task.
const SLOW_REFRESH_WAIT: Duration = Duration::from_millis(300);

const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(15);

/// Minimum time between two log lines about decreased revisions of a cluster, for example after an etcd restore. 60 s:
/// in this time, all collections of the cluster notice the decrease.
const RESET_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Minimum time between two log lines about missing impersonation rights in a cluster. 60 s, because each request to
/// the cluster would cause a line.
const IMPERSONATION_LOG_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Default)]
struct Attempts {
    begun: u64,
    /// Number of the last discovery attempt that has ended. At most one attempt is running.
    ended: u64,
}

#[derive(Clone, Copy, Debug)]
struct Refresh {
    ended: Instant,
    waited: Duration,
}

impl Refresh {
    fn next_wait(before: Option<Self>) -> Duration {
        match before {
            Some(before) if before.waited >= SLOW_REFRESH_WAIT => SLOW_REFRESH_WAIT,
            _ => REFRESH_WAIT,
        }
    }
}

struct ClusterProblem {
    text: String,
    condition: ClusterCondition,
    since: Instant,
    /// Whether the problem lasts until an administrator repairs it.
    lasts: bool,
}

impl ClusterProblem {
    fn new(condition: ClusterCondition, text: String) -> Self {
        Self { text, condition, since: Instant::now(), lasts: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterChange {
    /// The fault of the cluster has changed.
    Problem,
    /// A different cluster answers at the cluster's addresses.
    Successor,
    /// Discovery, identity or version of the cluster have changed.
    DiscoveryOrIdentity,
}

/// A client's read of a custom kind that discovery lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KindReader {
    /// A list. Its client may repeat the list, or begin a watch.
    List,
    /// A watch.
    Watch,
}

impl KindReader {
    /// Returns the time for which Tributary assumes that the client continues to read the kind. A watch without an
    /// explicit timeout lasts up to an hour.
    fn lasts_for(self) -> Duration {
        match self {
            Self::List => Duration::from_secs(60),
            Self::Watch => Duration::from_secs(60 * 60),
        }
    }
}

/// A member cluster.
pub struct Cluster {
    /// Configuration with which the cluster was created.
    pub setup: ClusterSetup,
    /// Name, annotation and version marks that responses insert into the cluster's objects.
    pub mark: Arc<ClusterMark>,
    fetched: ArcSwapOption<Fetched>,
    /// Store of the discovery documents of all clusters.
    documents: Arc<MemberDocuments>,
    /// Discovery from an earlier configuration of the same name, or from an earlier process. Dropped after the
    /// cluster's first answer.
    inherited: ArcSwapOption<Served>,
    since: Instant,
    discovered_at: Mutex<Option<Instant>>,
    /// API versions whose resources discovery lacks. The value is the time of the last discovery that contained the
    /// resources.
    undescribed_since: Mutex<HashMap<GroupVersion, Instant>>,
    /// If the same cluster is configured under two names, the name under which the merged view shows its objects.
    duplicate: ArcSwapOption<ClusterName>,
    /// Name of a different configured cluster that reports the same uid, without a proof that both are the same
    /// cluster.
    suspected_duplicate: ArcSwapOption<ClusterName>,
    identity: ArcSwap<ClusterIdentity>,
    /// Time at which the namespace kube-system was created.
    created: OnceLock<Timestamp>,
    /// Identity of the cluster. If the configuration of the cluster changes, the identity stays.
    incarnation: Incarnation,
    version: ArcSwapOption<ServerVersion>,
    /// Last time at which the cluster answered all discovery requests, including those of [`RARE_INTERVAL`].
    all_answered_at: Mutex<Option<Instant>>,
    problem: Mutex<Option<ClusterProblem>>,
    /// Time at which the last fault ended.
    mended: Mutex<Option<Instant>>,
    /// Time of the log line about the current fault. Empty after the log line about the end of the fault.
    pub(super) logged_at: Mutex<Option<Instant>>,
    /// Time of the last log line about decreased revisions.
    went_back: Mutex<Option<Instant>>,
    /// Time of the last log line about missing impersonation rights.
    impersonation_forbidden: Mutex<Option<Instant>>,
    allows_impersonation: AtomicBool,
    refresh: Notify,
    /// Notified when a client begins to read a custom kind that discovery lacks.
    new_reader: Notify,
    /// Changes of the cluster's kinds that the cluster's discovery may not show yet.
    kind_changes: Arc<KindChanges>,
    /// Whether the watches of the cluster's kinds are up to date.
    kinds_watched: AtomicBool,
    /// Time until which Tributary assumes that clients read a custom kind that discovery lacks.
    readers_until: Mutex<Option<Instant>>,
    /// Last discovery for which a client's request waited. Locked during the wait, so that concurrent requests wait for
    /// the same discovery.
    refreshed: tokio::sync::Mutex<Option<Refresh>>,
    attempts: watch::Sender<Attempts>,
    is_discovery_attempted: AtomicBool,
    /// Permits for lookups: requests that find out whether the cluster has an object.
    lookups: Arc<FairQueue>,
    list_permits: ListPermits,
    precedence: Precedence,
    /// Permits for clients' long-running requests, except watches. Watches also use these permits if the cluster has no
    /// separate connections for watches.
    long_running: Arc<FairSemaphore>,
    /// Permits for clients' watches below the path of the cluster.
    watches: Arc<FairSemaphore>,
    /// Permits for clients' requests that are not long-running.
    short: Arc<FairSemaphore>,
    unread: MemberUnreadBytes,
    cancelled: CancellationToken,
}

/// Metrics of the limits for clients' requests to clusters, summed over all clusters.
#[derive(Clone, Debug, Default)]
pub struct MemberShareMetrics {
    /// Metrics of clients' long-running requests, without watches.
    pub long_running: ShareMetrics,
    /// Metrics of clients' watches.
    pub watches: ShareMetrics,
    /// Metrics of clients' requests that are not long-running.
    pub short: ShareMetrics,
}

/// Maximum number of concurrent requests by which Tributary finds out whether a cluster has an object. 32: the queue at
/// the cluster stays short. At 30 ms each, these are a thousand requests in a second, or half of them for a single
/// client.
const PARALLEL_LOOKUPS_MAX: usize = 32;

/// Identity that a cluster reports: the uid of its kube-system namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClusterIdentity {
    /// The cluster has not reported its identity yet.
    #[default]
    Unknown,
    /// The cluster does not let Tributary read the uid of its kube-system namespace.
    Withheld,
    /// Uid of the cluster's kube-system namespace.
    Known(Arc<String>),
}

impl Cluster {
    /// Reserves a permit for a client's request and, for a long-running request, bytes for the unread part of the
    /// answer. Keep both until the answer has ended. Clients share the cluster's connections and the unread bytes, so a
    /// slow reader must leave capacity for other clients. Tributary's own requests need no permit. Short requests need
    /// no bytes, because Tributary ends an answer without a reader within a minute.
    ///
    /// # Errors
    /// 429 with the cluster and the remedy.
    pub fn reserve_request(
        &self,
        class: RequestClass,
        share_key: ShareKey,
    ) -> Result<(FairPermit, Option<FairPermit>), Refusal> {
        let share = self.share(class);
        let window = if Arc::ptr_eq(share, &self.watches) { WATCH_WINDOW } else { ANSWER_WINDOW };
        let permit = share.acquire(share_key, 1).map_err(|exceeded| LimitRefusal::ClusterPlaces {
            cluster: self.name().clone(),
            exceeded,
            is_long_running: class.is_long_running(),
        })?;
        let unread = match class.is_long_running() {
            true => Some(
                self.unread
                    .reserve_bytes(share_key, window)
                    .map_err(|exceeded| LimitRefusal::MemberUnread { cluster: self.name().clone(), exceeded })?,
            ),
            false => None,
        };
        Ok((permit, unread))
    }

    pub(super) fn request_usage(&self, class: RequestClass) -> (usize, usize) {
        let share = self.share(class);
        (share.used(), share.max())
    }

    /// Returns the limit for a class of requests, after its maximum was updated to the capacity of the connections.
    fn share(&self, class: RequestClass) -> &Arc<FairSemaphore> {
        let client = self.setup.client.as_ref().ok();
        // Only for watches, because this call visits each endpoint.
        let watches = client.filter(|_| class == RequestClass::Watch).and_then(ClusterClient::watches_for_clients);
        let (share, carried) = match (class, watches) {
            (RequestClass::Short, _) => (&self.short, client.map(ClusterClient::short_for_clients)),
            (RequestClass::Watch, Some(watches)) => (&self.watches, Some(watches)),
            _ => (&self.long_running, client.map(ClusterClient::long_running_for_clients)),
        };
        if let Some(carried) = carried {
            share.resize(carried);
        }
        share
    }

    /// Waits for a permit for a lookup: a request that finds out, for a client, whether this cluster has an object.
    /// Dropping the future gives up the position in the queue.
    pub async fn lookup(&self, share_key: ShareKey) -> Option<Permit> {
        self.lookups.acquire(share_key).await
    }

    /// Returns the permits for relists of the cluster's collections.
    pub fn list_permits(&self) -> &ListPermits {
        &self.list_permits
    }

    /// Returns the precedence of collections after an outage. In shared mode, roles and bindings have to be current
    /// before other collections resume.
    pub fn precedence(&self) -> &Precedence {
        &self.precedence
    }

    /// Creates a cluster that has not answered yet, with the discovery of an earlier configuration if there is one.
    pub fn new(
        setup: ClusterSetup,
        (incarnation, before): (Incarnation, Option<Served>),
        documents: &Arc<MemberDocuments>,
        unread: &MemberUnreadBytes,
        shares: &MemberShareMetrics,
    ) -> Arc<Self> {
        Arc::new(Self {
            inherited: ArcSwapOption::new(before.map(Arc::new)),
            since: Instant::now(),
            discovered_at: Mutex::default(),
            undescribed_since: Mutex::default(),
            duplicate: ArcSwapOption::empty(),
            suspected_duplicate: ArcSwapOption::empty(),
            mark: Arc::new(ClusterMark::new(&setup.name, setup.index)),
            fetched: ArcSwapOption::empty(),
            documents: Arc::clone(documents),
            identity: ArcSwap::default(),
            created: OnceLock::new(),
            incarnation,
            version: ArcSwapOption::empty(),
            all_answered_at: Mutex::default(),
            problem: Mutex::new(
                setup
                    .client
                    .as_ref()
                    .err()
                    .map(|text| ClusterProblem::new(ClusterCondition::Misconfigured, text.clone())),
            ),
            mended: Mutex::default(),
            logged_at: Mutex::default(),
            went_back: Mutex::default(),
            impersonation_forbidden: Mutex::default(),
            allows_impersonation: AtomicBool::new(false),
            refresh: Notify::new(),
            new_reader: Notify::new(),
            kind_changes: Arc::default(),
            kinds_watched: AtomicBool::new(false),
            readers_until: Mutex::default(),
            refreshed: tokio::sync::Mutex::default(),
            attempts: watch::Sender::default(),
            is_discovery_attempted: AtomicBool::new(false),
            lookups: FairQueue::new(PARALLEL_LOOKUPS_MAX),
            list_permits: ListPermits::default(),
            precedence: Precedence::default(),
            long_running: FairSemaphore::new("long-running requests", 0, shares.long_running.clone()),
            watches: FairSemaphore::new("watches", 0, shares.watches.clone()),
            short: FairSemaphore::new("short requests", 0, shares.short.clone()),
            unread: unread.clone(),
            cancelled: CancellationToken::new(),
            setup,
        })
    }

    /// Returns the identity of the cluster.
    pub fn incarnation(&self) -> &Incarnation {
        &self.incarnation
    }

    /// Returns whether a different cluster answers at this cluster's addresses and may replace this cluster now.
    pub(super) fn is_replaceable(&self) -> bool {
        self.has_successor() && self.incarnation.replaceable_at().is_none_or(|at| at <= Instant::now())
    }

    pub(super) fn has_successor(&self) -> bool {
        self.setup.client.as_ref().is_ok_and(|client| client.successor().is_some())
    }

    /// Returns whether a connection has proved that it leads to the cluster of this identity.
    pub(super) fn is_confirmed(&self) -> bool {
        self.setup.client.as_ref().is_ok_and(ClusterClient::is_cluster_confirmed)
    }

    pub(super) fn withholds_uid(&self) -> bool {
        *self.identity() == ClusterIdentity::Withheld
    }

    /// Restricts new connections to the cluster with this identity.
    pub(super) fn expect(&self) {
        if let Ok(client) = &self.setup.client {
            self.incarnation.set_address(&self.setup.address);
            client.expect_cluster(self.incarnation.uid());
        }
    }

    /// Refuses each request that has no connection yet. Ends when the cluster is started.
    pub(super) fn close(&self) {
        if let Ok(client) = &self.setup.client {
            client.close_cluster();
        }
    }

    pub(super) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Closes all connections to the cluster, with their watches, logs and tunnels.
    pub(super) fn close_connections(&self) {
        if let Ok(client) = &self.setup.client {
            client.close_connections();
        }
    }

    /// Returns the name of the cluster.
    pub fn name(&self) -> &ClusterName {
        &self.setup.name
    }

    /// Returns a transport for requests with Tributary's own rights. The error is the reason why the cluster has no
    /// client.
    pub fn transport(&self) -> Result<Transport, String> {
        self.setup.client.as_ref().map(ClusterClient::transport).map_err(Clone::clone)
    }

    /// As [`transport`](Self::transport), but with separate connections, for cachers of single namespaces. Clients can
    /// cause any number of such cachers, which must not use up the connections for other requests.
    pub fn transport_for_namespaces(&self) -> Result<Transport, String> {
        self.setup.client.as_ref().map(ClusterClient::transport_for_namespaces).map_err(Clone::clone)
    }

    /// Returns the last known discovery. `None` until the first answer.
    pub fn discovery(&self) -> Option<Arc<MemberDiscovery>> {
        self.fetched.load().as_ref().map(|fetched| fetched.discovery.clone())
    }

    /// Discovery for clients: the last known discovery or, before the first answer, the discovery of an earlier
    /// configuration. So a new configuration removes no resources while Tributary waits for the first answer.
    pub(super) fn discovery_for_clients(&self) -> Option<Arc<MemberDiscovery>> {
        self.discovery().or_else(|| Some(Arc::clone(&self.inherited.load().as_ref()?.discovery)))
    }

    /// Discovery for clients, with the address of the cluster that reported it.
    pub(super) fn served(&self) -> Option<Served> {
        let own = self.discovery().map(|discovery| Served { address: self.setup.address.clone(), discovery });
        own.or_else(|| self.inherited.load().as_deref().cloned())
    }

    /// Returns the time since which discovery lists an API version without the version's resources, and the cause.
    /// `None` if discovery has the resources or lacks the version, and before the first discovery.
    pub fn undescribed(&self, resource: &GroupVersionResource) -> Option<(Instant, String)> {
        let version = resource.group_version();
        let undescribed = self.discovery()?.undescribed(&version)?;
        let since = self.undescribed_since.lock().get(&version).copied();
        let since = since.or(*self.discovered_at.lock()).unwrap_or(self.since);
        Some((since, NotMergedReason::Undescribed(undescribed).reason(resource)))
    }

    /// Returns whether discovery describes the version of a resource in a form that cannot be parsed.
    pub(super) fn is_unreadable(&self, resource: &GroupVersionResource) -> bool {
        let undescribed = self.discovery().and_then(|own| own.undescribed(&resource.group_version()));
        matches!(undescribed, Some(Undescribed::Unreadable(_)))
    }

    /// Returns the time of the last successful discovery, and the reason for which the cluster may now serve a resource
    /// that this discovery lacks. `None` if discovery is up to date.
    pub fn outdated(&self, resource: &GroupVersionResource) -> Option<(Instant, String)> {
        let discovered_at = (*self.discovered_at.lock())?;
        if self.duplicate.load().is_some() {
            return None;
        }
        let problem = || self.problem.lock().as_ref().map(|problem| problem.text.clone());
        let changed = || {
            let changed = "the CustomResourceDefinitions or APIServices of the cluster have changed since";
            self.kind_changes.concern(resource).then(|| changed.to_owned())
        };
        let cause = self.out_of_reach().map(|failure| failure.cause).or_else(problem).or_else(changed)?;
        Some((discovered_at, cause))
    }

    /// Records a successful discovery, and the API versions whose resources the discovery lacks.
    fn record_discovery(&self, discovery: &MemberDiscovery) {
        let now = Instant::now();
        let before = self.discovered_at.lock().replace(now).unwrap_or(now);
        let mut since = self.undescribed_since.lock();
        let undescribed = discovery.all_undescribed();
        *since = undescribed.map(|version| (version.clone(), *since.get(&version).unwrap_or(&before))).collect();
    }

    /// Returns the address of the cluster.
    pub fn address(&self) -> &ClusterAddress {
        &self.setup.address
    }

    /// Returns the time at which the cluster was configured.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Returns the time since the cluster was configured.
    pub fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// If the same cluster is configured under two names, returns the name under which the merged view shows its
    /// objects.
    pub fn duplicate(&self) -> Option<Arc<ClusterName>> {
        self.duplicate.load_full()
    }

    /// Returns the name of a cluster that reports the same uid, without a proof that it is the same cluster. The merged
    /// view shows both clusters.
    pub fn suspected_duplicate(&self) -> Option<Arc<ClusterName>> {
        self.suspected_duplicate.load_full()
    }

    pub(super) fn set_duplicates(&self, duplicate: Option<&ClusterName>, suspected_duplicate: Option<&ClusterName>) {
        for (own, other) in [(&self.duplicate, duplicate), (&self.suspected_duplicate, suspected_duplicate)] {
            if own.load().as_deref() != other {
                own.store(other.cloned().map(Arc::new));
            }
        }
    }

    /// Returns whether both clusters provably have a server in common.
    pub(super) fn is_served_with(&self, other: &Self) -> bool {
        let (Ok(own), Ok(other)) = (&self.setup.client, &other.setup.client) else { return false };
        own.server_identities().share_server(other.server_identities())
    }

    /// Returns a problem with the identity: the cluster does not report its uid, or a second cluster reports the same
    /// uid.
    pub fn identity_problem(&self) -> Option<String> {
        if self.withholds_uid() {
            let problem = "the cluster does not report the uid of its namespace kube-system, so a switch to another cluster \
                           behind the same address would stay unnoticed; grant the account that Tributary uses the verb \
                           get on this namespace";
            return Some(problem.to_owned());
        }
        let (other, uid) = (self.suspected_duplicate()?, self.uid()?);
        Some(format!(
            "cluster {other} and this cluster have the same kube-system uid ({uid}), and no address or certificate \
             proves that they are the same cluster, so both are shown; remove one of them if they are the same, \
             otherwise one reports a false uid"
        ))
    }

    /// Returns the uid of the cluster's kube-system namespace. `None` until the uid is known.
    pub fn uid(&self) -> Option<Arc<String>> {
        match &**self.identity.load() {
            ClusterIdentity::Known(uid) => Some(Arc::clone(uid)),
            ClusterIdentity::Unknown | ClusterIdentity::Withheld => None,
        }
    }

    /// Returns the time at which the cluster's namespace kube-system was created. `None` until the cluster reports it.
    pub fn created(&self) -> Option<Timestamp> {
        self.created.get().copied()
    }

    /// Returns the identity that the cluster has reported so far.
    pub fn identity(&self) -> Arc<ClusterIdentity> {
        self.identity.load_full()
    }

    /// Returns whether the first discovery attempt has ended. Also true if the cluster has no client, because then no
    /// attempt is possible.
    pub fn is_asked(&self) -> bool {
        self.setup.client.is_err() || self.is_discovery_attempted.load(Ordering::Relaxed)
    }

    /// Returns the version of the server. `None` until the version is known, or if the cluster does not report it.
    pub fn version(&self) -> Option<Arc<ServerVersion>> {
        self.version.load_full()
    }

    /// Returns the number of times that Tributary's credentials for the cluster were renewed.
    pub fn renewals(&self) -> u64 {
        self.setup.client.as_ref().map_or(0, ClusterClient::renewals)
    }

    /// Returns the current fault of the cluster.
    pub fn problem(&self) -> Option<String> {
        let duplicate = || {
            self.duplicate().map(|duplicate| {
                format!("the cluster is the same as {duplicate}, under a second name (the same kube-system uid)")
            })
        };
        self.problem.lock().as_ref().map(|problem| problem.text.clone()).or_else(duplicate)
    }

    /// Returns the time since the end of the last fault; zero during a fault.
    pub fn healthy_for(&self) -> Duration {
        match *self.problem.lock() {
            Some(_) => Duration::ZERO,
            None => self.mended.lock().unwrap_or(self.since).elapsed(),
        }
    }

    pub(super) fn problem_since(&self) -> Option<(String, Duration)> {
        self.problem.lock().as_ref().map(|problem| (problem.text.clone(), problem.since.elapsed()))
    }

    /// Returns whether the current problem lasts until an administrator repairs it.
    pub(super) fn has_lasting_problem(&self) -> bool {
        self.problem.lock().as_ref().is_some_and(|problem| problem.lasts && problem.since.elapsed() >= STARTING_MAX)
    }

    pub(super) fn problem_condition(&self) -> Option<ClusterCondition> {
        self.problem.lock().as_ref().map(|problem| problem.condition)
    }

    /// Records that the revisions of the cluster decreased. Each collection notices the decrease, but the log gets only
    /// one line.
    pub fn record_reset(&self) {
        let mut last_logged = self.went_back.lock();
        if last_logged.is_none_or(|last_logged| last_logged.elapsed() >= RESET_LOG_INTERVAL) {
            *last_logged = Some(Instant::now());
            tracing::warn!(cluster = %self.name(),
                "the resourceVersions of the cluster went back, as after a restore; clients list again");
        }
    }

    /// Records that the cluster allowed Tributary to impersonate a user.
    pub fn record_impersonation_allowed(&self) {
        self.allows_impersonation.store(true, Ordering::Relaxed);
    }

    /// Returns whether the cluster has ever allowed Tributary to impersonate a user.
    pub fn allows_impersonation(&self) -> bool {
        self.allows_impersonation.load(Ordering::Relaxed)
    }

    /// Records that the cluster refused an impersonation. If `missing_permission` is set, the impersonation exceeds the
    /// limits that an administrator has set. If it is not set, Tributary lacks the right to impersonate, and an
    /// administrator has to grant it. Logs at most one line a minute.
    pub fn record_impersonation_forbidden(&self, answer: &str, missing_permission: Option<&MissingPermission>) {
        let mut last_logged = self.impersonation_forbidden.lock();
        if last_logged.is_some_and(|last_logged| last_logged.elapsed() < IMPERSONATION_LOG_INTERVAL) {
            return;
        }
        *last_logged = Some(Instant::now());
        if let Some(missing_permission) = missing_permission {
            let remedy = format!("to allow it, change the profile: {}", missing_permission.remedy(self.name()));
            tracing::info!(cluster = %self.name(), said = answer, remedy, "the cluster refuses a request because the profile of Tributary's account lacks the right");
        } else {
            let remedy = "allow Tributary's account to impersonate users: tributary join CONTEXT, or see \
                          docs/shared-mode.md";
            tracing::error!(cluster = %self.name(), said = answer, remedy, "the cluster does not allow Tributary's account to impersonate users");
        }
    }

    /// Triggers a discovery in the cluster's task, without waiting for it.
    pub fn refresh(&self) {
        self.refresh.notify_one();
    }

    /// Records a list or watch of a custom kind that discovery lacks. If the watches of the cluster's kinds do not
    /// work, Tributary requests the cluster's discovery each second as long as the client presumably reads the kind.
    pub fn record_reader(&self, reader: KindReader) {
        if self.kinds_watched.load(Ordering::Relaxed) || self.problem.lock().is_some() {
            return;
        }
        let until = Instant::now() + reader.lasts_for();
        let mut readers_until = self.readers_until.lock();
        let had_reader = readers_until.is_some_and(|end| end > Instant::now());
        *readers_until = (*readers_until).max(Some(until));
        if !had_reader {
            self.new_reader.notify_one();
        }
    }

    /// Returns whether a client presumably reads a custom kind that discovery lacks.
    fn has_reader(&self) -> bool {
        self.readers_until.lock().is_some_and(|end| end > Instant::now())
    }

    /// Triggers a discovery and waits for it, unless an earlier request did so within [`REFRESH_INTERVAL`].
    pub(super) async fn refreshed(&self) {
        let mut refreshed = self.refreshed.lock().await;
        // A cluster without a client gets no requests.
        if self.setup.client.is_err() || refreshed.is_some_and(|last| last.ended.elapsed() < REFRESH_INTERVAL) {
            return;
        }
        let begun = Instant::now();
        // If the wait times out, a later request starts a new discovery.
        let _ = tokio::time::timeout(Refresh::next_wait(*refreshed), self.refresh_and_wait()).await;
        *refreshed = Some(Refresh { ended: Instant::now(), waited: begun.elapsed() });
    }

    /// Triggers a discovery, and waits until an attempt that began after this call has ended.
    pub(crate) async fn refresh_and_wait(&self) {
        let mut attempts = self.attempts.subscribe();
        let begun = attempts.borrow().begun;
        self.refresh();
        // The channel stays open as long as this cluster exists.
        let _ = attempts.wait_for(|attempts| attempts.ended > begun).await;
    }

    /// Waits for the end of the first discovery attempt.
    pub async fn asked_once(&self) {
        let mut attempts = self.attempts.subscribe();
        let _ = attempts.wait_for(|attempts| attempts.ended > 0).await;
    }

    pub(super) fn cancel(&self) {
        self.cancelled.cancel();
    }

    /// Starts the tasks for discovery and health. `changed` is called after each change of discovery, identity or
    /// version.
    pub(super) fn start(
        self: &Arc<Self>,
        object_memory: ObjectMemoryLimit,
        changed: impl Fn(ClusterChange) + Send + Sync + 'static,
    ) {
        let changed = Arc::new(changed);
        self.expect();
        self.report_successor(Arc::clone(&changed));
        let cluster = Arc::clone(self);
        let span = tracing::info_span!("discovery", cluster = %self.name());
        let cancelled = self.cancelled.clone();
        if let Ok(client) = &self.setup.client {
            let (client, cluster, cancelled) = (client.clone(), Arc::clone(self), cancelled.clone());
            let task = async move { tokio::join!(client.watch_over(), cluster.log_failures()) };
            tokio::spawn(async move { cancelled.run_until_cancelled_owned(task).await });
        }
        let task: BoxFuture<'static, ()> = Box::pin(async move { cluster.keep_fresh(object_memory, changed).await });
        tokio::spawn(async move { cancelled.run_until_cancelled_owned(task).await }.instrument(span));
    }

    /// Starts a task that reports, once, that a different cluster answers at the addresses of this cluster.
    fn report_successor(&self, tell: Arc<impl Fn(ClusterChange) + Send + Sync + 'static>) {
        let Some(mut changes) = self.setup.client.as_ref().ok().and_then(ClusterClient::cluster_changes) else {
            return;
        };
        let earliest = self.incarnation.replaceable_at();
        let cancelled = self.cancelled.clone();
        let task = async move {
            changes.succeeded().await;
            if let Some(earliest) = earliest {
                sleep_until(earliest).await;
            }
            tell(ClusterChange::Successor);
        };
        tokio::spawn(async move { cancelled.run_until_cancelled_owned(task).await });
    }

    async fn keep_fresh(
        self: Arc<Self>,
        object_memory: ObjectMemoryLimit,
        tell: Arc<impl Fn(ClusterChange) + Send + Sync + 'static>,
    ) {
        let mut reachability = self.setup.client.as_ref().ok().map(ClusterClient::reachability);
        let mut kinds = FollowedKinds::default();
        let mut all = true;
        loop {
            self.attempts.send_modify(|attempts| attempts.begun += 1);
            if let Some(news) = Arc::clone(&self).refresh_discovery(all).await {
                tell(news);
            }
            self.attempts.send_modify(|attempts| attempts.ended = attempts.begun);
            self.follow_kinds(&mut kinds, &object_memory);
            let has_failed = self.problem_since().is_some();
            if has_failed {
                self.log_failure()
            } else {
                self.log_recovery()
            }
            // Ignores a change of the reachability that this attempt itself may have caused. But if the attempt failed
            // and the cluster is reachable now, the change triggers another attempt.
            if let Some(reachability) = &mut reachability
                && !(has_failed && reachability.borrow().is_reachable())
            {
                reachability.mark_unchanged();
            }
            let is_watched = kinds.are_current();
            self.kinds_watched.store(is_watched, Ordering::Relaxed);
            let pause = match has_failed {
                true if self.is_new_successor() => SUCCESSOR_INTERVAL,
                false if !is_watched && self.has_reader() => UNWATCHED_INTERVAL,
                _ => DISCOVERY_INTERVAL,
            };
            // Random pauses spread the discovery requests of all replicas to all members over time.
            let pause = pause.mul_f64(rand::rng().random_range(0.8..1.2));
            all = tokio::select! {
                () = sleep_until(nearest_tick(Instant::now() + pause)) => has_failed || self.is_rare_due(),
                () = self.refresh.notified() => true,
                () = self.kind_changes.due() => false,
                () = self.new_reader.notified() => false,
                () = changed(&mut reachability) => true,
            };
        }
    }

    /// Returns whether the cluster has just replaced a different cluster. A discovery may fail because Tributary has
    /// refused connections during the replacement, so it is soon repeated.
    fn is_new_successor(&self) -> bool {
        self.incarnation.is_successor() && self.age() < DISCOVERY_INTERVAL
    }

    /// Starts or stops the watches of the cluster's CustomResourceDefinitions and APIServices.
    fn follow_kinds(&self, kinds: &mut FollowedKinds, object_memory: &ObjectMemoryLimit) {
        let (Some(discovery), Ok(transport)) = (self.discovery(), self.transport()) else { return };
        let followed = KindsOf {
            cluster: self.name(),
            discovery: &discovery,
            transport: &transport,
            list_permits: self.list_permits(),
            object_memory,
            changes: &self.kind_changes,
        };
        kinds.follow(&followed, || self.health());
    }

    /// Returns a subscription to the health of the cluster.
    pub fn health(&self) -> ClusterHealth {
        ClusterHealth::follow_client(self.setup.client.as_ref().ok())
    }

    fn is_rare_due(&self) -> bool {
        self.all_answered_at.lock().is_none_or(|at| at.elapsed() >= RARE_INTERVAL)
    }

    /// Runs one discovery attempt. If `all` is set, also sends the requests of [`RARE_INTERVAL`]. Returns the change,
    /// if any.
    async fn refresh_discovery(self: Arc<Self>, all: bool) -> Option<ClusterChange> {
        let Ok(transport) = self.transport() else { return None };
        let (before, begun) = (self.fetched.load_full(), Instant::now());
        let attempt = tokio::time::timeout(DISCOVERY_TIMEOUT, async {
            let served = self.served().map(|served| served.discovery);
            let fetched = fetch_all(transport.clone(), before.clone(), all, served, &self.documents).await?;
            if !all {
                return Ok((fetched, ClusterIdentity::Unknown, None));
            }
            let ((identity, created), version) = tokio::join!(identity(transport.clone()), server_version(transport));
            if self.is_succeeded(&identity) {
                let text = "a different cluster answers at the address (the kube-system uid differs)".to_owned();
                return Err(ClusterProblem::new(ClusterCondition::Troubled, text));
            }
            if let Some(created) = created {
                self.created.get_or_init(|| created);
            }
            if version.is_some() && identity != ClusterIdentity::Unknown {
                *self.all_answered_at.lock() = Some(Instant::now());
            }
            Ok((fetched, identity, version))
        });
        let answer = attempt.await.unwrap_or_else(|_| {
            let text = format!("no answer to discovery within {} s", DISCOVERY_TIMEOUT.as_secs());
            Err(ClusterProblem::new(ClusterCondition::Troubled, text))
        });
        let news = match answer {
            Ok((fetched, identity, version)) => {
                let mended = self.set_problem(None);
                self.record_discovery(&fetched.discovery);
                self.kind_changes.shown(begun);
                let is_known = before.as_ref().is_some_and(|before| before.discovery == fetched.discovery);
                let is_another = self.set_identity(identity);
                let version_changed = version.is_some() && self.version.load().as_deref() != version.as_ref();
                if version_changed {
                    self.version.store(version.map(Arc::new));
                }
                self.fetched.store(Some(Arc::new(fetched)));
                self.inherited.store(None);
                match !is_known || is_another || version_changed {
                    true => Some(ClusterChange::DiscoveryOrIdentity),
                    false => mended.then_some(ClusterChange::Problem),
                }
            }
            Err(problem) => self.set_problem(Some(problem)).then_some(ClusterChange::Problem),
        };
        self.is_discovery_attempted.store(true, Ordering::Relaxed);
        news
    }

    /// Returns whether a server has reported a uid that differs from the known uid of this cluster, so that a different
    /// cluster answers.
    fn is_succeeded(&self, reported: &ClusterIdentity) -> bool {
        let (ClusterIdentity::Known(uid), Ok(client)) = (reported, &self.setup.client) else { return false };
        client.compare_cluster(uid) == UidMatch::Other
    }

    /// Stores the identity that the cluster has reported. Returns whether the identity is new. A known uid does not
    /// change, because a different uid belongs to a different cluster.
    fn set_identity(&self, reported: ClusterIdentity) -> bool {
        let known = self.identity.load_full();
        let is_news = match (&*known, &reported) {
            (_, ClusterIdentity::Unknown) | (ClusterIdentity::Known(_), _) => false,
            (known, reported) => known != reported,
        };
        if is_news {
            if let ClusterIdentity::Known(uid) = &reported {
                self.incarnation.set_uid(uid);
            }
            self.identity.store(Arc::new(reported));
        }
        is_news
    }

    fn set_problem(&self, problem: Option<ClusterProblem>) -> bool {
        let mut known = self.problem.lock();
        if known.as_ref().map(|known| &known.text) == problem.as_ref().map(|problem| &problem.text) {
            return false;
        }
        match (&*known, &problem) {
            (_, Some(problem)) => tracing::debug!(reason = %problem.text, "discovery failed"),
            (_, None) => *self.mended.lock() = Some(Instant::now()),
        }
        let since = known.as_ref().map_or_else(Instant::now, |known| known.since);
        *known = problem.map(|problem| ClusterProblem { since, ..problem });
        true
    }
}

/// Requests the discovery documents. A kube-apiserver that has just started may omit its CustomResourceDefinitions.
/// Therefore, kinds that the cluster `served` before (also in an earlier process) disappear only if the cluster is
/// ready and still omits them.
async fn fetch_all(
    transport: Transport,
    before: Option<Arc<Fetched>>,
    all: bool,
    served: Option<Arc<MemberDiscovery>>,
    documents: &MemberDocuments,
) -> Result<Fetched, ClusterProblem> {
    let failed = |error: FetchError| {
        let is_other_protocol = matches!(error, FetchError::PlainHttp { .. });
        let condition = if is_other_protocol { ClusterCondition::Misconfigured } else { ClusterCondition::Troubled };
        ClusterProblem { lasts: error.lasts(), ..ClusterProblem::new(condition, explain(&error)) }
    };
    let fetched = fetch(transport.clone(), before, all, documents).await.map_err(failed)?;
    let serves_all =
        |served: &Arc<MemberDiscovery>| fetched.discovery == *served || fetched.discovery.serves_all_of(served);
    if served.as_ref().is_none_or(serves_all) {
        return Ok(fetched);
    }
    if !is_ready(transport.clone()).await {
        let text = "the cluster is not ready, and its discovery lacks resources that it served before".to_owned();
        return Err(ClusterProblem::new(ClusterCondition::Troubled, text));
    }
    fetch(transport, None, true, documents).await.map_err(failed)
}

/// Returns whether the cluster is ready. A cluster that forbids reads of `/readyz` is treated as ready.
async fn is_ready(transport: Transport) -> bool {
    let Ok(request) = Request::get("/readyz").body(body::empty()) else { return false };
    body::send(transport, request).await.is_ok_and(|answer| !answer.status().is_server_error())
}

async fn changed(reachability: &mut Option<watch::Receiver<Reachability>>) {
    let known = match reachability {
        Some(reachability) => reachability.changed().await.is_ok(),
        None => false,
    };
    if !known {
        std::future::pending::<()>().await;
    }
}

/// Requests the uid and the creation time of the kube-system namespace. With a 403, a 404 or a response without a uid,
/// the cluster withholds its uid. With no complete response or any other status, for example of an overloaded cluster,
/// the identity stays unknown.
async fn identity(transport: Transport) -> (ClusterIdentity, Option<Timestamp>) {
    #[derive(serde::Deserialize)]
    struct KubeSystemNamespace {
        metadata: KubeSystemMetadata,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct KubeSystemMetadata {
        uid: Arc<String>,
        #[serde(default)]
        creation_timestamp: Option<String>,
    }
    match get(transport, "/api/v1/namespaces/kube-system").await {
        Some((StatusCode::OK, text)) => match serde_json::from_slice::<KubeSystemNamespace>(&text) {
            Ok(KubeSystemNamespace { metadata }) if is_uid(&metadata.uid) => {
                let created = metadata.creation_timestamp.and_then(|created| created.parse().ok());
                (ClusterIdentity::Known(metadata.uid), created)
            }
            _ => (ClusterIdentity::Withheld, None),
        },
        Some((StatusCode::FORBIDDEN | StatusCode::NOT_FOUND, _)) => (ClusterIdentity::Withheld, None),
        _ => (ClusterIdentity::Unknown, None),
    }
}

async fn server_version(transport: Transport) -> Option<ServerVersion> {
    let (code, text) = get(transport, "/version").await?;
    if code == StatusCode::OK { ServerVersion::parse(text) } else { None }
}

async fn get(transport: Transport, path: &str) -> Option<(StatusCode, Bytes)> {
    let request = Request::get(path).body(body::empty()).ok()?;
    let answer = body::send(transport, request).await.ok()?;
    Some((answer.status(), body::whole(answer.into_body()).await.ok()?))
}
