//! Dispatch policies refuse requests, or let requests pass. Each entry point, the merged view or a cluster's own view,
//! has its policies.
//!
//! ```text
//! a cluster's own view ─▶ the cluster's policies ────────────────────────────────▶ the cluster
//! the merged view ──────▶ its own policies ──▶ policies of each cluster ─┬─ pass ─▶ candidates
//!                         (before the plan)    that has the resource     └─ deny ─▶ excluded: `DeniedClusters`
//! ```
//!
//! Rules match the user that the request acts as: with `--as bob`, rules match bob. `sender` defines the matched user
//! for each purpose.

mod dispatched;
mod entry_points;
mod sender;

pub(crate) use dispatched::{DeniedClusters, Dispatched, SchemaName};
pub(crate) use entry_points::{Dispatch, DispatchGate};
pub use entry_points::{DispatchSettings, EntryPointPolicies};
pub(crate) use sender::PolicySender;
