//! All clusters of this process.
//!
//! ```text
//! member's answer ──▶ PendingChanges ──▶ one task, at most every 100 ms ──▶ union ──▶ generation: views and epochs
//! follow ```
//!
//! If a thousand clusters get discovery requests at once, they also answer at once. One task joins all their answers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::runtime::{EnterGuard, Handle};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tributary_apimachinery::ClusterName;
use tributary_cacher::ObjectMemoryLimit;
use tributary_proxy::{ClusterClient, Successor};
use tributary_sharing::flow::large_bodies::run_in_place;

use super::cluster::{Cluster, ClusterChange, MemberShareMetrics};
use super::incarnation::Incarnation;
use super::mark::ClusterMark;
use super::member_unread::MemberUnreadBytes;
use super::served::Served;
use super::server_version::ServerVersion;
use super::setup::ClusterSetup;
use crate::aggregated_group;
use crate::discovery::{MemberDiscovery, MemberDocuments, MergedDiscovery};

/// Minimum time between two computations of the union of discovery documents. 100 ms: the answers of a whole fleet
/// cause a few dozen computations, and a member needs much longer than 100 ms to serve a new CRD.
const TAKE_OVER_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of clusters for which the union of discovery documents is computed in place (`block_in_place`). With
/// more clusters, a blocking thread computes the union. 16: if no cluster has an unusual document, the computation
/// costs less than one HTTP/2 frame of a list.
const AT_ONCE_MAX: usize = 16;

/// Time within which a cluster with a new address has to report its uid.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(15);

/// Pause between two requests for the uid of a cluster with a new address.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Maximum number of removed clusters whose marks are stored. 10,000, because an integer resourceVersion can name only
/// 10,000 clusters.
const FORMER_MAX: usize = 10_000;

/// Function that drops all state of a cluster whose name now belongs to a different cluster (the second argument), or
/// to no cluster.
type Forgetter = Box<dyn Fn(&ClusterName, Option<&Arc<Cluster>>) + Send + Sync>;

type Clusters = BTreeMap<ClusterName, Arc<Cluster>>;

/// All member clusters, by name. Readers take an `Arc` and never wait.
pub struct Fleet {
    /// Tokio runtime of cachers and discovery. Requests of clients run in the runtime of their connection.
    runtime: Handle,
    clusters: ArcSwap<BTreeMap<ClusterName, Arc<Cluster>>>,
    merged_discovery: ArcSwap<MergedDiscovery>,
    generation: watch::Sender<u64>,
    news: Arc<PendingChanges>,
    /// Discovery documents of the clusters. Equal documents are stored once.
    documents: Arc<MemberDocuments>,
    shares: MemberShareMetrics,
    object_memory: ObjectMemoryLimit,
    unread: MemberUnreadBytes,
    /// Clusters with a new address that have not reported their uid yet. Locked while the set of clusters changes.
    awaited: Mutex<BTreeMap<ClusterName, Arc<Cluster>>>,
    /// Functions that the fleet calls when a name gets a different cluster, or none.
    forgetters: Mutex<Vec<Forgetter>>,
    /// Discovery from an earlier process. An entry is removed when a cluster of its name is configured.
    known: Mutex<BTreeMap<ClusterName, Served>>,
    /// Marks of removed clusters. Open watches need the marks to report the deletion of the clusters' objects.
    former: Mutex<BTreeMap<ClusterName, Arc<ClusterMark>>>,
}

/// Changes of clusters that are not yet in the union of discovery documents.
#[derive(Default)]
struct PendingChanges {
    /// Whether discovery, identity or version of a cluster has changed since the last computation of the union.
    discovery_changed: AtomicBool,
    /// Whether a different cluster has answered at the addresses of a cluster since the last computation of the union.
    successors: AtomicBool,
    recorded: AtomicU64,
    applied: watch::Sender<u64>,
    wake: Notify,
    /// Ends the pause between two computations of the union early. Used after a change of the configuration: such
    /// changes are rare, and users expect their effect at once.
    at_once: Notify,
}

impl PendingChanges {
    fn add_change(&self, news: ClusterChange) {
        match news {
            ClusterChange::DiscoveryOrIdentity => self.discovery_changed.store(true, Ordering::SeqCst),
            ClusterChange::Successor => self.successors.store(true, Ordering::SeqCst),
            ClusterChange::Problem => {}
        }
        self.recorded.fetch_add(1, Ordering::SeqCst);
        self.wake.notify_one();
    }

    /// Waits until the union of discovery documents contains all changes that were recorded before this call.
    async fn settled(&self) {
        let recorded = self.recorded.load(Ordering::SeqCst);
        // The wait cannot fail, because `self` owns the sender.
        let _ = self.applied.subscribe().wait_for(|applied| *applied >= recorded).await;
    }
}

impl Fleet {
    /// Creates a fleet without clusters, and without limits for the memory of objects and for unread bytes.
    pub fn new(shares: MemberShareMetrics, known: BTreeMap<ClusterName, Served>) -> Arc<Self> {
        Self::within(ObjectMemoryLimit::unbounded(), MemberUnreadBytes::default(), shares, known)
    }

    /// Creates a fleet without clusters. `room` limits the memory of objects, and `unread` the unread bytes of
    /// clusters' answers. `known` is discovery from an earlier process. Must be called within a tokio runtime.
    pub fn within(
        object_memory: ObjectMemoryLimit,
        unread: MemberUnreadBytes,
        shares: MemberShareMetrics,
        known: BTreeMap<ClusterName, Served>,
    ) -> Arc<Self> {
        let fleet = Arc::new(Self {
            runtime: Handle::current(),
            clusters: ArcSwap::default(),
            merged_discovery: ArcSwap::from_pointee(merge_discovery(&[])),
            generation: watch::Sender::new(0),
            news: Arc::default(),
            documents: Arc::default(),
            shares,
            object_memory,
            unread,
            awaited: Mutex::default(),
            forgetters: Mutex::default(),
            known: Mutex::new(known),
            former: Mutex::default(),
        });
        let (weak, news) = (Arc::downgrade(&fleet), Arc::clone(&fleet.news));
        tokio::spawn(async move {
            loop {
                news.wake.notified().await;
                let Some(fleet) = weak.upgrade() else { break };
                fleet.take_over().await;
                drop(fleet);
                tokio::select! {
                    () = tokio::time::sleep(TAKE_OVER_INTERVAL) => {}
                    () = news.at_once.notified() => {}
                }
            }
        });
        fleet
    }

    /// Returns the limit for the unread bytes of all clusters' answers.
    pub fn unread(&self) -> &MemberUnreadBytes {
        &self.unread
    }

    /// Returns the limit for the memory of all objects.
    pub fn object_memory(&self) -> &ObjectMemoryLimit {
        &self.object_memory
    }

    /// Enters the runtime of cachers, so that tasks do not start in the runtime of a client's connection.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Returns the clusters by name.
    pub fn clusters(&self) -> Arc<BTreeMap<ClusterName, Arc<Cluster>>> {
        self.clusters.load_full()
    }

    /// Returns the cluster that has this name.
    pub fn cluster(&self, name: &ClusterName) -> Option<Arc<Cluster>> {
        self.clusters.load().get(name).cloned()
    }

    /// Returns the last known discovery of each cluster, from this process or an earlier one.
    pub fn served(&self) -> BTreeMap<ClusterName, Served> {
        let clusters = self.clusters.load();
        clusters.iter().filter_map(|(name, cluster)| Some((name.clone(), cluster.served()?))).collect()
    }

    /// Returns whether this is the only cluster that is configured, or was configured since the start of the process.
    pub fn has_only(&self, name: &ClusterName) -> bool {
        // `clusters` must be read before `former`. A removed cluster is added to `former` before it leaves `clusters`,
        // so one of the two reads finds it.
        self.clusters.load().keys().all(|own| own == name) && self.former.lock().keys().all(|former| former == name)
    }

    /// Returns the mark with which responses identify a cluster's objects. Also returns a mark for a removed cluster.
    pub fn mark(&self, name: &ClusterName) -> Arc<ClusterMark> {
        if let Some(cluster) = self.clusters.load().get(name) {
            return Arc::clone(&cluster.mark);
        }
        let former = self.former.lock().get(name).cloned();
        former.unwrap_or_else(|| Arc::new(ClusterMark::new(name, None)))
    }

    /// Clusters in order of precedence: newest servers first, then by name.
    pub(crate) fn by_precedence(&self) -> Vec<Arc<Cluster>> {
        let mut clusters: Vec<_> = self.clusters.load().values().cloned().collect();
        // The sort is stable, so clusters with equal server versions stay sorted by name.
        clusters.sort_by_cached_key(|cluster| Reverse(cluster.version().map(|version| version.order())));
        clusters
    }

    /// Returns the version of the oldest server, which limits the features that all clusters have. `None` until a
    /// cluster has reported its version.
    pub fn oldest_version(&self) -> Option<Arc<ServerVersion>> {
        let clusters = self.clusters.load();
        clusters.values().filter_map(|cluster| cluster.version()).min_by_key(|version| version.order())
    }

    /// Returns the union of the clusters' discovery documents.
    pub fn merged_discovery(&self) -> Arc<MergedDiscovery> {
        self.merged_discovery.load_full()
    }

    /// Subscribes to added and removed clusters, and to changes of discovery or identity.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Sets the clusters. A cluster with the same name and configuration stays unchanged. A cluster with a new address
    /// first becomes a candidate: it replaces the earlier configuration after it has reported the same uid. If the uid
    /// differs, the fleet first drops all state of the earlier cluster.
    pub fn set(self: &Arc<Self>, setups: Vec<ClusterSetup>) {
        let mut awaited = self.awaited.lock();
        let mut awaited_before = std::mem::take(&mut *awaited);
        let before = self.clusters.load_full();
        let (mut after, mut started) = (BTreeMap::new(), Vec::new());
        for setup in setups {
            let (name, revision) = (setup.name.clone(), setup.revision());
            let is_described = |cluster: &Arc<Cluster>| cluster.setup.revision() == revision;
            let shown = before.get(&name);
            if let Some(unchanged) = shown.filter(|shown| is_described(shown)) {
                if unchanged.problem().is_some() {
                    // A part of the configuration, such as new credentials, may have ended the fault.
                    unchanged.refresh();
                }
                after.insert(name, Arc::clone(unchanged));
                continue;
            }
            let (cluster, is_known_to_be_same) = match awaited_before.remove(&name).filter(is_described) {
                Some(candidate) => (candidate, false),
                None => {
                    let (cluster, is_known_to_be_same) = self.prepare(setup, shown);
                    started.push(Arc::clone(&cluster));
                    (cluster, is_known_to_be_same)
                }
            };
            match shown {
                Some(shown) if !is_known_to_be_same => {
                    after.insert(name.clone(), Arc::clone(shown));
                    awaited.insert(name, cluster);
                }
                _ => drop(after.insert(name, cluster)),
            }
        }
        awaited_before.values().for_each(|candidate| candidate.cancel());
        let is_awaited =
            |cluster: &Arc<Cluster>| awaited.get(cluster.name()).is_some_and(|own| Arc::ptr_eq(own, cluster));
        for candidate in started.iter().filter(|cluster| is_awaited(cluster)) {
            tracing::info!(cluster = %candidate.name(),
                "the address of the cluster has changed, and its uid is checked; the earlier configuration stays in \
                 use for up to 15 s");
            let (fleet, candidate) = (Arc::clone(self), Arc::clone(candidate));
            self.runtime.spawn(async move { fleet.settle(candidate).await });
        }
        // `expect` must be called before the clusters are published, because requests can use their clients from the
        // publication on.
        started.iter().for_each(|cluster| cluster.expect());
        self.publish(&before, after);
        drop(awaited);
        started.iter().for_each(|cluster| self.start(cluster));
        self.news.add_change(ClusterChange::DiscoveryOrIdentity);
        self.news.at_once.notify_one();
    }

    /// Creates a cluster from a configuration. Also returns whether the cluster may replace the earlier configuration
    /// at once. Three cases allow this: the address is the same; the cluster has no client; or the uid of the earlier
    /// cluster is unknown, so that its identity cannot be compared.
    fn prepare(&self, setup: ClusterSetup, shown: Option<&Arc<Cluster>>) -> (Arc<Cluster>, bool) {
        let known = self.known.lock().remove(&setup.name).filter(|known| known.address == setup.address);
        let Some(shown) = shown else {
            return (self.make(setup, Incarnation::default(), known), true);
        };
        let incarnation = shown.incarnation();
        let is_reached_alike = setup.client.is_err() || incarnation.is_reached_at(&setup.address);
        match (is_reached_alike, incarnation.uid()) {
            // The discovery of the earlier configuration is used until the first answer. The discovery of an earlier
            // process is used only if the address is the same.
            (is_reached_alike, uid) if is_reached_alike || uid.is_some() => {
                let cluster = self.make(setup, incarnation.clone(), shown.served().or(known));
                cluster.mark.mark_versions_as(&shown.mark);
                (cluster, is_reached_alike)
            }
            _ => (self.make(setup, incarnation.successor(), known), true),
        }
    }

    fn make(&self, setup: ClusterSetup, incarnation: Incarnation, served: Option<Served>) -> Arc<Cluster> {
        Cluster::new(setup, (incarnation, served), &self.documents, &self.unread, &self.shares)
    }

    fn start(&self, cluster: &Arc<Cluster>) {
        let news = Arc::clone(&self.news);
        cluster.start(self.object_memory.clone(), move |change| news.add_change(change));
    }

    /// Publishes a candidate after it has reported its uid, or after [`CONFIRMED_WITHIN`].
    async fn settle(self: Arc<Self>, candidate: Arc<Cluster>) {
        let confirmation = async {
            loop {
                candidate.asked_once().await;
                if candidate.is_confirmed() || candidate.has_successor() || candidate.withholds_uid() {
                    return;
                }
                sleep(ASKED_AGAIN_AFTER).await;
                candidate.refresh();
            }
        };
        tokio::select! {
            _ = timeout(CONFIRMED_WITHIN, confirmation) => {}
            // A newer configuration has replaced the candidate.
            () = candidate.cancelled() => return,
        }
        let mut awaited = self.awaited.lock();
        let name = candidate.name();
        if !awaited.get(name).is_some_and(|own| Arc::ptr_eq(own, &candidate)) {
            return;
        }
        awaited.remove(name);
        let before = self.clusters.load_full();
        let is_same = candidate.is_confirmed()
            && before.get(name).is_some_and(|shown| shown.incarnation() == candidate.incarnation());
        let cluster = match is_same {
            true => candidate,
            false => {
                candidate.cancel();
                self.replacing(&candidate)
            }
        };
        let mut after = (*before).clone();
        after.insert(cluster.name().clone(), Arc::clone(&cluster));
        self.publish(&before, after);
        drop(awaited);
        if !is_same {
            self.start(&cluster);
        } else if cluster.is_replaceable() {
            // The candidate reports a successor only once. The report may have come before this publication, so it is
            // repeated here.
            self.news.add_change(ClusterChange::Successor);
        }
        self.news.add_change(ClusterChange::DiscoveryOrIdentity);
        self.news.at_once.notify_one();
    }

    /// Replaces each cluster whose addresses now lead to a different cluster.
    fn replace_succeeded(&self) {
        let awaited = self.awaited.lock();
        let before = self.clusters.load_full();
        let succeeded = before.values().filter(|cluster| cluster.is_replaceable());
        let successors: Vec<_> = succeeded.map(|cluster| self.replacing(cluster)).collect();
        if successors.is_empty() {
            return;
        }
        let mut after = (*before).clone();
        after.extend(successors.iter().map(|cluster| (cluster.name().clone(), Arc::clone(cluster))));
        self.publish(&before, after);
        drop(awaited);
        successors.iter().for_each(|cluster| self.start(cluster));
        self.news.add_change(ClusterChange::DiscoveryOrIdentity);
    }

    fn replacing(&self, cluster: &Cluster) -> Arc<Cluster> {
        tracing::warn!(cluster = %cluster.name(),
            "the name now belongs to a different cluster (its kube-system uid differs, or is unknown); all data of \
             the earlier cluster is dropped, and its connections are closed");
        let incarnation = cluster.incarnation().successor();
        if let Some(Successor::Uid(uid)) = cluster.setup.client.as_ref().ok().and_then(ClusterClient::successor) {
            incarnation.set_uid(&uid);
        }
        self.make(cluster.setup.clone(), incarnation, None)
    }

    /// Registers the function `forget`. The fleet calls the function when a name gets a different cluster or is
    /// removed, before the first request to the new cluster.
    pub fn on_forgotten(&self, forget: impl Fn(&ClusterName, Option<&Arc<Cluster>>) + Send + Sync + 'static) {
        self.forgetters.lock().push(Box::new(forget));
    }

    /// Publishes a new set of clusters. If a name gets a different cluster, all state of the earlier cluster is dropped
    /// before the successor gets a request. Requests to the successor are refused until it is started. Call this
    /// function while `awaited` is locked.
    fn publish(&self, before: &Clusters, after: Clusters) {
        for (name, cluster) in before {
            if !after.get(name).is_some_and(|own| Arc::ptr_eq(own, cluster)) {
                cluster.cancel();
                self.remember(cluster);
            }
        }
        let after = Arc::new(after);
        let is_same = |cluster: &Cluster, other: &Arc<Cluster>| cluster.incarnation() == other.incarnation();
        let ended =
            before.values().filter(|cluster| !after.get(cluster.name()).is_some_and(|own| is_same(cluster, own)));
        let ended: Vec<_> = ended.map(|cluster| (cluster, after.get(cluster.name()))).collect();
        for (cluster, successor) in &ended {
            cluster.incarnation().end();
            // Requests in flight to a replaced cluster are ended. Requests in flight to a removed cluster may complete.
            if let Some(successor) = successor {
                cluster.close();
                successor.close();
                cluster.close_connections();
                // If the start of the fault was logged, the successor must log its end.
                *successor.logged_at.lock() = cluster.logged_at.lock().take();
            }
        }
        self.clusters.store(Arc::clone(&after));
        for (cluster, successor) in ended {
            self.forgetters.lock().iter().for_each(|forget| forget(cluster.name(), successor));
        }
    }

    fn remember(&self, cluster: &Cluster) {
        let mut former = self.former.lock();
        if former.len() >= FORMER_MAX {
            former.pop_first();
        }
        former.insert(cluster.name().clone(), Arc::clone(&cluster.mark));
    }

    async fn take_over(self: &Arc<Self>) {
        let recorded = self.news.recorded.load(Ordering::SeqCst);
        if self.news.successors.swap(false, Ordering::SeqCst) {
            self.replace_succeeded();
        }
        if self.news.discovery_changed.swap(false, Ordering::SeqCst) {
            let fleet = Arc::clone(self);
            match self.clusters.load().len() {
                0..=AT_ONCE_MAX => run_in_place(|| fleet.join()),
                // The task fails only when the runtime ends.
                _ => drop(tokio::task::spawn_blocking(move || fleet.join()).await),
            }
        }
        self.generation.send_modify(|generation| *generation += 1);
        self.news.applied.send_replace(recorded);
    }

    fn join(&self) {
        find_duplicates(&self.clusters.load());
        let members: Vec<_> = self
            .by_precedence()
            .iter()
            .filter(|cluster| cluster.duplicate().is_none())
            .filter_map(|cluster| Some((cluster.name().clone(), cluster.discovery_for_clients()?)))
            .collect();
        let merged_discovery = Arc::new(merge_discovery(&members));
        let before = self.merged_discovery.swap(Arc::clone(&merged_discovery));
        for clash in merged_discovery.clashes().difference(before.clashes()) {
            tracing::warn!(%clash, "clusters serve one resource in ways that cannot be merged");
        }
    }

    /// Triggers a discovery of the `asked` clusters, because a client's request depends on the result. Waits for the
    /// answers, even if a different request triggered the discovery. The rate of discoveries is limited for each
    /// cluster.
    pub async fn refresh(&self, is_requested: impl Fn(&Arc<Cluster>) -> bool) {
        let clusters = self.clusters();
        join_all(clusters.values().filter(|cluster| is_requested(cluster)).map(|cluster| cluster.refreshed())).await;
        self.news.settled().await;
    }

    /// Waits until the first discovery attempt at each cluster has ended and the union contains the answers. Waits for
    /// `within` at most.
    pub async fn asked_once(&self, within: Duration) {
        let clusters = self.clusters();
        let attempts = async {
            join_all(clusters.values().map(|cluster| cluster.asked_once())).await;
            self.news.settled().await;
        };
        let _ = tokio::time::timeout(within, attempts).await;
    }
}

/// Joins the clusters' discovery with the group of Tributary itself.
fn merge_discovery(members: &[(ClusterName, Arc<MemberDiscovery>)]) -> MergedDiscovery {
    MergedDiscovery::new(members).with_own_group(aggregated_group::merged_group())
}

/// Finds clusters that are configured under several names. Such clusters report an equal uid of kube-system. Since any
/// cluster can report this uid, a common address or certificate is required as proof. The merged view shows the objects
/// under the first name, so that all replicas choose the same name. Without a proof, the objects are shown under all
/// names.
fn find_duplicates(clusters: &BTreeMap<ClusterName, Arc<Cluster>>) {
    let mut by_uid: HashMap<_, Vec<&Arc<Cluster>>> = HashMap::new();
    for cluster in clusters.values() {
        match cluster.uid() {
            Some(uid) => by_uid.entry(uid).or_default().push(cluster),
            None => cluster.set_duplicates(None, None),
        }
    }
    for same in by_uid.values() {
        let mut shown: Vec<&Arc<Cluster>> = Vec::new();
        for cluster in same {
            match shown.iter().find(|first| first.is_served_with(cluster)) {
                Some(first) => cluster.set_duplicates(Some(first.name()), None),
                None => shown.push(cluster),
            }
        }
        let other = |at: usize| shown.get(usize::from(at == 0)).map(|other| other.name());
        shown.iter().enumerate().for_each(|(at, cluster)| cluster.set_duplicates(None, other(at)));
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // The tasks have references to the clusters, so the tasks would never end without the cancellation.
        for cluster in self.clusters.load().values().chain(self.awaited.lock().values()) {
            cluster.cancel();
        }
        self.news.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// If a thousand members answer within a second, the union is computed a dozen times.
    #[tokio::test(start_paused = true)]
    async fn discovery_changes_of_many_members_are_joined_in_few_steps() {
        let fleet = Fleet::new(MemberShareMetrics::default(), BTreeMap::new());
        let changes = fleet.changes();
        for _ in 0..1000 {
            fleet.news.add_change(ClusterChange::DiscoveryOrIdentity);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        fleet.news.settled().await;
        assert!((10..=12).contains(&*changes.borrow()), "{}", *changes.borrow());
        let merged_discovery = fleet.merged_discovery();
        fleet.news.add_change(ClusterChange::Problem);
        fleet.news.settled().await;
        assert!(
            Arc::ptr_eq(&merged_discovery, &fleet.merged_discovery()),
            "what is wrong with a member says nothing of what it serves"
        );
        assert!(*changes.borrow() > 11, "though who waits for the member is told");
    }

    #[tokio::test(start_paused = true)]
    async fn changed_cluster_configuration_applies_without_a_pause() {
        let fleet = Fleet::new(MemberShareMetrics::default(), BTreeMap::new());
        fleet.news.add_change(ClusterChange::DiscoveryOrIdentity);
        fleet.news.settled().await;
        let begun = Instant::now();
        fleet.set(Vec::new());
        fleet.news.settled().await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
