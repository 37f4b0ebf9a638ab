//! Waits until unknown rights are known, at the start of the process and while clusters join.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tributary_apimachinery::ClusterName;

use super::RightsMirror;

/// Interval at which waiting requests check the rights. 20 ms is short in comparison with the second that a read of the
/// rights takes.
const FOUND_INTERVAL: Duration = Duration::from_millis(20);

/// After a cluster was added to the configuration, requests that need its rights wait at most this long for them. 3 s:
/// without faults, discovery and the read of roles take less.
const JOINS_WITHIN: Duration = Duration::from_secs(3);

impl RightsMirror {
    /// Waits until the rights in each cluster are known, or the reason for unknown rights is, but for `within` at most.
    /// Cancellation is safe.
    pub async fn wait_until_found(&self, within: Duration) {
        let found = async {
            while !self.clusters().iter().all(|cluster| self.is_found(cluster)) {
                sleep(FOUND_INTERVAL).await;
            }
        };
        let _the_others_are_served_around = timeout(within, found).await;
    }

    /// Waits until no cluster is joining. A cluster joins from its addition to the configuration until its rights, or a
    /// reason for unknown rights, are known, or until a time limit. Returns whether a cluster was joining. Cancellation
    /// is safe.
    pub(crate) async fn joined(&self) -> bool {
        let mut joining = self.clusters();
        joining.retain(|cluster| self.joins(cluster));
        // Checks the clusters one after the other, because each check takes the lock under which mirrors are published.
        // A thousand clusters may join at once while many requests wait.
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

    /// Returns whether a cluster was just added to the configuration and its rights may be known soon.
    fn joins(&self, cluster: &ClusterName) -> bool {
        let is_new = || self.cluster(cluster).is_some_and(|own| own.age() < JOINS_WITHIN && own.problem().is_none());
        self.decision_method(cluster).is_none() && is_new() && !self.is_found(cluster)
    }

    /// Returns whether the rights in a cluster are known, or are unknown for a reason other than an unfinished read.
    fn is_found(&self, cluster: &ClusterName) -> bool {
        let Some(known) = self.mirrors.load().by_name.get(cluster).cloned() else { return false };
        let unknown_rights_reason = self
            .members
            .lock()
            .unknown_rights_reason_of(cluster, &known)
            .map(|unknown_rights_reason| unknown_rights_reason.is_trouble());
        // A cluster with `Live` authorization has no reason for unknown rights, because Tributary never reads its
        // rights.
        unknown_rights_reason.unwrap_or_else(|| self.decision_method(cluster).is_some())
    }
}
