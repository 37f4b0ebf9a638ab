//! The updates of a collection that an observer receives.

use http::HeaderValue;
use tributary_apimachinery::{Change, Snapshot};

/// Receives each change of a cacher's collection.
///
/// The reflector's task makes the calls, one at a time and in the member's order.
/// [`Cacher::snapshot`](crate::Cacher::snapshot) returns the snapshot of an update only after the call with that update
/// has returned. A call must not block, because the reflector reads nothing during the call. The first call is
/// [`Update::Synced`], exactly once. After the cacher is dropped, at most the running call completes.
pub trait UpdateObserver: Send + Sync + 'static {
    /// Receives an update of the collection.
    fn update(&self, update: Update);

    /// Receives the `Warning` headers of the member's list and watch responses, for example that the API version is
    /// deprecated. Called when the headers change, before the call with the objects of that response.
    fn warnings(&self, warnings: &[HeaderValue]) {
        let _not_every_observer_answers_clients = warnings;
    }
}

/// An update of a collection. Each snapshot contains all objects up to its version, unless objects are dropped [after
/// publication](crate::ObjectRetention::UntilPublished).
#[derive(Clone, Debug)]
pub enum Update {
    /// The first complete list.
    Synced {
        /// The collection after the first list.
        snapshot: Snapshot,
    },
    /// The changes of one chunk of the watch, in the member's order and in ascending version, at least one. Deletions
    /// with the same version may be split over several updates.
    ///
    /// The types of the changes fit the previous snapshot. An `Added` object did not exist before. A `Modified` or
    /// `Deleted` object existed, and is in `previous` if it was in memory.
    Changes {
        /// The changes in order.
        changes: Vec<Change>,
        /// The collection after the last change. The snapshot's version may be above the version of the last change.
        snapshot: Snapshot,
    },
    /// The collection was listed again because the member no longer had the events after `before` (410). Revisions did
    /// not go back. The observer computes the differences; unchanged objects are the same `Arc` in both snapshots.
    Relisted {
        /// The collection that was served until now.
        before: Snapshot,
        /// The collection that is served from now on.
        after: Snapshot,
    },
    /// The member's revisions went back: the member was restored or replaced, and all earlier versions are void. The
    /// cause is a list without resourceVersion that [undoes](Snapshot::undoes) the previous state, or a call of
    /// [`Cacher::reset`](crate::Cacher::reset). Unchanged objects are the same `Arc` in both snapshots.
    Reset {
        /// The collection that was served until now.
        before: Snapshot,
        /// The collection that is served from now on. Its version may be above or below that of `before`.
        after: Snapshot,
    },
    /// The version advanced although no object changed: by a bookmark, or by the deletion of an object that the
    /// collection did not contain.
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
