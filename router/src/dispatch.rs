//! Dispatch policies where requests come in: which of them go on.
//!
//! ```text
//! a cluster's own view ──▶ the cluster's policies ─────────────────────────────────▶ sent to it
//! the merged view ───────▶ those of the merged view ──▶ those of each cluster ──┬──▶ the clusters that do not refuse
//!                          (before the plan)            that has the resource   └──▶ the others are not there: `DeniedClusters`
//! ```
//!
//! Rules match as whom the request acts: `--as bob` is bob's. Which of those that it is counts for what says `sender`.

mod dispatched;
mod places;
mod sender;

pub(crate) use dispatched::{DeniedClusters, Dispatched, SchemaName};
pub(crate) use places::{Dispatch, DispatchGate};
pub use places::{DispatchSettings, PlacePolicies};
pub(crate) use sender::{PolicySender, PolicyUser};
