//! The hub: a Kubernetes cluster that stores configuration objects, credentials and the status of members.
//!
//! ```text
//! configuration
//!   hub ──list, watch──▶ HubCollections ──HubSnapshot──▶ accept (pure) ─┬▶ LoadedConfiguration ─▶ router
//!                                                          ▲            └▶ Verdict ─▶ StatusWriter ─▶ hub
//!                                               InForce ───┘ (also kept in the data directory)
//! leader
//!   Lease in the hub ◀── LeaseCandidate ──▶ Leadership ─▶ StatusWriter with Publisher, ServingCertificateStore
//!
//! aggregated API
//!   ConfigMap of front proxies ──▶ HubTrust ─────────────────────▶ authentication of headers and certificates
//!   TokenReview ◀──────────────── HubTokenReviewer ◀───────────── authentication of tokens
//!   SubjectAccessReview ◀──────── DoorReviews ◀────────────────── authorization of direct callers
//!   Secret, APIService ◀────────▶ ServingCertificateStore ───────▶ TLS of the listener
//! ```

mod accept;
mod certificate;
mod client;
mod collections;
mod credential;
mod disappearance;
mod door_review;
mod front_proxy_trust;
mod gateway_health;
mod hub_trust;
mod in_force;
mod item_command;
mod leadership;
mod lease;
mod members;
mod monitor;
mod other_sources;
mod placement_decisions;
mod publication;
mod source;
mod source_items;
mod status;
mod status_writer;
mod token_reviewer;
mod verdict;
mod write_limits;

pub use accept::{Acceptance, ConfigurationCheck};
pub use certificate::{AggregatedService, ServingCertificateStore, SharedServingCertificate};
pub use client::{HubAddress, HubClient, HubError};
pub use collections::{CREDENTIAL_LABEL, HubCollections, HubSnapshot};
pub use credential::{CREDENTIAL_HOSTS, CREDENTIAL_OF};
pub use door_review::{DoorAttributes, DoorResource, DoorReviews};
pub use front_proxy_trust::{FrontProxy, FrontProxyTrust, InvalidTrust};
pub use gateway_health::GatewayHealthWriter;
pub use hub_trust::HubTrust;
pub use in_force::InForce;
pub use leadership::Leadership;
pub use lease::LeaseCandidate;
pub use members::{HubRules, OwnEndpoint, leads_to};
pub use monitor::HubMonitor;
pub use other_sources::OtherSources;
pub use publication::{PublicationMonitor, PublicationSettings, PublishedAddress, PublishedServiceAccount, Publisher};
pub use source::HubSource;
pub use status_writer::{ReadReport, StatusWriter};
pub use token_reviewer::HubTokenReviewer;
pub use tributary_cluster_sources::AccessProviders;
pub use tributary_router::cluster_status::ConditionStatus;
pub use verdict::{ConditionState, HubKind, ItemVerdict, ObjectReference, SourceVerdict, Verdict};
