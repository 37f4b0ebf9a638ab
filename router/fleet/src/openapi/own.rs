//! OpenAPI documents of Tributary's own API group, as the merged view serves them.

use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::Value;

use super::sources::digest;
use crate::aggregated_group::{GROUP, VERSION, cluster_openapi_v2, cluster_openapi_v3};

/// A document in JSON, with its entity tag.
pub(super) struct OwnDocument {
    pub(super) bytes: Bytes,
    pub(super) tag: String,
}

static V2: LazyLock<OwnDocument> = LazyLock::new(|| OwnDocument::new(&cluster_openapi_v2()));
static V3: LazyLock<OwnDocument> = LazyLock::new(|| OwnDocument::new(&cluster_openapi_v3()));

impl OwnDocument {
    fn new(document: &Value) -> Self {
        let bytes = Bytes::from(document.to_string());
        Self { tag: digest(&bytes), bytes }
    }

    /// Returns the part of `/openapi/v2`.
    pub(super) fn v2() -> &'static Self {
        &V2
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
