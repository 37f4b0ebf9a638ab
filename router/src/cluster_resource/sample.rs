//! Snapshots (samples) of Tributary's report, from which the objects of `clusters` are made.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tributary_fleet::cluster_status::ClusterOrigin;

use super::collection::ClusterCollection;
use crate::Router;

/// Maximum age of the sample that a get or list shows. With 100 ms, a burst of requests makes at most ten reports in a
/// second.
const READ_MAX_AGE: Duration = Duration::from_millis(100);

/// Interval at which an open watch looks for changes. All watches share the samples.
pub(super) const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the objects of the resource `clusters` for a get or list, at most as old as the last sample.
pub(super) async fn for_read(router: &Router) -> Arc<ClusterCollection> {
    sample(router, READ_MAX_AGE).await
}

/// Returns the collection for an open watch. The sample is at most half of `WATCH_INTERVAL` old, so the first of many
/// watches takes a new sample, and the others share it.
pub(super) async fn for_watch(router: &Router) -> Arc<ClusterCollection> {
    sample(router, WATCH_INTERVAL / 2).await
}

/// Returns a sample that is younger than `max_age`. A new sample costs a [report](Router::report). Cancellation is
/// safe.
async fn sample(router: &Router, max_age: Duration) -> Arc<ClusterCollection> {
    let take = async |collection: &mut ClusterCollection| {
        let report = router.report().await;
        let clusters = router.fleet().clusters();
        let sources = router.member_sources();
        let origins = clusters.iter().map(|(name, cluster)| {
            let source = sources.get(name).cloned();
            let uid = cluster.uid().map(|uid| uid.to_string());
            (name.clone(), ClusterOrigin { name: name.to_string(), uid, created: cluster.created(), source })
        });
        collection.apply(&report, origins, Timestamp::now())
    };
    router.cluster_store().sample(max_age, take).await
}
