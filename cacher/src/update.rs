//! The updates that a reflector publishes.

use http::HeaderValue;
use tributary_apimachinery::{Change, Snapshot};

/// Receives each change of a cacher's collection.
///
/// The reflector's task makes the calls, one at a time and in the member's order, before
/// [`Cacher::snapshot`](crate::Cacher::snapshot) returns the snapshot of the call. A call must not block: the reflector
/// reads nothing meanwhile. The first call is [`Update::Synced`], exactly once. After the cacher is dropped, at most
/// the running call completes.
pub trait UpdateObserver: Send + Sync + 'static {
    /// Receives an update of the collection.
    fn update(&self, update: Update);

    /// Receives the `Warning` headers that the member now sends with its lists and watches, for example that the
    /// version is deprecated. Called when they change, before the objects of that response.
    fn warnings(&self, warnings: &[HeaderValue]) {
        let _not_every_observer_answers_clients = warnings;
    }
}

/// An update of a collection. Each snapshot is complete up to its version, unless objects are released [after
/// publication](crate::ObjectRetention::UntilPublished).
#[derive(Clone, Debug)]
pub enum Update {
    /// The first complete state.
    Synced {
        /// The collection after the first list.
        snapshot: Snapshot,
    },
    /// Changes in the member's order, in ascending version: at least one, all from one read of the stream. Deletions of
    /// the same version may be in several updates.
    ///
    /// The types fit the store: an `Added` object did not exist before; a `Modified` or `Deleted` one did, and is in
    /// `previous` if it was in memory.
    Changes {
        /// The changes in order.
        changes: Vec<Change>,
        /// The collection after the last change; its version may be above the last change's.
        snapshot: Snapshot,
    },
    /// The collection was listed again because the member no longer had the events since `before` (410). Revisions did
    /// not go back: the observer computes the differences. Unchanged objects are the same `Arc` in both.
    Relisted {
        /// The collection that was served until now.
        before: Snapshot,
        /// The collection that is served from now on.
        after: Snapshot,
    },
    /// Revisions went back: the member was restored or replaced, and versions that were handed out are void. The
    /// reflector detects it by a list without resourceVersion that [undoes](Snapshot::undoes) the previous state, or
    /// [`Cacher::reset`](crate::Cacher::reset) was called. Unchanged objects are the same `Arc` in both.
    Reset {
        /// The collection that was served until now.
        before: Snapshot,
        /// The collection that is served from now on; its version may be above or below that of `before`.
        after: Snapshot,
    },
    /// The version advanced without a change of the objects (a bookmark, or an event of an unknown object).
    Progress {
        /// The collection; only its version has changed.
        snapshot: Snapshot,
    },
}

impl Update {
    /// Returns the collection after this update.
    pub fn snapshot(&self) -> &Snapshot {
        match self {
            Self::Synced { snapshot } | Self::Changes { snapshot, .. } | Self::Progress { snapshot } => snapshot,
            Self::Relisted { after, .. } | Self::Reset { after, .. } => after,
        }
    }
}
