//! What keeps a cluster from answering.

use std::fmt;
use std::time::Duration;

use tributary_apimachinery::ClusterName;

/// What keeps a cluster from answering, as clients are told: `eu (for 3 s: refused)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// The cluster.
    pub(crate) cluster: ClusterName,
    /// The cause, in one line, for people.
    pub(crate) cause: String,
    /// For how long it has been so.
    pub(crate) age: Duration,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (for {} s: {})", self.cluster, self.age.as_secs(), self.cause)
    }
}
