//! Objects in the hub by which controllers of other systems find the members: ClusterProfiles, kubeconfig Secrets of
//! multicluster-runtime, and cluster Secrets of Argo CD. The holder of the Lease of the status writer writes them.
//!
//! ```text
//!   Report ─▶ member_states ─┐
//!   CA, token ───────────────┼▶ PublishedKind::desired_objects (pure) ─┐
//!                            ┘                                         ├▶ plan_changes (pure) ─▶ Publisher ─▶ hub
//!   hub ──list, watch──▶ PublishedCollection, own objects ─────────────┘
//! ```
//!
//! Tributary changes and deletes only objects with the label `tributary.dev/published-by` of this Tributary. An object
//! without this label keeps its name: the creation of an object of the same name fails.

mod argo_cd_secret;
mod cluster_profile;
mod collection;
mod kind;
mod kubeconfig_secret;
mod member_access;
mod monitor;
mod plan;
mod publisher;
mod settings;
mod token;

pub use monitor::PublicationMonitor;
pub use publisher::Publisher;
pub use settings::{PublicationSettings, PublishedAddress, PublishedServiceAccount};
