//! Karmada's ResourceRegistries as registries of Tributary. Source: karmada-io/karmada `pkg/apis/search/v1alpha1`, and
//! `ClusterMatches` in `pkg/util/clusterselect.go`.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};
use tributary_apimachinery::{Object, ResourcePattern};
use tributary_crds::{ClusterSelection, ResourceRegistry, ResourceRegistrySpec, registry_conflict};

use crate::SourceRefusal;
use crate::item::SourceItem;
use crate::karmada::{PROVIDER, REGION, ZONE, ZONE_SEPARATOR};
use crate::object_metadata::{decode_object, or_null};

/// Maximum number of resources of a ResourceRegistry. Each request compares its resource with the registered ones.
const SELECTORS_MAX: usize = 500;

/// The clusters and resources of a ResourceRegistry of Karmada.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KarmadaRegistry {
    /// The name of the object.
    pub name: String,
    #[serde(deserialize_with = "or_null")]
    target_cluster: TargetCluster,
    #[serde(deserialize_with = "or_null")]
    resource_selectors: Vec<ResourceSelector>,
    backend_store: Option<serde_json::Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TargetCluster {
    label_selector: Option<LabelSelector>,
    field_selector: Option<FieldSelector>,
    #[serde(deserialize_with = "or_null")]
    cluster_names: Vec<String>,
    #[serde(rename = "exclude", deserialize_with = "or_null")]
    excluded: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FieldSelector {
    #[serde(deserialize_with = "or_null")]
    match_expressions: Vec<FieldRequirement>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct FieldRequirement {
    key: String,
    operator: String,
    #[serde(deserialize_with = "or_null")]
    values: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ResourceSelector {
    api_version: String,
    kind: String,
    namespace: String,
}

/// The clusters and namespaces in which a resource is registered.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct RegisteredScope {
    clusters: BTreeSet<String>,
    /// `None` stands for all namespaces.
    namespaces: Option<BTreeSet<String>>,
}

impl KarmadaRegistry {
    /// Reads a ResourceRegistry.
    ///
    /// # Errors
    /// The object has an unexpected form.
    pub fn read(object: &Object) -> Result<Self, SourceRefusal> {
        #[derive(Deserialize)]
        struct RegistryDocument {
            #[serde(default, deserialize_with = "or_null")]
            spec: KarmadaRegistry,
        }
        let document: RegistryDocument = decode_object(object, &format!("ResourceRegistry {}", object.name()))?;
        let count = document.spec.resource_selectors.len();
        if count > SELECTORS_MAX {
            let message = format!(
                "ResourceRegistry {} of Karmada: spec.resourceSelectors has {count} entries, and at most {SELECTORS_MAX} \
                 are allowed. Split the object.",
                object.name()
            );
            return Err(SourceRefusal::new("Invalid", message));
        }
        Ok(Self { name: object.name().to_owned(), ..document.spec })
    }

    /// Returns the settings that Tributary does not support, with the consequence.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let name = &self.name;
        if self.backend_store.is_some() {
            problems.push(format!(
                "ResourceRegistry {name} of Karmada: spec.backendStore has no effect, because Tributary keeps objects in \
                 memory only; karmada-search can keep its store"
            ));
        }
        for ResourceSelector { api_version, kind, .. } in &self.resource_selectors {
            if resource_of(api_version, kind).is_none() {
                problems.push(format!(
                    "ResourceRegistry {name} of Karmada: spec.resourceSelectors: {kind:?} of {api_version:?} is not \
                     registered, because it is no kind of an API group"
                ));
            }
        }
        problems
    }

    /// Returns whether the registry selects a Cluster of Karmada. Without any field, it selects all Clusters.
    fn selects(&self, cluster: &SourceItem) -> bool {
        let TargetCluster { label_selector, field_selector, cluster_names, excluded } = &self.target_cluster;
        if excluded.contains(&cluster.foreign_name) {
            return false;
        }
        let labels = &cluster.object.labels;
        let labelled = label_selector.clone().is_none_or(|selector| {
            ClusterSelection { selector: Some(selector), ..ClusterSelection::default() }.selects_labeled("", labels)
        });
        let located = field_selector.as_ref().is_none_or(|selector| {
            selector.match_expressions.iter().all(|requirement| requirement.matches(&cluster.labels))
        });
        let named = cluster_names.is_empty() || cluster_names.contains(&cluster.foreign_name);
        labelled && located && named
    }
}

impl FieldRequirement {
    /// Returns whether the location of a cluster meets the requirement. No cluster meets an unknown one.
    fn matches(&self, location: &BTreeMap<String, String>) -> bool {
        let label = match self.key.as_str() {
            "provider" => PROVIDER,
            "region" => REGION,
            "zone" => ZONE,
            _ => return false,
        };
        // A cluster can have several zones, and each must meet the requirement.
        let places: Vec<&str> =
            location.get(label).map(|text| text.split(ZONE_SEPARATOR).collect()).unwrap_or_default();
        let is_named = |place: &&str| self.values.iter().any(|value| value == place);
        match self.operator.as_str() {
            "In" => !places.is_empty() && places.iter().all(is_named),
            "NotIn" => !places.iter().any(is_named),
            "Exists" => !places.is_empty(),
            "DoesNotExist" => places.is_empty(),
            _ => false,
        }
    }
}

/// Returns registries for the resources of Karmada's ResourceRegistries in these members. Several ResourceRegistries
/// with one resource count together, as in Karmada. A resource that `own` registries name is left out.
pub fn convert_karmada_registries(
    karmada: &[KarmadaRegistry],
    clusters: &[&SourceItem],
    own: &[ResourceRegistry],
) -> Vec<ResourceRegistry> {
    let mut scopes: BTreeMap<String, RegisteredScope> = BTreeMap::new();
    for registry in karmada {
        let selected: BTreeSet<String> = clusters
            .iter()
            .filter(|cluster| registry.selects(cluster))
            .map(|cluster| cluster.name.to_string())
            .collect();
        for ResourceSelector { api_version, kind, namespace } in &registry.resource_selectors {
            let Some(resource) = resource_of(api_version, kind).filter(|_| !selected.is_empty()) else { continue };
            let namespaces = Some(BTreeSet::from([namespace.clone()])).filter(|_| !namespace.is_empty());
            let scope = scopes
                .entry(resource)
                .or_insert_with(|| RegisteredScope { namespaces: Some(BTreeSet::new()), ..RegisteredScope::default() });
            scope.clusters.extend(selected.iter().cloned());
            scope.namespaces = scope.namespaces.take().zip(namespaces).map(|(own, more)| &own | &more);
        }
    }
    scopes.retain(|resource, scope| {
        let alone = make_registry("", BTreeSet::from([resource.clone()]), scope);
        let is_named = |other: &ResourceRegistry| {
            other.spec.resources.iter().any(|own| own == "*") || registry_conflict(&alone, other).is_some()
        };
        !own.iter().any(is_named)
    });
    let mut by_scope: BTreeMap<RegisteredScope, BTreeSet<String>> = BTreeMap::new();
    for (resource, scope) in scopes {
        by_scope.entry(scope).or_default().insert(resource);
    }
    let numbered = by_scope.into_iter().enumerate();
    numbered.map(|(at, (scope, resources))| make_registry(&format!("karmada-{}", at + 1), resources, &scope)).collect()
}

fn make_registry(name: &str, resources: BTreeSet<String>, scope: &RegisteredScope) -> ResourceRegistry {
    let spec = ResourceRegistrySpec {
        resources: resources.into_iter().collect(),
        clusters: ClusterSelection { names: scope.clusters.iter().cloned().collect(), ..ClusterSelection::default() },
        namespaces: scope.namespaces.iter().flatten().cloned().collect(),
        ..ResourceRegistrySpec::default()
    };
    ResourceRegistry::new(name, spec)
}

/// Returns the resource of a kind in the form of a registry: `pods`, `deployments.apps`. The plural is that of
/// `UnsafeGuessKindToResource` in apimachinery `pkg/api/meta/restmapper.go`, but `gateways` for Gateway. Karmada asks
/// its control plane for the plural, so a kind with an irregular plural has no effect here.
fn resource_of(api_version: &str, kind: &str) -> Option<String> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let is_group = |text: &str| {
        text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
    };
    let is_kind = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !is_kind || !is_group(group) || group.starts_with(['-', '.']) || group.ends_with(['-', '.']) {
        return None;
    }
    let singular = kind.to_ascii_lowercase();
    let plural = match singular.as_str() {
        "endpoints" => singular,
        word if word.ends_with('s') => format!("{word}es"),
        word if word.ends_with('y') && !["ay", "ey", "oy", "uy"].iter().any(|end| word.ends_with(end)) => {
            format!("{}ies", &word[..word.len() - 1])
        }
        word => format!("{word}s"),
    };
    let resource = if group.is_empty() { plural } else { format!("{plural}.{group}") };
    // A resource that no registry may name would refuse the members of the registry.
    resource.parse::<ResourcePattern>().is_ok().then_some(resource)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tributary_apimachinery::ObjectDecoder;

    use super::*;
    use crate::{ItemObject, SourceKind};

    fn registry(spec: &Value) -> KarmadaRegistry {
        let document = json!({"apiVersion": "search.karmada.io/v1alpha1", "kind": "ResourceRegistry",
            "metadata": {"name": "all", "uid": "u", "resourceVersion": "1"}, "spec": spec});
        let decoder = ObjectDecoder::new("search.karmada.io/v1alpha1", "ResourceRegistry", std::sync::Arc::default());
        KarmadaRegistry::read(&decoder.decode(document.to_string().as_bytes()).unwrap()).unwrap()
    }

    fn cluster(name: &str, labels: &[(&str, &str)], location: &[(&str, &str)]) -> SourceItem {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        SourceItem {
            list: SourceKind::KarmadaClusters,
            object: ItemObject { labels: map(labels), ..ItemObject::default() },
            foreign_name: name.to_owned(),
            name: format!("m-{name}").parse().unwrap(),
            labels: map(location),
            spec: tributary_crds::UpstreamClusterSpec::default(),
            command: None,
            not_ready: None,
            identity: tributary_authentication::IdentityPolicy::default(),
            authorize: tributary_crds::cluster_source::DoorAuthorization::Proxy,
            uid: None,
            impersonator: None,
            proxy_headers: BTreeMap::new(),
            alias: None,
            scope: None,
            warnings: Vec::new(),
        }
    }

    fn pods(target: Value) -> KarmadaRegistry {
        registry(&json!({"targetCluster": target, "resourceSelectors": [{"apiVersion": "v1", "kind": "Pod"}]}))
    }

    #[test]
    fn target_cluster_selects_members_by_karmadas_names_labels_and_fields() {
        let eu = cluster("eu", &[("tier", "prod")], &[(REGION, "west"), (ZONE, "w1__w2"), (PROVIDER, "p")]);
        let us = cluster("us", &[("tier", "test")], &[(REGION, "east")]);
        let field = |key: &str, operator: &str, values: &[&str]| json!({"fieldSelector": {"matchExpressions": [{"key": key, "operator": operator, "values": values}]}});
        for (target, expected) in [
            (json!({}), &["m-eu", "m-us"][..]),
            (json!({"clusterNames": ["eu"]}), &["m-eu"]),
            (json!({"clusterNames": ["m-eu"]}), &[]),
            (json!({"exclude": ["eu"]}), &["m-us"]),
            (json!({"clusterNames": ["eu", "us"], "exclude": ["us"]}), &["m-eu"]),
            (json!({"labelSelector": {"matchLabels": {"tier": "test"}}}), &["m-us"]),
            (json!({"labelSelector": {"matchLabels": {"tier": "none"}}}), &[]),
            (field("region", "In", &["west"]), &["m-eu"]),
            (field("region", "NotIn", &["west"]), &["m-us"]),
            (field("zone", "In", &["w1"]), &[]),
            (field("zone", "In", &["w1", "w2", "w3"]), &["m-eu"]),
            (field("zone", "NotIn", &["w2"]), &["m-us"]),
            (field("provider", "Exists", &[]), &["m-eu"]),
            (field("provider", "DoesNotExist", &[]), &["m-us"]),
            (field("name", "Exists", &[]), &[]),
        ] {
            let converted = convert_karmada_registries(&[pods(target.clone())], &[&eu, &us], &[]);
            let names = converted.first().map(|own| own.spec.clusters.names.clone()).unwrap_or_default();
            assert_eq!(names, expected, "{target}");
            // An empty selection would stand for all members.
            assert_eq!(converted.is_empty(), expected.is_empty(), "{target}");
        }
    }

    #[test]
    fn registries_of_one_resource_count_together_and_leave_out_tributarys_own() {
        let clusters = [cluster("eu", &[], &[]), cluster("us", &[], &[])];
        let clusters: Vec<&SourceItem> = clusters.iter().collect();
        let selectors =
            |selectors: Value| json!({"targetCluster": {"clusterNames": ["eu"]}, "resourceSelectors": selectors});
        let first = registry(&selectors(json!([
            {"apiVersion": "v1", "kind": "Pod", "namespace": "shop"},
            {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop"},
            {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"},
            {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"},
            {"apiVersion": "v1", "kind": "Endpoints"},
        ])));
        let second = registry(&json!({"resourceSelectors": [
            {"apiVersion": "v1", "kind": "Pod", "namespace": "other"}, {"apiVersion": "apps/v1", "kind": "Deployment"},
        ]}));
        let converted = |own: &[ResourceRegistry]| -> Vec<Value> {
            let converted = convert_karmada_registries(&[first.clone(), second.clone()], &clusters, own);
            converted
                .iter()
                .map(|own| json!([own.spec.resources, own.spec.clusters.names, own.spec.namespaces]))
                .collect()
        };
        let both = ["m-eu", "m-us"];
        let expected = [
            json!([["endpoints", "ingresses.networking.k8s.io", "networkpolicies.networking.k8s.io"], ["m-eu"], []]),
            json!([["deployments.apps"], both, []]),
            json!([["pods"], both, ["other", "shop"]]),
        ];
        assert_eq!(converted(&[]), expected);
        let own = |resource: &str| {
            let spec = ResourceRegistrySpec { resources: vec![resource.to_owned()], ..ResourceRegistrySpec::default() };
            ResourceRegistry::new("own", spec)
        };
        assert_eq!(converted(&[own("apps/v1/deployments")]).len(), 2);
        assert!(converted(&[own("*")]).is_empty());
    }

    #[test]
    fn setting_without_effect_is_a_problem() {
        assert!(pods(json!({})).problems().is_empty());
        let store = registry(
            &json!({"backendStore": {"openSearch": {"addresses": ["https://s"]}}, "resourceSelectors": [
                {"apiVersion": "v1", "kind": ""}, {"apiVersion": "A_B/v1", "kind": "X"}, {"apiVersion": "v1", "kind": "pods/log"},
                {"apiVersion": "a..b/v1", "kind": "Pod"}, {"apiVersion": "v1", "kind": "k".repeat(64)},
            ]}),
        );
        let problems = store.problems();
        assert_eq!(problems.len(), 6, "{problems:?}");
        assert!(problems[0].contains("spec.backendStore has no effect") && !problems[0].contains("https://s"));
        assert!(convert_karmada_registries(&[store], &[&cluster("eu", &[], &[])], &[]).is_empty());
    }
}
