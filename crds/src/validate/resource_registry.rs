//! Validation of a ResourceRegistry against the clusters of the configuration.

use tributary_apimachinery::{ClusterName, ResourcePattern};

use super::{Problems, is_integer};
use crate::{ConfigurationObjects, ResourceRegistry, UpstreamCluster};

/// The size of a composite resourceVersion, in bytes of text, above which integer item versions are recommended. 4 KiB:
/// each Event contains the version of its object.
const COMPOSITE_RECOMMENDED_MAX: usize = 4 * 1024;

/// The assumed number of digits of a cluster's resourceVersion. 10: 10¹⁰ writes are about 300 per second for a year.
const RESOURCE_VERSION_DIGITS: usize = 10;

/// Resources that users often name without the group, by group.
const GROUPS: &[(&str, &[&str])] = &[
    ("apps", &["controllerrevisions", "daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("autoscaling", &["horizontalpodautoscalers"]),
    ("batch", &["cronjobs", "jobs"]),
    ("apiextensions.k8s.io", &["customresourcedefinitions"]),
    ("coordination.k8s.io", &["leases"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("networking.k8s.io", &["ingressclasses", "ingresses", "networkpolicies"]),
    ("policy", &["poddisruptionbudgets"]),
    ("rbac.authorization.k8s.io", &["clusterrolebindings", "clusterroles", "rolebindings", "roles"]),
    ("scheduling.k8s.io", &["priorityclasses"]),
    ("storage.k8s.io", &["csidrivers", "csinodes", "storageclasses", "volumeattachments"]),
];

pub(super) fn validate(registry: &ResourceRegistry, configuration: &ConfigurationObjects, problems: &mut Problems<'_>) {
    if registry.metadata.name.as_deref().unwrap_or_default().is_empty() {
        problems.error("metadata.name", "is empty; give the registry a name");
    }
    resources(&registry.spec.resources, problems);
    namespaces(&registry.spec.namespaces, problems);
    cluster_names(registry, configuration, problems);
    selector(registry, problems);
    let selected: Vec<&UpstreamCluster> =
        configuration.clusters.iter().filter(|cluster| registry.spec.clusters.selects(cluster)).collect();
    // The slices of a decision are known only at run time.
    if selected.is_empty() && registry.spec.clusters.placement_decision.is_none() {
        problems.warning(
            "spec.clusters",
            "selects no cluster, so every list is empty; name clusters, or change the selector or the clusters' labels",
        );
    }
    placement(registry, &selected, problems);
    versions(registry, &selected, problems);
}

fn resources(resources: &[String], problems: &mut Problems<'_>) {
    if resources.is_empty() {
        problems.error("spec.resources", "is empty; give at least one resource, or \"*\" for all");
    }
    for (index, resource) in resources.iter().enumerate() {
        let field = format!("spec.resources[{index}]");
        match resource.parse::<ResourcePattern>() {
            Err(error) => problems.error(field, error.to_string()),
            Ok(ResourcePattern::All) if resources.len() > 1 => {
                problems.warning(field, "\"*\" includes the other entries; remove them, or remove \"*\"");
            }
            Ok(pattern) => {
                let earlier = resources[..index].iter().find(|other| {
                    other.parse().is_ok_and(|other| other != ResourcePattern::All && pattern.overlaps(&other))
                });
                if let Some(other) = earlier {
                    problems.warning(field, format!("{resource:?} means the same as {other:?}; remove one of them"));
                } else if let Some(group) = missing_group(resource) {
                    problems.error(
                        field,
                        format!("{resource:?} is not a resource of the core group; write \"{resource}.{group}\""),
                    );
                }
            }
        }
    }
}

fn missing_group(resource: &str) -> Option<&'static str> {
    GROUPS.iter().find(|(_, resources)| resources.contains(&resource)).map(|(group, _)| *group)
}

fn namespaces(namespaces: &[String], problems: &mut Problems<'_>) {
    for (index, namespace) in namespaces.iter().enumerate() {
        let field = format!("spec.namespaces[{index}]");
        // A namespace name has the same syntax as a cluster name, except that a namespace can be named `all`.
        if namespace != "all" && ClusterName::new(namespace).is_err() {
            problems.error(
                field,
                format!("{namespace:?} is not a valid namespace; give a DNS-1123 label of 1 to 63 characters, or remove spec.namespaces to select all namespaces"),
            );
        } else if namespaces[..index].contains(namespace) {
            problems.warning(field, format!("{namespace:?} is listed twice; remove one entry"));
        }
    }
}

fn cluster_names(registry: &ResourceRegistry, configuration: &ConfigurationObjects, problems: &mut Problems<'_>) {
    for (index, name) in registry.spec.clusters.names.iter().enumerate() {
        if configuration.cluster(name).is_none() {
            problems.error(
                format!("spec.clusters.names[{index}]"),
                format!("there is no UpstreamCluster {name:?}; {}", known_cluster_names(&configuration.clusters)),
            );
        }
    }
}

/// Returns a list of the known cluster names for a message, at most ten.
fn known_cluster_names(clusters: &[UpstreamCluster]) -> String {
    const SHOWN: usize = 10;
    if clusters.is_empty() {
        return "there are no UpstreamClusters; add one with this name".to_owned();
    }
    let names = clusters.iter().take(SHOWN).map(|cluster| cluster.metadata.name.as_deref().unwrap_or_default());
    let more = clusters.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("allowed are {}{more}", names.collect::<Vec<_>>().join(", "))
}

fn selector(registry: &ResourceRegistry, problems: &mut Problems<'_>) {
    let expressions = registry.spec.clusters.selector.iter().flat_map(|selector| &selector.match_expressions).flatten();
    for (index, requirement) in expressions.enumerate() {
        let field = format!("spec.clusters.selector.matchExpressions[{index}]");
        let has_values = requirement.values.as_ref().is_some_and(|values| !values.is_empty());
        match (&*requirement.operator, has_values) {
            ("In" | "NotIn", true) | ("Exists" | "DoesNotExist", false) => {}
            ("In" | "NotIn", false) => problems.error(
                format!("{field}.values"),
                format!("is empty; {} needs at least one value", requirement.operator),
            ),
            ("Exists" | "DoesNotExist", true) => {
                problems.error(format!("{field}.values"), format!("is given; {} takes no values", requirement.operator))
            }
            (operator, _) => problems.error(
                format!("{field}.operator"),
                format!("{operator:?} is not an operator; allowed are In, NotIn, Exists, DoesNotExist"),
            ),
        }
    }
}

fn placement(registry: &ResourceRegistry, selected: &[&UpstreamCluster], problems: &mut Problems<'_>) {
    // A PlacementDecision selects clusters only in a hub, after the validation.
    let Some(placement) =
        registry.spec.placement.as_ref().filter(|_| registry.spec.clusters.placement_decision.is_none())
    else {
        return;
    };
    if !selected.iter().any(|cluster| cluster.metadata.name.as_ref() == Some(placement)) {
        let selected: Vec<UpstreamCluster> = selected.iter().map(|cluster| (*cluster).clone()).collect();
        problems.error(
            "spec.placement",
            format!(
                "{placement:?} is not among the clusters that spec.clusters selects; {}",
                known_cluster_names(&selected)
            ),
        );
    }
}

fn versions(registry: &ResourceRegistry, selected: &[&UpstreamCluster], problems: &mut Problems<'_>) {
    if is_integer(registry) {
        for cluster in selected.iter().filter(|cluster| cluster.spec.index.is_none()) {
            let name = cluster.metadata.name.as_deref().unwrap_or_default();
            problems.error(
                "spec.itemResourceVersions",
                format!("Integer needs a spec.index in UpstreamCluster {name:?}; give it a number from 0 to 9999 that no cluster has or had, or set Composite"),
            );
        }
        return;
    }
    let size = composite_size(selected);
    if size > COMPOSITE_RECOMMENDED_MAX {
        problems.warning(
            "spec.itemResourceVersions",
            format!(
                "Composite makes resourceVersions of about {size} bytes with {} clusters, above {COMPOSITE_RECOMMENDED_MAX}; Integer is recommended",
                selected.len()
            ),
        );
    }
}

/// Returns the size of the text of a composite resourceVersion of these clusters, in bytes: base64 of
/// `{"name":"1234567890",…}`.
fn composite_size(clusters: &[&UpstreamCluster]) -> usize {
    const PUNCTUATION: usize = r#""":"","#.len();
    let json: usize = clusters
        .iter()
        .map(|cluster| cluster.metadata.name.as_ref().map_or(0, String::len) + PUNCTUATION + RESOURCE_VERSION_DIGITS)
        .sum();
    (json + 1).div_ceil(3) * 4
}
