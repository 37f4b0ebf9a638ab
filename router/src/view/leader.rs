//! Where a view has a cluster's objects from.

use std::sync::Arc;

use tokio::time::Instant;
use tributary_cacher::Cacher;

use super::feed::Feed;
use super::questions::Questions;

/// What holds all of a cluster's objects, and feeds this view with those of its namespace.
#[derive(Clone)]
pub(super) struct Leader {
    pub(super) cacher: Arc<Cacher>,
    pub(super) questions: Arc<Questions>,
    pub(super) feed: Arc<Feed>,
    /// Since when what it holds may be old; now where it is not.
    pub(super) stale_since: Instant,
}

/// Where a view has a cluster's objects from.
pub(super) enum Source {
    /// A cacher of its own.
    Own,
    /// The view of all namespaces.
    Leader(Leader),
    /// The view of all namespaces, which does not know the cluster yet.
    NotYet,
}
