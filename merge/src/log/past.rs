//! A past state of a cluster, in the form of a later state and the changes to undo.

use std::collections::HashSet;
use std::sync::Arc;

use tributary_apimachinery::{Change, ChangeType, CollectionVersion, Object, Snapshot};

/// A past state of a cluster, taken from the log and not rebuilt yet, so that the caller can release the log before the
/// expensive part.
#[derive(Clone, Debug)]
pub struct Past {
    /// The version of the state.
    pub(super) version: CollectionVersion,
    /// A later state.
    pub(super) later: Snapshot,
    /// The changes from the past state to the later one, oldest first.
    pub(super) since: Vec<Change>,
}

impl Past {
    /// Returns the number of changes to undo.
    pub fn changes(&self) -> usize {
        self.since.len()
    }

    /// Rebuilds the state.
    ///
    /// Cost: about 50 ns for each change since, and about a microsecond for each object that changed, independent of
    /// the number of its changes.
    pub fn rebuild(self) -> Snapshot {
        let Self { version, later: mut state, since } = self;
        let mut undone = HashSet::with_capacity(since.len());
        // A key's content before its oldest change is its content in the past state.
        for change in &since {
            let key = change.object.key().as_str();
            if !undone.insert(key) {
                continue;
            }
            match content_before(change) {
                Some(previous) => drop(state.insert(previous.clone())),
                None => drop(state.remove(key)),
            }
        }
        state.set_resource_version(version);
        state
    }
}

/// Returns the content of a key before a change. For a deletion without a previous object that is the deleted object.
pub(super) fn content_before(change: &Change) -> Option<&Arc<Object>> {
    match (change.change_type, &change.previous) {
        (ChangeType::Deleted, None) => Some(&change.object),
        (_, previous) => previous.as_ref(),
    }
}
