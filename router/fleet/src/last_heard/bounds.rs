//! Limits of the stored discovery and OpenAPI documents.

/// Maximum size of a stored discovery document, or of a stored list of OpenAPI v3 documents, in bytes. 4 MiB: a
/// thousand CustomResourceDefinitions make 1 MB. A cluster has three such documents, so one cluster cannot fill the
/// store.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 4 << 20;
