//! Storage of the collection of `clusters`, with the time of its last sample.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::collection::ClusterCollection;
use super::version::{ClustersVersion, ProcessInstance};

/// Collection of `clusters` in this process.
pub(crate) struct ClusterStore {
    /// Random number of the process, a part of each resourceVersion. It distinguishes the versions of different
    /// processes.
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

    /// Formats a resourceVersion of this process.
    pub(super) fn version(&self, revision: u64, scope: Option<u64>) -> String {
        ClustersVersion { revision, scope }.encode(self.instance)
    }

    /// Returns the last sample if it is younger than `max_age`, otherwise lets `take` update the collection. Concurrent
    /// callers share a sample. Cancellation is safe.
    pub(super) async fn sample(
        &self,
        max_age: Duration,
        take: impl AsyncFnOnce(&mut ClusterCollection) -> bool,
    ) -> Arc<ClusterCollection> {
        let mut last = self.last.lock().await;
        if last.at.is_none_or(|at| at.elapsed() >= max_age) {
            let mut collection = ClusterCollection::clone(&last.collection);
            if take(&mut collection).await {
                last.collection = Arc::new(collection);
            }
            last.at = Some(Instant::now());
        }
        Arc::clone(&last.collection)
    }
}
