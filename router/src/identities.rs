//! Identities of clusters: the uid of the namespace kube-system.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::timeout;
use tributary_apimachinery::ClusterName;
use tributary_fleet::topology::{Cluster, ClusterIdentity};
use tributary_merge::Epochs;

use crate::{KeepEpochs, Router};

/// Interval between checks for expired marks. If a name begins to mean a different cluster, the new cluster has a mark
/// for an hour, which distinguishes its versions from the versions of the earlier cluster.
const MARKS_INTERVAL: Duration = Duration::from_secs(60);

impl Router {
    /// Returns the first pair of names that are configured for the same member: both have the same kube-system uid, and
    /// an address or a certificate proves that the servers are the same.
    pub fn same_cluster_twice(&self) -> Option<(ClusterName, ClusterName)> {
        let clusters = self.fleet.clusters();
        let pairs = clusters.values().filter_map(|own| Some(((*own.duplicate()?).clone(), own.name().clone())));
        pairs.min()
    }

    /// Returns pairs of clusters with the same kube-system uid, without a proof that they are the same member.
    /// Tributary serves them as two clusters.
    fn unproved_identities(&self) -> BTreeSet<(ClusterName, ClusterName, Arc<String>)> {
        let clusters = self.fleet.clusters();
        let pairs = clusters.values().filter_map(|own| {
            let (name, other) = (own.name().clone(), (*own.suspected_duplicate()?).clone());
            let (first, second) = if name < other { (name, other) } else { (other, name) };
            Some((first, second, own.uid()?))
        });
        pairs.collect()
    }

    /// Updates the lists of clusters (epochs) that compact versions refer to, when the identities of clusters change.
    pub(crate) fn follow_identities(self: &Arc<Self>, keep: Option<KeepEpochs>) {
        let (weak, mut changes) = (Arc::downgrade(self), self.fleet.changes());
        let claimed = Mutex::new(BTreeSet::new());
        tokio::spawn(async move {
            loop {
                // Marks of replaced clusters expire without a change of the identities, so the wait needs a timeout.
                if let Ok(Err(_)) = timeout(MARKS_INTERVAL, changes.changed()).await {
                    break;
                }
                let Some(router) = weak.upgrade() else { break };
                router.update_epochs(keep.as_deref());
                let claims = router.unproved_identities();
                for (first, second, uid) in claims.difference(&*claimed.lock()) {
                    tracing::error!(%first, %second, %uid,
                        "two clusters have the same kube-system uid, and no address or certificate proves that they \
                         are the same cluster; both are shown: remove one of them if they are the same, otherwise one \
                         reports a false uid");
                }
                *claimed.lock() = claims;
            }
        });
    }

    /// Updates the list of the clusters' identities (epoch). Does nothing until each cluster has answered, or has a
    /// stored identity from an earlier run. Until the update, composite versions contain the names of the clusters.
    ///
    /// For a cluster that has not answered, the stored identity is valid, because no versions of the cluster arrive
    /// before its answer. A cluster that answers without a uid has no identity.
    fn update_epochs(&self, keep: Option<&(dyn Fn(&Epochs) + Send + Sync)>) {
        let clusters = self.fleet.clusters();
        let mut epochs = (*self.epochs()).clone();
        let is_visible_to_client = |own: &Cluster| {
            let was_known = !own.incarnation().is_successor() && epochs.current_uid_of(own.name()).is_some();
            own.is_asked() || was_known
        };
        if !clusters.is_empty() && clusters.values().all(|own| is_visible_to_client(own)) {
            let now = SystemTime::now();
            for own in clusters.values() {
                if let Some(at) = own.incarnation().replaced_at() {
                    epochs.record_replacement(own.name(), now - at.elapsed(), now);
                }
            }
            let identities: Vec<_> = clusters
                .values()
                .map(|cluster| {
                    let uid = match &*cluster.identity() {
                        ClusterIdentity::Known(uid) => uid.to_string(),
                        ClusterIdentity::Withheld => String::new(),
                        ClusterIdentity::Unknown => epochs.uid_of(cluster.name()).unwrap_or_default().to_owned(),
                    };
                    (cluster.name().clone(), uid)
                })
                .collect();
            epochs.update_at(identities, now);
            if epochs != *self.epochs() {
                if let Some(keep) = keep {
                    keep(&epochs);
                }
                self.epochs.store(Arc::new(epochs));
            }
        }
        let epochs = self.epochs();
        for own in clusters.values().filter(|own| is_listed(own, &epochs)) {
            own.mark.mark_versions(epochs.mark_of(own.name()).as_deref());
        }
    }
}

/// Returns whether the current epoch (list of clusters) contains the cluster that is now configured under its name.
fn is_listed(cluster: &Cluster, epochs: &Epochs) -> bool {
    match &*cluster.identity() {
        ClusterIdentity::Known(uid) => epochs.current_uid_of(cluster.name()) == Some(uid.as_str()),
        ClusterIdentity::Withheld => epochs.current_uid_of(cluster.name()) == Some(""),
        ClusterIdentity::Unknown => !cluster.incarnation().is_successor(),
    }
}
