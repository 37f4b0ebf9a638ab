//! Waiting for what is not known yet of clusters: at a start, and while some join.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tributary_apimachinery::ClusterName;

use super::RightsMirror;

/// How often a start looks whether rights are known: short against the second that it takes to read them.
const FOUND_INTERVAL: Duration = Duration::from_millis(20);

/// How long a cluster counts as one that joins, if it is not known yet what users may do there: whoever has to know it
/// waits as long. 3 s: discovery and the reading of its roles take less where nothing is wrong, and a client that needs
/// the answer of a cluster waits as long for that, too.
const JOINS_WITHIN: Duration = Duration::from_secs(3);

impl RightsMirror {
    /// Waits until of each cluster it is known what users may do there, or what keeps us from knowing it, or the time
    /// is up. Cancelling is safe.
    pub async fn found_once(&self, within: Duration) {
        let found = async {
            while !self.clusters().iter().all(|cluster| self.is_found(cluster)) {
                sleep(FOUND_INTERVAL).await;
            }
        };
        let _the_others_are_served_around = timeout(within, found).await;
    }

    /// Waits until of each cluster that has just joined it is known what users may do there, or what keeps us from
    /// knowing it, or it joins no longer. Gives whether there was one. Cancelling is safe.
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

    /// Whether a cluster has just been configured, and it may soon be known what users may do there.
    fn joins(&self, cluster: &ClusterName) -> bool {
        let is_new = || self.cluster(cluster).is_some_and(|own| own.age() < JOINS_WITHIN && own.problem().is_none());
        self.decides(cluster).is_none() && is_new() && !self.is_found(cluster)
    }

    /// Whether it is known what users may do in a cluster, or that it is not for want of time alone.
    fn is_found(&self, cluster: &ClusterName) -> bool {
        let Some(known) = self.mirrors.load().by_name.get(cluster).cloned() else { return false };
        let obstacle = self.members.lock().obstacle_of(cluster, &known).map(|obstacle| obstacle.is_trouble());
        // One that answers everything itself has no obstacle, and nothing of it is ever read.
        obstacle.unwrap_or_else(|| self.decides(cluster).is_some())
    }
}
