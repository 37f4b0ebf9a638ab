//! The generated serving certificate of the aggregated API. A Secret of the hub keeps it for all replicas.
//!
//! ```text
//! leader: Secret missing or near its end ─▶ new authority and certificate ─▶ Secret, caBundle of the APIService
//! every replica: Secret ─▶ SharedServingCertificate ─▶ TLS of the aggregated API
//! ```

mod api_service;
mod generated;
mod secret;
mod store;

pub use api_service::AggregatedService;
pub use generated::SharedServingCertificate;
pub use store::ServingCertificateStore;
