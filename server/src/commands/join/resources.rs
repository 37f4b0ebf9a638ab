//! The resources of a cluster, from which the rules of roles are built.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use kube::core::discovery::v2::APIGroupDiscoveryList;
use serde_json::Value;
use tributary_apimachinery::built_in::served_by_default;
use tributary_authorization::RbacKind;

pub(super) const READS: [&str; 3] = ["get", "list", "watch"];

/// The prefix of verbs for impersonated requests (KEP-5284).
pub(super) const IMPERSONATED_VERB_PREFIX: &str = "impersonate-on:user-info:";

const RBAC: &str = RbacKind::GROUP;

/// The discovery freshness of a version whose aggregated API server does not answer.
const STALE: &str = "Stale";

/// The allowed verbs for each group and resource, or `resource/subresource`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownResources {
    by_name: BTreeMap<(String, String), BTreeSet<String>>,
    /// The API groups with unknown resources, because their aggregated API servers do not answer.
    stale: BTreeSet<String>,
}

impl KnownResources {
    /// Reads the resources of all versions from a cluster's discovery.
    pub fn from_discovery(discovered: &[APIGroupDiscoveryList]) -> Self {
        let mut known = Self::default();
        for group in discovered.iter().flat_map(|list| &list.items) {
            let name = group.metadata.as_ref().and_then(|metadata| metadata.name.clone()).unwrap_or_default();
            if group.versions.iter().any(|version| version.freshness.as_deref() == Some(STALE)) {
                known.stale.insert(name.clone());
            }
            for resource in group.versions.iter().flat_map(|version| &version.resources) {
                let plural = resource.resource.clone().unwrap_or_default();
                for below in &resource.subresources {
                    let subresource = below.subresource.clone().unwrap_or_default();
                    known.add(&name, &format!("{plural}/{subresource}"), below.verbs.iter().map(String::as_str));
                }
                known.add(&name, &plural, resource.verbs.iter().map(String::as_str));
            }
        }
        known
    }

    /// Returns the resources that every cluster of a usual Kubernetes release serves, for manifests that are generated
    /// without a cluster.
    pub fn usual() -> Self {
        let mut known = Self::default();
        for (group, verbs, resource) in served_by_default() {
            known.add(group, resource, verbs.split(' '));
        }
        known
    }

    /// Returns the API groups whose resources are partly unknown.
    pub fn stale(&self) -> impl Iterator<Item = &str> {
        self.stale.iter().map(String::as_str)
    }

    /// Checks that the cluster serves the RBAC API.
    ///
    /// # Errors
    /// The missing API, and the remedy.
    pub(super) fn has_roles(&self) -> anyhow::Result<()> {
        let has = |resource: &str| self.by_name.contains_key(&(RBAC.to_owned(), resource.to_owned()));
        ensure!(
            has("clusterroles") && has("clusterrolebindings"),
            "the cluster serves no {RBAC}, by which join gives an account its rights; start its kube-apiserver with \
             --authorization-mode=Node,RBAC and without --runtime-config that turns the API off, or write an UpstreamCluster \
             with credentials of another kind yourself (docs/configuration.md)"
        );
        Ok(())
    }

    /// Adds the resources and verbs that an existing role contains for [stale](Self::stale) groups. So the role keeps
    /// its rules for these groups.
    pub(super) fn add_rules_of(&mut self, role: &Value) {
        let words = |rule: &Value, field: &str| -> Vec<String> {
            rule[field].as_array().into_iter().flatten().filter_map(|word| Some(word.as_str()?.to_owned())).collect()
        };
        for rule in role["rules"].as_array().into_iter().flatten() {
            let verbs = words(rule, "verbs");
            let verbs: Vec<_> =
                verbs.iter().map(|verb| verb.strip_prefix(IMPERSONATED_VERB_PREFIX).unwrap_or(verb)).collect();
            for group in
                words(rule, "apiGroups").iter().filter(|group| self.stale.contains(*group)).cloned().collect::<Vec<_>>()
            {
                for resource in words(rule, "resources") {
                    self.add(&group, &resource, verbs.iter().copied());
                }
            }
        }
    }

    fn add<'a>(&mut self, group: &str, resource: &str, verbs: impl Iterator<Item = &'a str>) {
        let own = self.by_name.entry((group.to_owned(), resource.to_owned())).or_default();
        own.extend(verbs.map(str::to_owned));
    }

    /// Iterates over all resources: group, resource and verbs.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &BTreeSet<String>)> {
        self.by_name.iter().map(|((group, resource), verbs)| (&**group, &**resource, verbs))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn error_for_a_cluster_without_rbac_names_the_remedy() {
        assert!(KnownResources::usual().has_roles().is_ok());
        let mut without = KnownResources::usual();
        without.by_name.retain(|(group, _), _| group != RBAC);
        let said = without.has_roles().unwrap_err().to_string();
        for part in ["serves no rbac.authorization.k8s.io", "--authorization-mode=Node,RBAC", "UpstreamCluster"] {
            assert!(said.contains(part), "{said}");
        }
    }

    /// Discovery contains no resources, or outdated ones, of an aggregated API server that does not answer.
    #[test]
    fn rules_for_an_unavailable_api_group_are_kept() {
        let discovered = json!({"items": [
            {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
                {"resource": "deployments", "scope": "Namespaced", "verbs": ["list", "watch"]}]}]},
            {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "freshness": "Stale"}]},
        ]});
        let mut known = KnownResources::from_discovery(&[serde_json::from_value(discovered).unwrap()]);
        assert_eq!(known.stale().collect::<Vec<_>>(), ["metrics.k8s.io"]);
        let all = |known: &KnownResources| {
            let all = known.iter().map(|(group, name, verbs)| {
                format!("{group} {name} {}", verbs.iter().cloned().collect::<Vec<_>>().join(" "))
            });
            all.collect::<Vec<_>>()
        };
        assert_eq!(all(&known), ["apps deployments list watch"]);
        known.add_rules_of(&json!({"rules": [
            {"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["impersonate-on:user-info:get"]},
            {"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["list"]},
            {"apiGroups": ["gone.example"], "resources": ["carts"], "verbs": ["list", "watch"]},
        ]}));
        assert_eq!(all(&known), ["apps deployments list watch", "metrics.k8s.io pods get list"]);
    }
}
