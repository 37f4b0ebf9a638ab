//! What a reflector tells of its collection.

use http::HeaderValue;
use tributary_apimachinery::{Change, Snapshot};

/// Is told every change of one cacher's collection.
///
/// Calls come from the reflector's task, one at a time and in the member's order, before the snapshot they carry is
/// seen by [`Cacher::snapshot`](crate::Cacher::snapshot). They must not block: while one runs, nothing more is read
/// from the member. The first is [`Update::Synced`], exactly once. After the cacher is dropped at most
/// the call under way ends.
pub trait UpdateObserver: Send + Sync + 'static {
    /// Takes one step of the collection.
    fn update(&self, update: Update);

    /// Takes the `Warning` headers that the member now sends with its lists and watches, such as that the version is
    /// deprecated. Called when they change, before the objects of that answer.
    fn warnings(&self, warnings: &[HeaderValue]) {
        let _not_every_observer_answers_clients = warnings;
    }
}

/// One step of a collection. Every snapshot is complete up to its version, unless objects are held
/// [until they are told](crate::HeldObjects::UntilTold).
#[derive(Clone, Debug)]
pub enum Update {
    /// The first complete state.
    Synced {
        /// The collection.
        snapshot: Snapshot,
    },
    /// Changes in the member's order, in ascending version: all that one read of the stream brought, at least one.
    /// Deletions of one version may come in several of these.
    ///
    /// Their types fit the store: an `Added` object was not there before, a `Modified` or `Deleted` one was and is
    /// `previous` if it was held.
    Changes {
        /// The changes.
        changes: Vec<Change>,
        /// The collection after the last of them; its version may be above the last change's.
        snapshot: Snapshot,
    },
    /// The collection was listed anew because the member no longer had the events since `before` (410). Time went on:
    /// the observer computes the differences. Objects that did not change are the same `Arc` in both.
    Relisted {
        /// What was served until now.
        before: Snapshot,
        /// What is served from now on.
        after: Snapshot,
    },
    /// Revisions went back: the member was restored or replaced, and versions handed out before are void. Told by an
    /// unset list that [undoes](Snapshot::undoes) what was seen, or by [`Cacher::reset`](crate::Cacher::reset). Objects
    /// whose bytes did not change are the same `Arc` in both.
    Reset {
        /// What was served until now.
        before: Snapshot,
        /// What is served from now on; its version may be above or below that of `before`.
        after: Snapshot,
    },
    /// The version advanced and the objects did not change (a bookmark, or an event of an object that was not there).
    Progress {
        /// The collection; only its version is new.
        snapshot: Snapshot,
    },
}

impl Update {
    /// The collection after this step.
    pub fn snapshot(&self) -> &Snapshot {
        match self {
            Self::Synced { snapshot } | Self::Changes { snapshot, .. } | Self::Progress { snapshot } => snapshot,
            Self::Relisted { after, .. } | Self::Reset { after, .. } => after,
        }
    }
}
