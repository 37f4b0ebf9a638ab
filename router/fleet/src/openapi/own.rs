//! OpenAPI document of Tributary's own API group, as the merged view serves it. Only the list of v3 documents has it, in
//! JSON: the v2 document of the whole server has equal contents in JSON and protobuf, and Tributary writes no protobuf.

use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::Value;

use super::sources::digest;
use crate::aggregated_group::{GROUP, VERSION, cluster_openapi_v3};

/// A document in JSON, with its entity tag.
pub(super) struct OwnDocument {
    pub(super) bytes: Bytes,
    pub(super) tag: String,
}

static V3: LazyLock<OwnDocument> = LazyLock::new(|| OwnDocument::new(&cluster_openapi_v3()));

impl OwnDocument {
    fn new(document: &Value) -> Self {
        let bytes = Bytes::from(document.to_string());
        Self { tag: digest(&bytes), bytes }
    }

    /// Returns the document at [`path`](Self::path).
    pub(super) fn v3() -> &'static Self {
        &V3
    }

    /// Returns the path of the v3 document, below `/openapi/v3/`.
    pub(super) fn path() -> String {
        format!("apis/{GROUP}/{VERSION}")
    }
}
