//! Discovery: what the members serve, and the documents that clients are given of it.
//!
//! ```text
//! member /api, /apis ── fetch ──▶ MemberDiscovery ┐
//! member /api, /apis ── fetch ──▶ MemberDiscovery ┴─ union ──▶ Union ── documents ──▶ aggregated v2, legacy
//! ```

mod document;
pub mod documents;
pub mod fetch;
mod join;
pub mod model;
pub mod union;

pub use document::{DiscoveryPath, Document};
pub use fetch::{FetchError, Fetched, MemberDocuments, fetch};
pub use union::{MemberDiscovery, Otherwise, ServedResource, Union};
