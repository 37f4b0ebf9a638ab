//! `ResourceRegistry`: which resources of which clusters are served from memory, and how.

#![expect(clippy::duplicated_attributes, reason = "every printer column has a `type_` and a `json_path` of its own")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use tributary_apimachinery::{Consistency, Filtered, ItemResourceVersions, Names, Partial};

use crate::{ConfigurationStatus, UpstreamCluster};

/// Which resources of which clusters are served from memory, and how.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tributary.dev",
    version = "v1alpha1",
    kind = "ResourceRegistry",
    plural = "resourceregistries",
    shortname = "rr",
    category = "tributary",
    derive = "PartialEq",
    status = "ConfigurationStatus",
    doc = "Which resources of which clusters are served from memory, and how.",
    printcolumn(name = "Resources", type_ = "string", json_path = ".spec.resources"),
    printcolumn(name = "Versions", type_ = "string", json_path = ".spec.itemResourceVersions"),
    printcolumn(name = "Consistency", type_ = "string", json_path = ".spec.consistency"),
    printcolumn(name = "Partial", type_ = "string", json_path = ".spec.partial"),
    printcolumn(name = "Placement", type_ = "string", json_path = ".spec.placement", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRegistrySpec {
    /// The resources: `*` for every one that can be listed and watched, `pods` of the core group, `deployments.apps`,
    /// or `apps/v1/deployments` in one version.
    #[schemars(length(min = 1), inner(regex(pattern = r"^(\*|[a-z0-9]([-a-z0-9./]*[a-z0-9])?)$")))]
    pub resources: Vec<String>,
    /// The clusters whose objects make up the merged lists and watches; all of them if missing. Warnings name those
    /// that are left out; their objects are found by name, and under `/clusters/<name>`.
    #[serde(default, skip_serializing_if = "ClusterSelection::is_all")]
    pub clusters: ClusterSelection,
    /// The namespaces whose objects are held in memory; all of them if empty. Lists of other namespaces, and of all
    /// together, are asked of the clusters each time; they cannot be watched.
    /// Ignored for resources without namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")))]
    pub namespaces: Vec<String>,
    /// The form of the resourceVersion that single objects carry.
    #[serde(default)]
    pub item_resource_versions: ItemResourceVersions,
    /// What reads without a resourceVersion contain.
    #[serde(default)]
    pub consistency: Consistency,
    /// Whether a list or watch may leave out clusters that have never answered.
    #[serde(default)]
    pub partial: Partial,
    /// What happens where a user may list some of the objects in a cluster and not all of them, where many users are
    /// served. `Allow`: the list has what they may list, with a Warning. `Deny`: the list or watch is 403.
    #[serde(default)]
    pub filtered: Filtered,
    /// Whether clusters may have an object of the same name each. `Unique`: no two clusters have an object of one name,
    /// so that a name found once is meant, also while other clusters cannot be asked. `Repeated`: such a write is
    /// refused.
    #[serde(default)]
    pub names: Names,
    /// The cluster for new objects for which nothing else decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
}

/// A choice of clusters: those named, and those whose labels match.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSelection {
    /// Clusters by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Clusters by their labels. Where `names` is given too, clusters that match either are chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector_schema")]
    pub selector: Option<LabelSelector>,
}

/// The schema of a [`LabelSelector`]. With the feature that derives schemas for all types of Kubernetes a cold build
/// takes longer, and this is the only one that is needed.
fn label_selector_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["object", "null"],
        "properties": {
            "matchLabels": {
                "description": "Labels that a cluster must have, each with this value.",
                "type": "object",
                "additionalProperties": { "type": "string" },
            },
            "matchExpressions": {
                "description": "What else must be true of a cluster's labels: every requirement must be met.",
                "type": "array",
                // What a rule may cost is reckoned by how many it may be asked of.
                "maxItems": 64,
                "items": {
                    "description": "What must be true of one label.",
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "description": "The label's key.", "type": "string" },
                        "operator": {
                            "description": "What is asked of the label.",
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "The values for In and NotIn. Exists and DoesNotExist have none.",
                            "type": "array",
                            "items": { "type": "string" },
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                        "message": "In and NotIn need values, Exists and DoesNotExist have none",
                    }],
                },
            },
        },
    })
}

impl ClusterSelection {
    /// Whether this is the choice of all clusters, which an empty one is.
    pub fn is_all(&self) -> bool {
        self.names.is_empty() && self.selector.is_none()
    }

    /// Whether the cluster is chosen.
    pub fn selects(&self, cluster: &UpstreamCluster) -> bool {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        self.selects_labeled(name, cluster.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()))
    }

    /// Whether the cluster of this name and these labels is chosen.
    pub fn selects_labeled(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let labeled = |selector| matches(selector, |key| labels.get(key).map(String::as_str));
        self.is_all() || self.names.iter().any(|chosen| chosen == name) || self.selector.as_ref().is_some_and(labeled)
    }
}

/// Whether labels satisfy every requirement of a selector. An unknown operator is satisfied by nothing.
fn matches<'a>(selector: &LabelSelector, label: impl Fn(&str) -> Option<&'a str>) -> bool {
    let exact = selector.match_labels.iter().flatten().all(|(key, value)| label(key) == Some(value));
    exact
        && selector.match_expressions.iter().flatten().all(|requirement| {
            let value = label(&requirement.key);
            let listed = value.is_some_and(|value| requirement.values.iter().flatten().any(|one| one == value));
            match &*requirement.operator {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::UpstreamClusterSpec;

    #[test]
    fn selects_by_name_or_label() {
        let mut cluster = UpstreamCluster::new("eu", UpstreamClusterSpec::default());
        cluster.metadata.labels = Some([("region".to_owned(), "europe".to_owned())].into());
        for (selection, expected) in [
            ("{}", true),
            (r#"{"names":["eu"]}"#, true),
            (r#"{"names":["us"]}"#, false),
            (r#"{"selector":{"matchLabels":{"region":"europe"}}}"#, true),
            (r#"{"selector":{}}"#, true),
            (r#"{"names":["us"],"selector":{"matchLabels":{"region":"asia"}}}"#, false),
            (r#"{"selector":{"matchExpressions":[{"key":"region","operator":"In","values":["a","europe"]}]}}"#, true),
            (r#"{"selector":{"matchExpressions":[{"key":"region","operator":"NotIn","values":["europe"]}]}}"#, false),
            (r#"{"selector":{"matchExpressions":[{"key":"zone","operator":"NotIn","values":["a"]}]}}"#, true),
            (r#"{"selector":{"matchExpressions":[{"key":"zone","operator":"Exists"}]}}"#, false),
            (r#"{"selector":{"matchExpressions":[{"key":"zone","operator":"DoesNotExist"}]}}"#, true),
            (r#"{"selector":{"matchExpressions":[{"key":"region","operator":"Like"}]}}"#, false),
        ] {
            let selection: ClusterSelection = serde_json::from_str(selection).unwrap();
            assert_eq!(selection.selects(&cluster), expected, "{selection:?}");
        }
    }
}
