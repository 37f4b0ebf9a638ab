//! How much is kept of what clusters said last.

/// How much JSON text is kept at most, in bytes. 64 MiB: the documents of a thousand clusters of one kind are 0.3 MB,
/// as each stands once; those of some hundred clusters of which no two are alike fit, with 16 MiB of OpenAPI.
pub(crate) const TEXT_BYTES_MAX: usize = 64 << 20;

/// How much text one document of discovery, or list of v3 documents, may have, in bytes. 4 MiB: a thousand
/// CustomResourceDefinitions make 1 MB. A cluster has three, so that no one of them takes the room of all others.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 4 << 20;
