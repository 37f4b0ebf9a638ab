//! Where a view has a cluster's objects from.

use std::sync::Arc;

use tokio::time::Instant;
use tributary_cacher::Cacher;

use super::feed::Feed;
use super::questions::LatestVersionRequests;

/// What holds all of a cluster's objects, and feeds this view with those of its namespace.
#[derive(Clone)]
pub(super) struct WholeViewFeed {
    pub(super) cacher: Arc<Cacher>,
    pub(super) questions: Arc<LatestVersionRequests>,
    pub(super) feed: Arc<Feed>,
    /// Since when what it holds may be old; now where it is not.
    pub(super) stale_since: Instant,
}

/// Where a view has a cluster's objects from.
pub(super) enum ClusterFeed {
    /// A cacher of its own.
    Own,
    /// The view of all namespaces.
    Leader(WholeViewFeed),
    /// The view of all namespaces, which does not know the cluster yet.
    NotYet,
}
