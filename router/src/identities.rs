//! Who the clusters are: by the uid of their namespace kube-system.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tributary_apimachinery::ClusterName;
use tributary_merge::Epochs;

use crate::topology::ClusterIdentity;
use crate::{KeepEpochs, Router};

impl Router {
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

    /// Keeps the epochs of compact versions at the identities of the clusters as they are now.
    pub(crate) fn follow_identities(self: &Arc<Self>, keep: Option<KeepEpochs>) {
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
                    tracing::error!(%first, %second, "two contexts lead to the same cluster (the same kube-system uid); its objects are shown under the first one only; remove one of them");
                }
                *reported = twins;
            }
        });
    }

    /// Makes the list of the clusters' identities, once each has been asked: until then their versions come one by one.
    ///
    /// One that has not answered is who it was before: it says nothing meanwhile.
    /// One that answers and does not tell has no uid.
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
                    ClusterIdentity::Known(uid) => uid.to_string(),
                    ClusterIdentity::Withheld => String::new(),
                    ClusterIdentity::Unknown => epochs.uid_of(cluster.name()).unwrap_or_default().to_owned(),
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
