//! Samples of the report, as the collection of `clusters`.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tributary_fleet::cluster_status::ClusterOrigin;

use super::collection::ClusterCollection;
use super::version::{ClustersVersion, ProcessInstance};
use crate::Router;

/// Maximum age of the sample that a get or list shows. 100 ms: a burst of requests costs ten reports in a second.
const READ_MAX_AGE: Duration = Duration::from_millis(100);

/// Interval at which an open watch looks for changes. All watches share the samples.
pub(super) const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Collection of `clusters` of this process.
pub(crate) struct ClusterStore {
    /// Random number of the process. Versions of other processes have other numbers.
    instance: ProcessInstance,
    last: Mutex<LastSample>,
}

#[derive(Default)]
struct LastSample {
    at: Option<Instant>,
    collection: Arc<ClusterCollection>,
}

impl Default for ClusterStore {
    fn default() -> Self {
        Self { instance: ProcessInstance(rand::random()), last: Mutex::default() }
    }
}

impl ClusterStore {
    pub(super) fn instance(&self) -> ProcessInstance {
        self.instance
    }

    /// Writes a version of this process.
    pub(super) fn version(&self, revision: u64, scope: Option<u64>) -> String {
        ClustersVersion { revision, scope }.encode(self.instance)
    }

    /// Returns the collection for a get or list.
    pub(super) async fn read(&self, router: &Router) -> Arc<ClusterCollection> {
        self.sample(router, READ_MAX_AGE).await
    }

    /// Returns the collection for an open watch. Half of the interval: the first of many watches takes the sample.
    pub(super) async fn look(&self, router: &Router) -> Arc<ClusterCollection> {
        self.sample(router, WATCH_INTERVAL / 2).await
    }

    /// Returns the last sample if it is younger than `max_age`, otherwise a new one. Concurrent callers share a sample.
    /// Costs a [report](Router::report) for each sample. Cancellation is safe.
    async fn sample(&self, router: &Router, max_age: Duration) -> Arc<ClusterCollection> {
        let mut last = self.last.lock().await;
        if last.at.is_none_or(|at| at.elapsed() >= max_age) {
            let report = router.report().await;
            let clusters = router.fleet().clusters();
            let origins = clusters.iter().map(|(name, cluster)| {
                let uid = cluster.uid().map(|uid| uid.to_string());
                (name.clone(), ClusterOrigin { name: name.to_string(), uid, created: cluster.created() })
            });
            let mut collection = ClusterCollection::clone(&last.collection);
            if collection.apply(&report, origins, Timestamp::now()) {
                last.collection = Arc::new(collection);
            }
            last.at = Some(Instant::now());
        }
        Arc::clone(&last.collection)
    }
}
