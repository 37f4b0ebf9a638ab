//! Members from lists of clusters in foreign systems: cluster-gateway, Karmada, ClusterProfile, multicluster-runtime,
//! Argo CD, Open Cluster Management and KubeGateway. Without I/O.
//!
//! ```text
//!   ClusterSource ──▶ SourceReader ──▶ SourceList   the collections to list and watch
//!                          │
//!   objects, Secrets ──────┴─────────▶ SourceItem: a member, or RefusedItem: reason and remedy
//! ```
//!
//! A foreign object is data that other users write. So an item names no file, its servers need `https://`, and the
//! process decides whether a [`CredentialCommand`] runs.

mod access_providers;
mod annotations;
mod argo_cd;
mod cluster_gateway;
mod cluster_name;
mod cluster_profile;
mod credential_command;
mod credential_text;
mod draft;
mod identity_rules;
mod item;
mod karmada;
mod karmada_registry;
mod kube_gateway;
mod kubeconfig_secret;
mod label_selector;
mod managed_cluster;
mod object_metadata;
mod refusal;
mod secret;
mod secret_permission;
mod server_trust;
mod source_kind;
mod source_list;
mod source_reader;
mod url;

pub use access_providers::AccessProviders;
pub use annotations::{CLUSTER_INDEX, CLUSTER_NAME};
pub use cluster_name::derive_cluster_name;
pub use credential_command::{CredentialCommand, Program};
pub use identity_rules::parse_identity_rules;
pub use item::{ItemObject, ItemWarning, NamespaceScope, RefusedItem, SourceItem};
pub use karmada_registry::{KarmadaRegistry, convert_karmada_registries};
pub use refusal::SourceRefusal;
pub use source_kind::SourceKind;
pub use source_list::{SourceCollection, SourceList};
pub use source_reader::{Secrets, SourceReader, UsedSecret};
