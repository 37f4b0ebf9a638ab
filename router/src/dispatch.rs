//! Dispatch policies at the places where requests come in: they refuse requests, or let them pass.
//!
//! ```text
//! a cluster's own view ─▶ the cluster's policies ────────────────────────────────▶ the cluster
//! the merged view ──────▶ its own policies ──▶ policies of each cluster ─┬─ pass ─▶ candidates
//!                         (before the plan)    that has the resource     └─ deny ─▶ left out: `DeniedClusters`
//! ```
//!
//! Rules match the user that the request acts as: `--as bob` is bob's request. `sender` defines the user for each
//! purpose.

mod dispatched;
mod places;
mod sender;

pub(crate) use dispatched::{DeniedClusters, Dispatched, SchemaName};
pub(crate) use places::{Dispatch, DispatchGate};
pub use places::{DispatchSettings, PlacePolicies};
pub(crate) use sender::{PolicySender, PolicyUser};
