//! The kind of cause that keeps a cluster's collection out of memory.

use tributary_cacher::StaleReason;

/// A kind of cause that keeps a cluster's collection out of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CollectionObstacle {
    /// A cause that may pass without a repair: no list yet, no answer, an error of the server.
    #[default]
    Passing,
    /// The cluster forbids Tributary to list or watch the collection.
    Forbidden,
    /// The collection is larger than memory may hold.
    TooLarge,
    /// The collection has versions that are not numbers.
    OpaqueVersions,
}

impl CollectionObstacle {
    /// The obstacle of a cacher that has no complete collection.
    pub fn from_reason(reason: Option<&StaleReason>) -> Self {
        match reason {
            Some(StaleReason::Forbidden) => Self::Forbidden,
            Some(StaleReason::TooLarge(_) | StaleReason::NoRoom { .. }) => Self::TooLarge,
            Some(StaleReason::OpaqueVersions(_)) => Self::OpaqueVersions,
            _ => Self::Passing,
        }
    }

    /// Whether a repair is needed, so that a client waits in vain.
    pub fn lasts(self) -> bool {
        self != Self::Passing
    }
}
