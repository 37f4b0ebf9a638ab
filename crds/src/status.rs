//! What is made of a configuration object, for a hub cluster that shows it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// What is made of the object. Written where the object is read from a hub cluster; passed over in files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigurationStatus {
    /// The `metadata.generation` that the conditions are about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`: the object is valid and in use. `Ready`, of an UpstreamCluster: the cluster answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// The schema of `metav1.Condition` (apimachinery `pkg/apis/meta/v1/types.go`), a map by type. Written out as that of
/// label selectors is.
fn conditions_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "description": "One thing that is true of the object, or is not.",
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {
                    "description": "What it is about, in CamelCase.",
                    "type": "string",
                    "maxLength": 316,
                },
                "status": {
                    "description": "Whether it is true.",
                    "type": "string",
                    "enum": ["True", "False", "Unknown"],
                },
                "observedGeneration": {
                    "description": "The metadata.generation that it is about.",
                    "type": "integer",
                    "format": "int64",
                    "minimum": 0,
                },
                "lastTransitionTime": {
                    "description": "When the status changed last.",
                    "type": "string",
                    "format": "date-time",
                },
                "reason": {
                    "description": "Why, in one CamelCase word for programs.",
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "description": "Why, for people.",
                    "type": "string",
                    "maxLength": 32768,
                },
            },
        },
    })
}
