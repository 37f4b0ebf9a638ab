//! Last known discovery and OpenAPI documents of the clusters. They survive a restart, so a process that starts while a
//! cluster is down knows the cluster's kinds. Objects are not stored: the objects of a cluster that has not answered
//! since the start are unknown.
//!
//! ```text
//! fleet, openapi ── news ──▶ a pause ──▶ LastHeard ──▶ KeepLastHeard ── as text ──▶ data directory
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

/// Function that stores the last known documents of the configured clusters. The function may block.
pub type KeepLastHeard = Box<dyn Fn(LastHeard) + Send + Sync>;

/// Last known discovery and OpenAPI documents of clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastHeard {
    /// Discovery of each cluster.
    pub discovery: BTreeMap<ClusterName, Served>,
    /// OpenAPI documents that clients have read.
    pub openapi: KnownOpenApi,
    /// Clusters whose documents were only carried over: the process that wrote this state was not configured with them.
    /// The value is the time of the last use, in seconds since 1970.
    pub others: BTreeMap<ClusterName, u64>,
}
