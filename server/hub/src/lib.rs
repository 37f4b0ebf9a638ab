//! The hub: a Kubernetes cluster that stores configuration objects, credentials and the status of members.
//!
//! ```text
//!   hub ──list, watch──▶ HubCollections ──HubSnapshot──▶ accept (pure) ─┬▶ LoadedConfiguration ─▶ router
//!                                                          ▲            └▶ Verdict ─▶ status of each object
//!                                               InForce ───┘ (also kept in the data directory)
//! ```

mod accept;
mod client;
mod collections;
mod credential;
mod disappearance;
mod in_force;
mod lease;
mod members;
mod monitor;
mod source;
mod status;
mod status_writer;
mod verdict;

pub use accept::{Acceptance, WholeCheck};
pub use client::{HubAddress, HubClient, HubError};
pub use collections::{CREDENTIAL_LABEL, HubCollections, HubSnapshot};
pub use credential::{CREDENTIAL_HOSTS, CREDENTIAL_OF};
pub use in_force::InForce;
pub use members::HubRules;
pub use monitor::HubMonitor;
pub use source::HubSource;
pub use status_writer::{ReadReports, StatusWriter};
pub use verdict::{ConditionState, ConditionStatus, HubKind, ObjectReference, Verdict};
