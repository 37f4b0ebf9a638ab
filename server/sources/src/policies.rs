//! Converts flags and registries into the router's policies. Without I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_apimachinery::{ClusterName, InvalidResourcePattern, ItemResourceVersions, Partial, ResourcePattern};
use tributary_crds::ResourceRegistry;
use tributary_router::{Policies, ResourcePolicy};

use crate::ClusterSpec;

/// The command line's settings for resources.
#[derive(Clone, Debug, Default)]
pub struct PolicyFlags {
    /// The rule for answers that lack a cluster. Applies to resources without a registry.
    pub partial: Partial,
    /// The value of `--item-resource-versions`.
    pub item_resource_versions: ItemResourceVersions,
    /// The value of `--create-in`.
    pub create_in: Option<ClusterName>,
    /// The values of `--resources`.
    pub resources: Vec<String>,
}

/// The reason why flags and registries cannot be applied.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// `--create-in` or a registry's placement names an unknown cluster.
    #[error("{field} {cluster:?}: there is no such cluster; the clusters are {existing}")]
    UnknownCluster {
        /// The flag or the registry field with the unknown cluster.
        field: String,
        /// The unknown cluster name.
        cluster: String,
        /// The names of the configured clusters.
        existing: String,
    },
    /// A resource pattern is invalid.
    #[error("{field}")]
    Resource {
        /// The flag or the registry field with the invalid pattern.
        field: String,
        /// The error, which describes valid patterns.
        #[source]
        source: InvalidResourcePattern,
    },
}

/// The labels of each configured cluster, for the selectors of registries.
pub type KnownClusters = BTreeMap<ClusterName, BTreeMap<String, String>>;

/// Returns the policies of a configuration. `registries` must have the order of their source: the first registry that
/// names a resource applies to it. For a resource that no registry names, the first registry for `*` applies.
///
/// # Errors
/// [`PolicyError`] for the first invalid flag or registry.
pub fn policies(
    flags: &PolicyFlags,
    registries: &[ResourceRegistry],
    clusters: &KnownClusters,
) -> Result<Policies, PolicyError> {
    let default = ResourcePolicy {
        partial: flags.partial,
        item_resource_versions: flags.item_resource_versions,
        placement: flags.create_in.clone(),
        ..ResourcePolicy::default()
    };
    if let Some(cluster) = &flags.create_in {
        known_cluster("--create-in", cluster.as_str(), clusters)?;
    }
    let mut rules = Vec::with_capacity(registries.len());
    for registry in registries {
        rules.push(rule(registry, &default, clusters)?);
    }
    let flagged = patterns("--resources", &flags.resources)?;
    let registered = match (flagged.is_empty(), rules.is_empty()) {
        (false, _) => Some(flagged),
        (true, false) => Some(rules.iter().flat_map(|(patterns, _)| patterns.clone()).collect()),
        (true, true) => None,
    };
    Ok(Policies { default, rules: named_first(rules), registered, ..Policies::default() })
}

/// Removes hub members without an index from all resources with `itemResourceVersions: Integer`, because such versions
/// contain the cluster's index.
pub fn omit_unnumbered(policies: &mut Policies, clusters: &[Arc<ClusterSpec>]) {
    let is_unnumbered = |spec: &&Arc<ClusterSpec>| spec.is_from_hub && spec.index.is_none();
    if !clusters.iter().any(|spec| is_unnumbered(&spec)) {
        return;
    }
    let all = policies.rules.iter_mut().map(|(_, policy)| policy).chain([&mut policies.default]);
    for policy in all.filter(|policy| policy.item_resource_versions == ItemResourceVersions::Integer) {
        let selected = policy.clusters.take();
        let is_selected = |name: &ClusterName| selected.as_ref().is_none_or(|names| names.contains(name));
        let numbered = clusters.iter().filter(|spec| !is_unnumbered(spec) && is_selected(&spec.name));
        policy.clusters = Some(numbered.map(|spec| spec.name.clone()).collect());
    }
}

/// A resource that a flag or a registry names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedResource {
    /// The flag or the registry field with the resource.
    pub field: String,
    /// The pattern of the resource's name.
    pub pattern: ResourcePattern,
}

/// Returns the resources in flags and registries, including duplicates, without `*`.
///
/// # Errors
/// An invalid resource pattern.
pub fn named_resources(
    flags: &PolicyFlags,
    registries: &[ResourceRegistry],
) -> Result<Vec<NamedResource>, PolicyError> {
    let registered = registries.iter().map(|registry| (field_of(registry, "resources"), &registry.spec.resources));
    let mut named = Vec::new();
    for (field, texts) in std::iter::once(("--resources".to_owned(), &flags.resources)).chain(registered) {
        let own = patterns(&field, texts)?.into_iter().filter(|pattern| *pattern != ResourcePattern::All);
        named.extend(own.map(|pattern| NamedResource { field: field.clone(), pattern }));
    }
    Ok(named)
}

fn field_of(registry: &ResourceRegistry, field: &str) -> String {
    let name = registry.metadata.name.as_deref().unwrap_or_default();
    format!("ResourceRegistry {name}: spec.{field}")
}

/// Moves rules for all resources (`*`) to the end of the list, even if their registry also names resources. A registry
/// for all resources must not override a registry for a named resource.
fn named_first(rules: Vec<RegistryPolicy>) -> Vec<RegistryPolicy> {
    let (mut named, mut all) = (Vec::new(), Vec::new());
    for (patterns, policy) in rules {
        let (of_all, names): (Vec<_>, Vec<_>) =
            patterns.into_iter().partition(|pattern| *pattern == ResourcePattern::All);
        named.push((names, policy.clone()));
        all.push((of_all, policy));
    }
    named.append(&mut all);
    named.retain(|(patterns, _)| !patterns.is_empty());
    named
}

type RegistryPolicy = (Vec<ResourcePattern>, ResourcePolicy);

fn rule(
    registry: &ResourceRegistry,
    default: &ResourcePolicy,
    clusters: &KnownClusters,
) -> Result<RegistryPolicy, PolicyError> {
    let spec = &registry.spec;
    let placement = match &spec.placement {
        Some(cluster) => Some(known_cluster(&field_of(registry, "placement"), cluster, clusters)?),
        None => default.placement.clone(),
    };
    let selected = clusters.iter().filter(|(name, labels)| spec.clusters.selects_labeled(name.as_str(), labels));
    let selected = (!spec.clusters.is_all()).then(|| selected.map(|(name, _)| name.clone()).collect());
    let namespaces = (!spec.namespaces.is_empty()).then(|| spec.namespaces.iter().cloned().collect());
    let policy = ResourcePolicy {
        item_resource_versions: spec.item_resource_versions,
        consistency: spec.consistency,
        clusters: selected,
        namespaces,
        partial: spec.partial,
        filtered: spec.filtered,
        names: spec.names,
        placement,
    };
    Ok((patterns(&field_of(registry, "resources"), &spec.resources)?, policy))
}

fn known_cluster(field: &str, cluster: &str, clusters: &KnownClusters) -> Result<ClusterName, PolicyError> {
    clusters.keys().find(|known| known.as_str() == cluster).cloned().ok_or_else(|| PolicyError::UnknownCluster {
        field: field.to_owned(),
        cluster: cluster.to_owned(),
        existing: clusters.keys().map(ClusterName::as_str).collect::<Vec<_>>().join(", "),
    })
}

fn patterns(field: &str, texts: &[String]) -> Result<Vec<ResourcePattern>, PolicyError> {
    texts.iter().map(|text| pattern(field, text.trim())).collect()
}

fn pattern(field: &str, text: &str) -> Result<ResourcePattern, PolicyError> {
    text.parse().map_err(|source| PolicyError::Resource { field: field.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::{Consistency, Filtered, GroupVersionResource, Names};
    use tributary_crds::ResourceRegistrySpec;

    use super::*;

    fn personal() -> PolicyFlags {
        PolicyFlags { partial: Partial::Allow, ..PolicyFlags::default() }
    }

    fn created_in(cluster: &str) -> PolicyFlags {
        PolicyFlags { create_in: Some(ClusterName::new(cluster).unwrap()), ..personal() }
    }

    fn for_resources(patterns: &[&str]) -> PolicyFlags {
        PolicyFlags { resources: patterns.iter().map(|&pattern| pattern.to_owned()).collect(), ..personal() }
    }

    fn clusters() -> KnownClusters {
        let labels = |name: &str| [("continent".to_owned(), name.to_owned())].into();
        ["eu", "us"].map(|name| (ClusterName::new(name).unwrap(), labels(name))).into()
    }

    fn registry(spec: serde_json::Value) -> ResourceRegistry {
        let spec: ResourceRegistrySpec = serde_json::from_value(spec).unwrap();
        ResourceRegistry::new("main", spec)
    }

    #[test]
    fn flags_and_registries_become_resource_policies() {
        let pods = GroupVersionResource::new("", "v1", "pods");
        let deployments = GroupVersionResource::new("apps", "v1", "deployments");
        let none = policies(&personal(), &[], &clusters()).unwrap();
        assert_eq!(none.policy_for(&pods), &ResourcePolicy { partial: Partial::Allow, ..ResourcePolicy::default() });
        assert!(none.is_registered(&pods));
        let PolicyFlags { resources, .. } = for_resources(&["pods", "statefulsets.apps"]);
        let flags = PolicyFlags { partial: Partial::Deny, resources, ..created_in("us") };
        let flagged = policies(&flags, &[], &clusters()).unwrap();
        assert_eq!(flagged.policy_for(&pods).placement.as_ref().unwrap().as_str(), "us");
        assert_eq!(flagged.policy_for(&pods).partial, Partial::Deny);
        assert!(flagged.is_registered(&pods) && !flagged.is_registered(&deployments));
        let rules =
            [registry(serde_json::json!({"resources": ["deployments.apps"], "partial": "Deny", "placement": "eu"}))];
        let ruled = policies(&created_in("us"), &rules, &clusters()).unwrap();
        assert_eq!(ruled.policy_for(&deployments).placement.as_ref().unwrap().as_str(), "eu");
        assert_eq!(ruled.policy_for(&deployments).partial, Partial::Deny);
        assert_eq!(ruled.policy_for(&pods).partial, Partial::Allow);
        assert!(!ruled.is_registered(&pods) && ruled.is_registered(&deployments));
    }

    #[test]
    fn registry_of_a_named_resource_takes_precedence_over_the_wildcard() {
        let resources = |name: &str| GroupVersionResource::new("", "v1", name);
        let all = || registry(serde_json::json!({"resources": ["*"], "partial": "Allow"}));
        let pods = || registry(serde_json::json!({"resources": ["pods"], "partial": "Deny"}));
        for registries in [[all(), pods()], [pods(), all()]] {
            let ruled = policies(&personal(), &registries, &clusters()).unwrap();
            assert_eq!(ruled.policy_for(&resources("pods")).partial, Partial::Deny);
            assert_eq!(ruled.policy_for(&resources("services")).partial, Partial::Allow);
        }
        // `*` has the lowest precedence, even in a registry that also names a resource.
        let both = registry(serde_json::json!({"resources": ["services", "*"], "partial": "Allow"}));
        let ruled = policies(&personal(), &[both, pods()], &clusters()).unwrap();
        let partial = ["pods", "services", "nodes"].map(|name| ruled.policy_for(&resources(name)).partial);
        assert_eq!(partial, [Partial::Deny, Partial::Allow, Partial::Allow]);
    }

    #[test]
    fn resource_registry_fields_become_policy() {
        let pods = GroupVersionResource::new("", "v1", "pods");
        let policy = |spec| policies(&personal(), &[registry(spec)], &clusters()).unwrap().policy_for(&pods).clone();
        let nothing = policy(serde_json::json!({"resources": ["pods"]}));
        assert_eq!(nothing, ResourcePolicy { partial: Partial::Deny, ..ResourcePolicy::default() });
        let all = policy(serde_json::json!({
            "resources": ["pods"], "itemResourceVersions": "Integer", "consistency": "Quorum", "names": "Unique", "namespaces": ["a", "b"], "filtered": "Deny",
            "clusters": {"selector": {"matchLabels": {"continent": "us"}}},
        }));
        assert_eq!(all.item_resource_versions, ItemResourceVersions::Integer);
        assert_eq!(all.consistency, Consistency::Quorum);
        assert_eq!((all.names, all.filtered), (Names::Unique, Filtered::Deny));
        assert_eq!(all.clusters, Some(["us".parse().unwrap()].into()));
        assert_eq!(all.namespaces, Some(["a".to_owned(), "b".to_owned()].into()));
        let named = policy(serde_json::json!({"resources": ["pods"], "clusters": {"names": ["eu", "us"]}}));
        assert_eq!(named.clusters.unwrap().len(), 2, "a cluster that comes later is not selected");
    }

    #[test]
    fn configured_resources_are_listed_with_their_flag_or_field() {
        let rest = registry(serde_json::json!({"resources": ["*", "apps/v1/deployments"]}));
        let named = named_resources(&for_resources(&["pods", "services"]), &[rest]).unwrap();
        let told: Vec<_> = named.iter().map(|own| format!("{} {}", own.field, own.pattern)).collect();
        let registered = "ResourceRegistry main: spec.resources apps/v1/deployments";
        assert_eq!(told, ["--resources pods", "--resources services", registered]);
        assert_eq!(named_resources(&for_resources(&["*"]), &[]).unwrap(), []);
    }

    #[test]
    fn invalid_resource_policies_are_refused() {
        let refused = |flags: &PolicyFlags, rules: &[ResourceRegistry]| {
            let error = policies(flags, rules, &clusters()).unwrap_err();
            tributary_apimachinery::explain(&error)
        };
        let error = refused(&created_in("asia"), &[]);
        assert!(error.contains("--create-in \"asia\"") && error.contains("eu, us"), "{error}");
        let error = refused(&for_resources(&["Pods!"]), &[]);
        assert!(error.contains("--resources: \"Pods!\""), "{error}");
        for (spec, field) in [
            (serde_json::json!({"resources": ["*", "Pods!"]}), "spec.resources: \"Pods!\""),
            (serde_json::json!({"resources": ["*"], "placement": "asia"}), "\"asia\": there is no such cluster"),
        ] {
            let error = refused(&personal(), &[registry(spec)]);
            assert!(error.contains("ResourceRegistry main") && error.contains(field), "{error}");
        }
    }
}
