//! Discovery: the resources that the clusters serve, and the discovery documents for clients.
//!
//! ```text
//! member /api, /apis ── fetch ──▶ MemberDiscovery ┐
//! member /api, /apis ── fetch ──▶ MemberDiscovery ┴─ union ──▶ Union ── documents ──▶ aggregated v2, legacy
//! ```

pub mod document;
pub mod documents;
pub(crate) mod fetch;
mod index;
mod intake;
mod join;
pub mod merged_discovery;
pub mod model;
mod not_merged;
mod read;
mod resource_kind;

pub use document::DiscoveryPath;
pub(crate) use fetch::FetchError;
pub(crate) use fetch::Fetched;
pub(crate) use fetch::MemberDocuments;
pub(crate) use fetch::fetch;
pub use merged_discovery::ServedResource;
pub use merged_discovery::{MemberDiscovery, MergedDiscovery};
pub use not_merged::NotMergedReason;
pub(crate) use not_merged::Undescribed;
pub use resource_kind::ResourceKind;
