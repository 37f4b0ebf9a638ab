//! Clusters whose answers a request awaits. A refusal after the time limit names these clusters.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tributary_apimachinery::ClusterName;

/// Clusters that have not yet answered a request, usually only one. Clones share the list of clusters.
#[derive(Clone, Debug, Default)]
pub(crate) struct AwaitedClusters(Arc<Mutex<SmallVec<[ClusterName; 1]>>>);

impl AwaitedClusters {
    /// Records that the request waits for a cluster, until the returned guard is dropped.
    pub(crate) fn wait_for<'a>(&'a self, cluster: &'a ClusterName) -> Waiting<'a> {
        self.0.lock().push(cluster.clone());
        Waiting { awaited: self, cluster }
    }

    /// Returns the clusters that have not answered yet, sorted and without duplicates.
    pub(crate) fn clusters(&self) -> Vec<ClusterName> {
        let mut clusters = self.0.lock().to_vec();
        clusters.sort();
        clusters.dedup();
        clusters
    }
}

pub(crate) struct Waiting<'a> {
    awaited: &'a AwaitedClusters,
    cluster: &'a ClusterName,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut clusters = self.awaited.0.lock();
        if let Some(own) = clusters.iter().position(|cluster| cluster == self.cluster) {
            clusters.swap_remove(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn awaited_clusters_are_the_clusters_without_an_answer() {
        let awaited = AwaitedClusters::default();
        let again = awaited.clone();
        let [eu, us] = ["eu", "us"].map(|name| ClusterName::new(name).unwrap());
        let (first, second) = (awaited.wait_for(&us), again.wait_for(&us));
        let third = awaited.wait_for(&eu);
        assert_eq!(awaited.clusters(), [eu.clone(), us.clone()]);
        drop((first, third));
        assert_eq!(awaited.clusters(), std::slice::from_ref(&us));
        drop(second);
        assert_eq!(awaited.clusters(), []);
    }
}
