//! All member clusters.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tributary_apimachinery::ClusterName;

use super::cluster::{Cluster, ClusterSetup};
use super::mark::ClusterMark;
use super::server_version::ServerVersion;
use crate::discovery::Union;

/// How often an unknown path may make all members be asked anew, in seconds.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);

/// How long a request for an unknown path waits for the members' answers, in seconds.
const REFRESH_WAIT: Duration = Duration::from_secs(3);

/// How many clusters that left are remembered. As many as there are indices: more can never have been named by integers.
const FORMER_MAX: usize = 10_000;

/// All member clusters, by name. Readers take an `Arc` and never wait.
pub struct Fleet {
    clusters: ArcSwap<BTreeMap<ClusterName, Arc<Cluster>>>,
    union: ArcSwap<Union>,
    generation: watch::Sender<u64>,
    /// When all were last asked anew; held while they are.
    refreshed: tokio::sync::Mutex<Option<Instant>>,
    /// Serializes changes of the set and of the union.
    changing: Mutex<()>,
    /// The marks of clusters that left: their objects are still being deleted from open watches.
    former: Mutex<BTreeMap<ClusterName, Arc<ClusterMark>>>,
}

impl Fleet {
    /// A fleet without clusters.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            clusters: ArcSwap::default(),
            union: ArcSwap::default(),
            generation: watch::Sender::new(0),
            refreshed: tokio::sync::Mutex::default(),
            changing: Mutex::new(()),
            former: Mutex::default(),
        })
    }

    /// The clusters by name.
    pub fn clusters(&self) -> Arc<BTreeMap<ClusterName, Arc<Cluster>>> {
        self.clusters.load_full()
    }

    /// One cluster.
    pub fn cluster(&self, name: &ClusterName) -> Option<Arc<Cluster>> {
        self.clusters.load().get(name).cloned()
    }

    /// Whether a cluster is the only one, and was as long as this process remembers.
    pub fn has_only(&self, name: &ClusterName) -> bool {
        // In this order: who leaves is remembered before it is gone.
        self.clusters.load().keys().all(|own| own == name) && self.former.lock().keys().all(|former| former == name)
    }

    /// What marks a cluster's objects, one that left included.
    pub fn mark(&self, name: &ClusterName) -> Arc<ClusterMark> {
        if let Some(cluster) = self.clusters.load().get(name) {
            return Arc::clone(&cluster.mark);
        }
        let former = self.former.lock().get(name).cloned();
        former.unwrap_or_else(|| Arc::new(ClusterMark::new(name, None)))
    }

    /// The clusters that have not told yet what they serve.
    pub fn undiscovered(&self) -> Vec<Arc<Cluster>> {
        self.clusters.load().values().filter(|cluster| cluster.discovery().is_none()).cloned().collect()
    }

    /// The clusters whose word counts more first: the newest servers, and of equal ones by name.
    pub fn by_precedence(&self) -> Vec<Arc<Cluster>> {
        let mut clusters: Vec<_> = self.clusters.load().values().cloned().collect();
        // Stable, and they come by name.
        clusters.sort_by_cached_key(|cluster| Reverse(cluster.version().map(|version| version.order())));
        clusters
    }

    /// The version of the oldest server: what a client may rely on everywhere. `None` until a cluster has told.
    pub fn oldest_version(&self) -> Option<Arc<ServerVersion>> {
        let clusters = self.clusters.load();
        clusters.values().filter_map(|cluster| cluster.version()).min_by_key(|version| version.order())
    }

    /// What all members together serve.
    pub fn union(&self) -> Arc<Union> {
        self.union.load_full()
    }

    /// Tells when clusters came or went, or a member's discovery or identity changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }

    /// Takes over a new set of clusters. One with the same name and fingerprint is kept as it is.
    pub fn set(self: &Arc<Self>, setups: Vec<ClusterSetup>) {
        let changing = self.changing.lock();
        let before = self.clusters.load_full();
        let mut after = BTreeMap::new();
        let mut started = Vec::new();
        for setup in setups {
            let name = setup.name.clone();
            let kept = before.get(&name).filter(|cluster| cluster.setup.fingerprint == setup.fingerprint);
            let cluster = kept.cloned().unwrap_or_else(|| {
                let cluster = Cluster::new(setup, before.get(&name));
                started.push(Arc::clone(&cluster));
                cluster
            });
            after.insert(cluster.name().clone(), cluster);
        }
        for (name, cluster) in before.iter() {
            if !after.get(name).is_some_and(|kept| Arc::ptr_eq(kept, cluster)) {
                cluster.cancel();
                self.remember(cluster);
            }
        }
        self.clusters.store(Arc::new(after));
        drop(changing);
        for cluster in started {
            let fleet = Arc::downgrade(self);
            cluster.start(move || {
                if let Some(fleet) = fleet.upgrade() {
                    fleet.changed();
                }
            });
        }
        self.changed();
    }

    fn remember(&self, cluster: &Cluster) {
        let mut former = self.former.lock();
        if former.len() >= FORMER_MAX {
            former.pop_first();
        }
        former.insert(cluster.name().clone(), Arc::clone(&cluster.mark));
    }

    /// Joins the members' documents anew and tells everybody.
    fn changed(&self) {
        let changing = self.changing.lock();
        find_twins(&self.clusters.load());
        let members: Vec<_> = self
            .by_precedence()
            .iter()
            .filter(|cluster| cluster.twin().is_none())
            .filter_map(|cluster| Some((cluster.name().clone(), cluster.offers()?)))
            .collect();
        let union = Arc::new(Union::new(&members));
        let before = self.union.swap(Arc::clone(&union));
        for clash in union.clashes().difference(before.clashes()) {
            tracing::warn!(%clash, "clusters serve one resource in ways that cannot be merged");
        }
        drop(changing);
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Asks all members anew because somebody named something unknown. Rate-limited; waits for the answers, those to a
    /// question of somebody else's that is under way included.
    pub async fn refresh_unknown(&self) {
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_some_and(|at| at.elapsed() < REFRESH_INTERVAL) {
            return;
        }
        let clusters = self.clusters();
        // A cluster without a client is never asked.
        let asked =
            clusters.values().filter(|cluster| cluster.setup.client.is_ok()).map(|cluster| cluster.asked_anew());
        // Whoever does not answer in time is asked about another time.
        let _ = tokio::time::timeout(REFRESH_WAIT, join_all(asked)).await;
        *refreshed = Some(Instant::now());
    }

    /// Asks all members anew without waiting: something that changes what they serve was written through this endpoint.
    pub fn refresh(&self) {
        for cluster in self.clusters.load().values() {
            cluster.refresh();
        }
    }

    /// Waits until each cluster has been asked once, or the time is up.
    pub async fn asked_once(&self, within: Duration) {
        let clusters = self.clusters();
        let _ = tokio::time::timeout(within, join_all(clusters.values().map(|cluster| cluster.asked_once()))).await;
    }
}

/// Finds clusters that are one under several names, by the uid of kube-system. The first by name shows the objects: so every
/// replica chooses the same one.
fn find_twins(clusters: &BTreeMap<ClusterName, Arc<Cluster>>) {
    let mut first_of = HashMap::new();
    for cluster in clusters.values() {
        let first = cluster.uid().map(|uid| first_of.entry(uid).or_insert(cluster.name()));
        cluster.set_twin(first.map(|first| &**first).filter(|first| *first != cluster.name()));
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // Their tasks hold the clusters themselves.
        for cluster in self.clusters.load().values() {
            cluster.cancel();
        }
    }
}
