//! The resources of clusters, and suggestions for unknown names. Without I/O.

use std::collections::BTreeMap;

use kube::core::discovery::v2::APIGroupDiscoveryList;
use tributary_apimachinery::ResourceNames;

use crate::cli::GroupResource;

#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    /// Each served resource, and whether it is namespaced.
    by_resource: BTreeMap<String, bool>,
    /// The singular, plural and short names of each resource.
    names: ResourceNames,
    /// True if resources are missing, because some aggregated API servers do not answer.
    is_incomplete: bool,
}

impl Served {
    /// Reads the served resources from a cluster's discovery.
    pub(super) fn from_discovery(discovered: &[APIGroupDiscoveryList]) -> Self {
        let mut served = Self::default();
        for group in discovered.iter().flat_map(|list| &list.items) {
            let name = group.metadata.as_ref().and_then(|metadata| metadata.name.clone()).unwrap_or_default();
            served.is_incomplete |= group.versions.iter().any(|version| version.freshness.as_deref() == Some("Stale"));
            for own in group.versions.iter().flat_map(|version| &version.resources) {
                let resource = own.resource.clone().unwrap_or_default();
                let full = GroupResource { group: name.clone(), resource: resource.clone() }.to_string();
                served.by_resource.insert(full, own.scope.as_deref() == Some("Namespaced"));
                let kind = own.response_kind.as_ref().and_then(|kind| kind.kind.as_deref());
                let others = own.short_names.iter().map(String::as_str).chain(own.singular_resource.as_deref());
                served.names.add(&name, &resource, others.chain(kind));
            }
        }
        served
    }

    /// Returns whether a resource is namespaced; `None` if the cluster does not serve it.
    pub(super) fn is_namespaced(&self, resource: &GroupResource) -> Option<bool> {
        self.by_resource.get(&resource.to_string()).copied()
    }
}

/// Returns messages about resources that no cluster serves, with suggestions. Returns no messages if discovery of a
/// cluster is missing.
pub(super) fn unknown<'a>(wanted: &[GroupResource], clusters: impl Iterator<Item = Option<&'a Served>>) -> Vec<String> {
    let Some(clusters) = clusters.collect::<Option<Vec<_>>>() else { return Vec::new() };
    if clusters.is_empty() || clusters.iter().any(|served| served.is_incomplete) {
        return Vec::new();
    }
    let is_nowhere = |resource: &&GroupResource| clusters.iter().all(|own| own.is_namespaced(resource).is_none());
    let nowhere = wanted.iter().filter(is_nowhere);
    let mut names = ResourceNames::default();
    clusters.iter().for_each(|own| names.extend(&own.names));
    let told = nowhere.map(|wanted| {
        let meant = names.did_you_mean(&wanted.resource);
        format!("{wanted} is served by no cluster{meant}")
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn served(freshness: &str) -> Served {
        let of = |resource: &str, kind: &str, scope: &str, short: &[&str]| {
            json!({"resource": resource, "responseKind": {"group": "", "version": "v1", "kind": kind}, "scope": scope,
                "singularResource": kind.to_lowercase(), "shortNames": short, "verbs": ["list"]})
        };
        let group = |name: &str, freshness: &str, resources: Value| json!({"metadata": {"name": name}, "versions": [{"version": "v1", "freshness": freshness, "resources": resources}]});
        let core = group(
            "",
            "Current",
            json!([of("pods", "Pod", "Namespaced", &["po"]), of("nodes", "Node", "Cluster", &["no"])]),
        );
        let apps = group("apps", freshness, json!([of("deployments", "Deployment", "Namespaced", &["deploy"])]));
        Served::from_discovery(&[serde_json::from_value(json!({"items": [core, apps]})).unwrap()])
    }

    fn of(text: &str) -> GroupResource {
        text.parse().unwrap()
    }

    #[test]
    fn unserved_resource_is_reported_with_a_suggestion() {
        let all = served("Current");
        let wrong = |text: &str| unknown(&[of("pods"), of(text)], [Some(&all), Some(&all)].into_iter());
        for (typed, meant) in [
            ("pod", "pods"),
            ("po", "pods"),
            ("deployments", "deployments.apps"),
            ("deploy.apps", "deployments.apps"),
            ("deploments.apps", "deployments.apps"),
            ("deployments.v1.apps", "deployments.apps"),
            ("node", "nodes"),
        ] {
            let [told] = &wrong(typed)[..] else { panic!("{typed}") };
            assert!(told.starts_with(&format!("{typed} is served by no cluster; did you mean {meant}")), "{told}");
        }
        assert_eq!(wrong("xylophones"), ["xylophones is served by no cluster"]);
        assert!(wrong("deployments.apps").is_empty());
        assert_eq!([all.is_namespaced(&of("pods")), all.is_namespaced(&of("nodes"))], [Some(true), Some(false)]);
    }

    #[test]
    fn unserved_resource_is_accepted_while_discovery_is_incomplete() {
        let (all, stale) = (served("Current"), served("Stale"));
        for clusters in [vec![Some(&all), None], vec![Some(&stale)], Vec::new()] {
            assert!(unknown(&[of("carts.shop.example")], clusters.into_iter()).is_empty());
        }
    }
}
