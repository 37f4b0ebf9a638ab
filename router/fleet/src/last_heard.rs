//! What clusters said of themselves when they were last heard: which resources they serve, and the OpenAPI documents
//! that were read of them. It outlives this process, so that one that is started while a cluster is down names that
//! cluster's kinds, and explains them, as the one before it did. Objects are no part of it: a cluster that has not
//! answered since the start counts as one whose objects are not known.
//!
//! ```text
//! fleet, openapi ── news ──▶ a pause ──▶ LastHeard ──▶ KeepLastHeard ── with what others kept, text ──▶ data directory
//! data directory ── text ──▶ LastHeard ──▶ fleet, openapi of the next process
//! ```

mod bounds;
mod others;
mod text;

use std::collections::BTreeMap;

use tributary_apimachinery::ClusterName;

use crate::openapi::KnownOpenApi;
use crate::topology::Served;
pub use text::LastHeardError;

/// Keeps what the clusters of now said last, beyond this process. Called where it may block.
pub type KeepLastHeard = Box<dyn Fn(LastHeard) + Send + Sync>;

/// What clusters said when they were last heard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastHeard {
    /// What each serves.
    pub discovery: BTreeMap<ClusterName, Served>,
    /// Their OpenAPI documents, as far as clients have read them.
    pub openapi: KnownOpenApi,
    /// Clusters that the process which kept this did not have, and when one last had them: seconds since 1970.
    pub others: BTreeMap<ClusterName, u64>,
}
