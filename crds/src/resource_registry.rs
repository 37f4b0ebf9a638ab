//! `ResourceRegistry`: the resources that are cached, and how they are served.

#![expect(clippy::duplicated_attributes, reason = "every printer column has a `type_` and a `json_path` of its own")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use tributary_apimachinery::{Consistency, Filtered, ItemResourceVersions, Names, Partial};

use crate::{ConfigurationStatus, UpstreamCluster};

/// The resources that are cached, and how they are served.
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
    doc = "The resources that Tributary caches, and how they are served.",
    printcolumn(name = "Resources", type_ = "string", json_path = ".spec.resources"),
    printcolumn(name = "Versions", type_ = "string", json_path = ".spec.itemResourceVersions"),
    printcolumn(name = "Consistency", type_ = "string", json_path = ".spec.consistency"),
    printcolumn(name = "Partial", type_ = "string", json_path = ".spec.partial"),
    printcolumn(name = "Placement", type_ = "string", json_path = ".spec.placement", priority = 1),
    printcolumn(name = "Accepted", type_ = "string", json_path = ".status.conditions[?(@.type=='Accepted')].status"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRegistrySpec {
    /// The registered resources: `*` for every resource that can be listed and watched, `pods` for the core group,
    /// `deployments.apps`, or `apps/v1/deployments` for a single version.
    #[schemars(length(min = 1), inner(regex(pattern = r"^(\*|[a-z0-9]([-a-z0-9./]*[a-z0-9])?)$")))]
    pub resources: Vec<String>,
    /// The clusters in merged lists and watches. All clusters if unset. Warnings name the omitted clusters; their
    /// objects are available by name and under `/clusters/<name>`.
    #[serde(default, skip_serializing_if = "ClusterSelection::is_all")]
    pub clusters: ClusterSelection,
    /// The namespaces whose objects are cached. All if empty. Lists of other namespaces and of all namespaces are
    /// forwarded to the clusters, and watches of them are refused. Ignored for cluster-scoped resources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")))]
    pub namespaces: Vec<String>,
    /// The form of the resourceVersion of single objects.
    #[serde(default)]
    pub item_resource_versions: ItemResourceVersions,
    /// The data that a read without a resourceVersion returns.
    #[serde(default)]
    pub consistency: Consistency,
    /// Whether a list or watch may omit clusters that have never answered.
    #[serde(default)]
    pub partial: Partial,
    /// The answer to a list or watch in shared mode if the user may list only some of the objects in a cluster.
    /// `Allow`: the permitted objects, with a Warning. `Deny`: 403.
    #[serde(default)]
    pub filtered: Filtered,
    /// Whether several clusters can have an object with the same name. `Unique`: they cannot, so a write goes to the
    /// only known object of the name, even while some clusters cannot be asked. `Repeated`: such a write is refused.
    #[serde(default)]
    pub names: Names,
    /// The cluster for new objects if no other rule selects a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<String>,
}

/// A selection of clusters by name, by labels or by a scheduler.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSelection {
    /// Clusters by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Clusters by label. With `names`, a cluster that matches either is selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "label_selector_schema")]
    pub selector: Option<LabelSelector>,
    /// Clusters that a scheduler has chosen: members of a ClusterSource with `clusterProfiles`. Only in a hub. With
    /// `names` or `selector`, a cluster that matches any of them is selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement_decision: Option<PlacementDecisionReference>,
}

/// The slices of a decision: PlacementDecisions of `multicluster.x-k8s.io/v1alpha1`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlacementDecisionReference {
    /// The namespace of the slices.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The value of the label `multicluster.x-k8s.io/decision-key` of each slice. A decision with a single slice may
    /// have this name in place of the label.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// Returns the schema of a [`LabelSelector`]. The schema is written by hand, because the feature of `k8s-openapi` that
/// derives schemas for all types makes a cold build slower.
pub(crate) fn label_selector_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["object", "null"],
        "properties": {
            "matchLabels": {
                "description": "Labels that a cluster must have, with these values.",
                "type": "object",
                "additionalProperties": { "type": "string" },
            },
            "matchExpressions": {
                "description": "Further requirements for the labels of a cluster. All must be met.",
                "type": "array",
                // kube-apiserver estimates the cost of a validation rule from this maximum.
                "maxItems": 64,
                "items": {
                    "description": "A requirement for a label.",
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": { "description": "The key of the label.", "type": "string" },
                        "operator": {
                            "description": "The relation between the label and the values.",
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "Values for In and NotIn. Must be empty for Exists and DoesNotExist.",
                            "type": "array",
                            "items": { "type": "string" },
                        },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                        "message": "In and NotIn need values; Exists and DoesNotExist take no values",
                    }],
                },
            },
        },
    })
}

impl ClusterSelection {
    /// Returns whether the selection is empty, and therefore selects all clusters.
    pub fn is_all(&self) -> bool {
        self.names.is_empty() && self.selector.is_none() && self.placement_decision.is_none()
    }

    /// Returns whether the selection contains the cluster.
    pub fn selects(&self, cluster: &UpstreamCluster) -> bool {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        self.selects_labeled(name, cluster.metadata.labels.as_ref().unwrap_or(&BTreeMap::new()))
    }

    /// Returns whether the selection contains a cluster with this name and these labels.
    pub fn selects_labeled(&self, name: &str, labels: &BTreeMap<String, String>) -> bool {
        let labeled = |selector| matches(selector, |key| labels.get(key).map(String::as_str));
        self.is_all() || self.names.iter().any(|chosen| chosen == name) || self.selector.as_ref().is_some_and(labeled)
    }
}

/// Returns whether labels meet every requirement of a selector. No label meets a requirement with an unknown operator.
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
    fn cluster_selection_matches_by_name_or_label() {
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
            (r#"{"placementDecision":{"namespace":"fleet","key":"k"}}"#, false),
            (r#"{"names":["eu"],"placementDecision":{"namespace":"fleet","key":"k"}}"#, true),
        ] {
            let selection: ClusterSelection = serde_json::from_str(selection).unwrap();
            assert_eq!(selection.selects(&cluster), expected, "{selection:?}");
        }
    }
}
