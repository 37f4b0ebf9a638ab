//! How much is kept of what clusters said last.

/// How much text one document of discovery, or list of v3 documents, may have, in bytes. 4 MiB: a thousand
/// CustomResourceDefinitions make 1 MB. A cluster has three, so that no one of them takes the room of all others.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 4 << 20;
