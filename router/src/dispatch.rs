//! Dispatch policies at the places where requests come in: they refuse requests, or let them pass.
//!
//! ```text
//! a cluster's own view ──▶ the cluster's policies ─────────────────────────────────▶ sent to it
//! the merged view ───────▶ those of the merged view ──▶ those of each cluster ──┬──▶ the clusters that do not refuse
//!                          (before the plan)            that has the resource   └──▶ the others are not there: `DeniedClusters`
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
