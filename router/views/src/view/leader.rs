//! Sources from which a view gets the objects of a cluster.

use std::sync::Arc;

use tokio::time::Instant;
use tributary_cacher::Cacher;

use super::feed::Feed;
use super::latest_requests::LatestVersionRequests;

/// Feed of the view of all namespaces for a cluster. A view of one namespace gets the cluster's objects from this feed.
#[derive(Clone)]
pub(super) struct WholeViewFeed {
    pub(super) cacher: Arc<Cacher>,
    pub(super) latest_requests: Arc<LatestVersionRequests>,
    pub(super) feed: Arc<Feed>,
    /// Time since which the objects of the feed may be outdated. The current time if they are up to date.
    pub(super) stale_since: Instant,
}

/// Source from which a view gets the objects of a cluster.
pub(super) enum ClusterFeed {
    /// A cacher that belongs to this view.
    Own,
    Leader(WholeViewFeed),
    /// The view of all namespaces, which has not read the objects of the cluster yet. The view of one namespace must
    /// wait.
    NotYet,
}
