//! The hub: a Kubernetes cluster that stores configuration objects, credentials and the status of members.
//!
//! ```text
//!   hub ──list, watch──▶ HubCollections ──HubSnapshot──▶ accept (pure) ─┬▶ LoadedConfiguration ─▶ router
//!                                                          ▲            └▶ Verdict ─▶ status of each object
//!                                               InForce ───┘ (also kept in the data directory)
//! ```

mod client;
mod collections;
mod verdict;

pub use client::{HubAddress, HubClient, HubError};
pub use collections::{CREDENTIAL_LABEL, HubCollections, HubSnapshot};
pub use verdict::{ConditionState, ConditionStatus, HubKind, ObjectReference, Verdict};
