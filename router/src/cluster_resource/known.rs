//! Clusters whose existence a caller may learn (known clusters).

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_fleet::aggregated_group::{CLUSTERS, GROUP, VERSION};
use tributary_rights::{CallerRights, Candidates};

use super::collection::ClusterObjects;

/// Clusters that a caller may know, according to the rights at one time.
#[derive(Clone, Debug)]
pub(super) struct KnownClusters {
    candidates: Candidates,
    /// Names of the known clusters; `None` in personal mode, where the caller knows all clusters.
    names: Option<BTreeSet<ClusterName>>,
}

impl KnownClusters {
    /// Finds the known clusters among the clusters in `objects`. Without `rights`, in personal mode, the caller knows
    /// all clusters. Waits for access reviews, half a minute at most, and for clusters that have just joined.
    /// Cancellation is safe.
    pub(super) async fn find(rights: Option<&CallerRights>, objects: &ClusterObjects) -> Self {
        let Some(rights) = rights else { return Self::all() };
        let find = || Self::of_present_rights(Some(rights), objects);
        rights.with_joining(find, Self::has_unknown).await
    }

    /// Finds the known clusters like [`find`](Self::find), but does not wait for clusters that have just joined.
    pub(super) async fn of_present_rights(rights: Option<&CallerRights>, objects: &ClusterObjects) -> Self {
        let Some(rights) = rights else { return Self::all() };
        let resource = GroupVersionResource::new(GROUP, VERSION, CLUSTERS);
        let decide = |rights: &CallerRights| rights.known_clusters(objects.keys(), &resource);
        let candidates = rights.decide_after_reviews(decide).await;
        let names = objects.keys().filter(|cluster| candidates.has(cluster)).cloned().collect();
        Self { candidates, names: Some(names) }
    }

    fn all() -> Self {
        Self { candidates: Candidates::default(), names: None }
    }

    /// Returns whether the caller may know a cluster.
    pub(super) fn has(&self, cluster: &ClusterName) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(cluster))
    }

    /// Returns whether the caller's rights in some cluster are unknown. Tributary does not show such a cluster.
    pub(super) fn has_unknown(&self) -> bool {
        self.candidates.has_unknown()
    }

    /// Returns the hash of the known clusters among `clusters`, which is a part of the resourceVersion. `None` in
    /// personal mode.
    pub(super) fn scope<'a>(&self, clusters: impl Iterator<Item = &'a ClusterName>) -> Option<u64> {
        let names = self.names.as_ref()?;
        let mut hasher = DefaultHasher::new();
        for cluster in clusters.filter(|cluster| names.contains(*cluster)) {
            cluster.as_str().hash(&mut hasher);
        }
        Some(hasher.finish())
    }
}
