//! A change of an object in a cluster.

use std::sync::Arc;

use crate::{Object, ResourceVersion};

/// The type of a change, as in a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeType {
    /// The object was created.
    Added,
    /// The object was modified.
    Modified,
    /// The object was deleted.
    Deleted,
}

impl ChangeType {
    /// Returns the `type` of a watch event.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// A change of an object in a cluster, in the order of the cluster's events.
#[derive(Clone, Debug)]
pub struct Change {
    /// The type of the change.
    pub change_type: ChangeType,
    /// The object after the change. For a deletion, the last state of the object with the resourceVersion of the
    /// deletion.
    pub object: Arc<Object>,
    /// The object before the change, if the object existed and is in memory.
    pub previous: Option<Arc<Object>>,
}

impl Change {
    /// Returns the member's resourceVersion of the change.
    pub fn resource_version(&self) -> ResourceVersion {
        self.object.resource_version()
    }
}
