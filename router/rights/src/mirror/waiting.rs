//! Waits for unknown rights: at the start, and while clusters join.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tributary_apimachinery::ClusterName;

use super::RightsMirror;

/// Interval of checks at the start: short against the second that it takes to read rights.
const FOUND_INTERVAL: Duration = Duration::from_millis(20);

/// Time for which a cluster counts as joining while its rights are unknown. Clients that need its rights wait as long.
/// 3 s: discovery and the read of roles take less without faults.
const JOINS_WITHIN: Duration = Duration::from_secs(3);

impl RightsMirror {
    /// Waits until the rights in each cluster are known, or an obstacle to them is, or the time is up. Cancellation is
    /// safe.
    pub async fn found_once(&self, within: Duration) {
        let found = async {
            while !self.clusters().iter().all(|cluster| self.is_found(cluster)) {
                sleep(FOUND_INTERVAL).await;
            }
        };
        let _the_others_are_served_around = timeout(within, found).await;
    }

    /// Waits until the rights in each joining cluster are known, or an obstacle to them is, or it joins no longer.
    /// Returns whether a cluster was joining. Cancellation is safe.
    pub(crate) async fn joined(&self) -> bool {
        let mut joining = self.clusters();
        joining.retain(|cluster| self.joins(cluster));
        // One after the other: a look takes the lock under which mirrors are published, and a thousand clusters may
        // join at once while many wait.
        let all = async {
            for cluster in &joining {
                while self.joins(cluster) {
                    sleep(FOUND_INTERVAL).await;
                }
            }
        };
        let _what_joins_again_is_not_waited_for = timeout(JOINS_WITHIN, all).await;
        !joining.is_empty()
    }

    /// Whether a cluster was configured a moment ago and its rights may be known soon.
    fn joins(&self, cluster: &ClusterName) -> bool {
        let is_new = || self.cluster(cluster).is_some_and(|own| own.age() < JOINS_WITHIN && own.problem().is_none());
        self.decides(cluster).is_none() && is_new() && !self.is_found(cluster)
    }

    /// Whether the rights in a cluster are known, or have an obstacle other than lack of time.
    fn is_found(&self, cluster: &ClusterName) -> bool {
        let Some(known) = self.mirrors.load().by_name.get(cluster).cloned() else { return false };
        let obstacle = self.members.lock().obstacle_of(cluster, &known).map(|obstacle| obstacle.is_trouble());
        // A cluster with `Live` authorization has no obstacle, and no rights are read.
        obstacle.unwrap_or_else(|| self.decides(cluster).is_some())
    }
}
