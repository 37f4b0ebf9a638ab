//! Discovery: what the members serve, and the documents that clients are given of it.
//!
//! ```text
//! member /api, /apis ── fetch ──▶ MemberDiscovery ┐
//! member /api, /apis ── fetch ──▶ MemberDiscovery ┴─ union ──▶ Union ── documents ──▶ aggregated v2, legacy
//! ```

pub(crate) mod document;
pub(crate) mod documents;
pub(crate) mod fetch;
mod index;
mod intake;
mod join;
pub mod model;
mod otherwise;
mod read;
pub(crate) mod union;

pub(crate) use document::DiscoveryPath;
pub(crate) use fetch::{FetchError, Fetched, MemberDocuments, fetch};
pub(crate) use otherwise::Otherwise;
pub(crate) use union::ServedResource;
pub use union::{MemberDiscovery, Union};
