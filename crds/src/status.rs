//! The status of a configuration object in a hub cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The status of the object. Tributary writes it for objects in a hub cluster and ignores it in files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigurationStatus {
    /// The `metadata.generation` that the conditions describe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: the present generation is in force. The other conditions depend on the kind (docs/hub.md).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// The status of a cluster. Tributary writes it for objects in a hub cluster and ignores it in files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct UpstreamClusterStatus {
    /// The conditions, and the generation that they describe.
    #[serde(flatten)]
    pub common: ConfigurationStatus,
    /// The version of the cluster's server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The number of cached resources that are up to date.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub synced_resources: Option<u64>,
    /// The number of cached resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>")]
    pub known_resources: Option<u64>,
    /// Synced and known resources: `24/24`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced: Option<String>,
    /// The number of cached objects, rounded to two digits: `~12k`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<String>,
    /// The time of the last message of the cluster, if its cached objects are not up to date.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub stale_since: Option<String>,
}

/// The status of a source of clusters. Tributary writes it for objects in a hub cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSourceStatus {
    /// The conditions, and the generation that they describe.
    #[serde(flatten)]
    pub common: ConfigurationStatus,
    /// The field of `spec` with the list, such as `karmadaClusters`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<String>,
    /// The number of items in the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<i64>,
    /// The number of items that are members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<i64>,
    /// The first 20 items that are refused, in the order of their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub refused: Vec<RefusedSourceItem>,
}

/// An item of a source that is not a member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefusedSourceItem {
    /// The name of the item in the foreign system.
    pub name: String,
    /// The reason for programs, in CamelCase.
    pub reason: String,
    /// The reason for people, with the remedy.
    pub message: String,
}

/// Returns the schema of a list of `metav1.Condition` (apimachinery `pkg/apis/meta/v1/types.go`), a map by type. The
/// schema is written by hand for the reason given at `label_selector_schema`.
fn conditions_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "description": "A condition of the object.",
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {
                    "description": "The type of the condition, in CamelCase.",
                    "type": "string",
                    "maxLength": 316,
                },
                "status": {
                    "description": "The status of the condition.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "observedGeneration": {
                    "description": "The metadata.generation that the condition describes.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
                "lastTransitionTime": {
                    "description": "The time of the last change of status.",
                    "type": "string",
                    "format": "date-time",
                },
                "reason": {
                    "description": "The reason for programs, in CamelCase.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "description": "The reason for people.",
                    "type": "string",
                    "maxLength": 32768,
                },
            },
        },
    })
}
