//! One change of one object in one cluster.

use std::sync::Arc;

use crate::{Object, ResourceVersion};

/// What happened to the object, as a watch event says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeType {
    /// The object appeared.
    Added,
    /// The object changed.
    Modified,
    /// The object went away.
    Deleted,
}

impl ChangeType {
    /// The word that a watch event carries.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One change of one object in one cluster, in that cluster's order.
#[derive(Clone, Debug)]
pub struct Change {
    /// What happened.
    pub change_type: ChangeType,
    /// The object after the change; for a deletion its last state, whose resourceVersion is that of the deletion.
    pub object: Arc<Object>,
    /// The object before the change, where there was one.
    pub previous: Option<Arc<Object>>,
}

impl Change {
    /// The member's resourceVersion at which the change happened.
    pub fn resource_version(&self) -> ResourceVersion {
        self.object.resource_version()
    }
}
