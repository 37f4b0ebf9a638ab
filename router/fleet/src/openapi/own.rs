//! OpenAPI documents of Tributary's own API group for the merged view and the aggregated entry. The merged view
//! describes the group only in a v3 document in JSON. The merged view's v2 document does not describe the group: it
//! must have equal contents in JSON and protobuf, and Tributary writes no protobuf.

use std::sync::{LazyLock, OnceLock};

use bytes::Bytes;
use serde_json::Value;
use tributary_apimachinery::ForeignDoors;

use super::sources::digest;
use crate::aggregated_group::{
    COMBINATIONS, GROUP, VERSION, combination, foreign_groups, merged_view_openapi_v3, openapi_v2, openapi_v3,
};

/// JSON document that Tributary itself writes, with its entity tag.
pub(super) struct OwnDocument {
    pub(super) bytes: Bytes,
    pub(super) tag: String,
}

static V3: LazyLock<OwnDocument> = LazyLock::new(|| OwnDocument::new(&merged_view_openapi_v3()));

impl OwnDocument {
    fn new(document: &Value) -> Self {
        let bytes = Bytes::from(document.to_string());
        Self { tag: digest(&bytes), bytes }
    }

    /// Returns the v3 document of the merged view, whose path is [`path`](Self::path).
    pub(super) fn v3() -> &'static Self {
        &V3
    }

    /// Returns the path of the v3 document, below `/openapi/v3/`.
    pub(super) fn path() -> String {
        format!("apis/{GROUP}/{VERSION}")
    }
}

/// Documents of the aggregated entry for one combination of open doors of foreign systems.
pub(super) struct EntryDocuments {
    pub(super) v2: OwnDocument,
    /// The v3 document of each group, by its path below `/openapi/v3/`.
    pub(super) v3: Vec<(String, OwnDocument)>,
}

impl EntryDocuments {
    fn new(doors: &ForeignDoors) -> Self {
        let foreign: Vec<_> = foreign_groups(doors).collect();
        let own = (OwnDocument::path(), OwnDocument::new(&openapi_v3()));
        let others = foreign.iter().flat_map(|group| {
            let path = |version: &str| format!("apis/{}/{version}", group.metadata.name);
            let document = crate::foreign_groups::openapi_v3(group);
            group.versions.iter().map(move |version| (path(&version.version), OwnDocument::new(&document)))
        });
        Self { v3: [own].into_iter().chain(others).collect(), v2: OwnDocument::new(&openapi_v2(&foreign)) }
    }

    /// Returns the documents for this combination of open doors. The first call for a combination builds them.
    pub(super) fn for_doors(doors: &ForeignDoors) -> &'static Self {
        static MADE: [OnceLock<EntryDocuments>; COMBINATIONS] = [const { OnceLock::new() }; COMBINATIONS];
        MADE[combination(doors)].get_or_init(|| Self::new(doors))
    }
}
