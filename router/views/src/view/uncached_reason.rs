//! Kinds of reasons why a cluster's collection is not cached.

use tributary_cacher::StaleReason;

/// Kind of reason why a cluster's collection is not cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UncachedReason {
    /// A cause that may end without a repair: the first list is not complete, the cluster does not answer, or its
    /// server fails.
    #[default]
    Transient,
    /// The cluster forbids Tributary to list or watch the collection.
    Forbidden,
    /// The collection exceeds a memory limit.
    TooLarge,
    /// The collection has resourceVersions that are not numbers.
    OpaqueVersions,
    /// An administrator must repair the whole cluster, or its discovery of the collection.
    ClusterFault,
}

impl UncachedReason {
    /// Returns the kind of reason for a cacher without a complete collection. `reason` comes from the state of the
    /// cacher.
    pub fn from_reason(reason: Option<&StaleReason>) -> Self {
        match reason {
            Some(StaleReason::Forbidden) => Self::Forbidden,
            Some(StaleReason::TooLarge(_) | StaleReason::MemoryLimitReached { .. }) => Self::TooLarge,
            Some(StaleReason::OpaqueVersions(_)) => Self::OpaqueVersions,
            _ => Self::Transient,
        }
    }

    /// Returns whether the cause lasts until an administrator repairs it, so that waiting is useless.
    pub fn is_permanent(self) -> bool {
        self != Self::Transient
    }
}
