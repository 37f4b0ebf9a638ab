//! OpenAPI documents of Tributary's own API group, as the merged view and the aggregated entry serve them. The merged
//! view serves the group only as a v3 document in JSON. Its v2 document must have equal contents in JSON and protobuf,
//! and Tributary writes no protobuf.

use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::Value;

use super::sources::digest;
use crate::aggregated_group::{GROUP, VERSION, merged_view_openapi_v3, openapi_v2, openapi_v3};

/// A document in JSON, with its entity tag.
pub(super) struct OwnDocument {
    pub(super) bytes: Bytes,
    pub(super) tag: String,
}

static V3: LazyLock<OwnDocument> = LazyLock::new(|| OwnDocument::new(&merged_view_openapi_v3()));
static ENTRY_V2: LazyLock<OwnDocument> = LazyLock::new(|| OwnDocument::new(&openapi_v2()));
static ENTRY_V3: LazyLock<OwnDocument> = LazyLock::new(|| OwnDocument::new(&openapi_v3()));

impl OwnDocument {
    fn new(document: &Value) -> Self {
        let bytes = Bytes::from(document.to_string());
        Self { tag: digest(&bytes), bytes }
    }

    /// Returns the document at [`path`](Self::path).
    pub(super) fn v3() -> &'static Self {
        &V3
    }

    /// Returns the v2 document of the aggregated entry.
    pub(super) fn entry_v2() -> &'static Self {
        &ENTRY_V2
    }

    /// Returns the v3 document of the aggregated entry.
    pub(super) fn entry_v3() -> &'static Self {
        &ENTRY_V3
    }

    /// Returns the path of the v3 document, below `/openapi/v3/`.
    pub(super) fn path() -> String {
        format!("apis/{GROUP}/{VERSION}")
    }
}
