//! Configuration of each resource, from the rules of the registries and the defaults.

use std::collections::BTreeSet;

use tributary_apimachinery::{
    ClusterName, Consistency, Filtered, GroupVersionResource, ItemResourceVersions, Names, Partial, ResourcePattern,
};

/// Resource of the core group that is cached in shared mode only if a registry names the resource.
const SECRETS: &str = "secrets";

/// Configuration of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePolicy {
    /// Form of the resourceVersions of single objects.
    pub item_resource_versions: ItemResourceVersions,
    /// Consistency of a read without a resourceVersion.
    pub consistency: Consistency,
    /// Clusters of the merged view. `None` for all clusters. Tributary finds objects of other clusters by name, with a
    /// live request.
    pub clusters: Option<BTreeSet<ClusterName>>,
    /// Cached namespaces. `None` for all namespaces. Tributary reads other namespaces with live requests.
    pub namespaces: Option<BTreeSet<String>>,
    /// Behavior of lists and watches while the objects of a cluster are unknown.
    pub partial: Partial,
    /// Behavior, in shared mode, if a user may list only a part of a collection.
    pub filtered: Filtered,
    /// Whether several clusters may have an object of the same name.
    pub names: Names,
    /// Cluster for a new object if the request does not name a cluster.
    pub placement: Option<ClusterName>,
}

impl ResourcePolicy {
    /// Returns whether a cluster's objects are part of the merged view.
    pub fn selects(&self, cluster: &ClusterName) -> bool {
        self.clusters.as_ref().is_none_or(|clusters| clusters.contains(cluster))
    }

    /// Returns whether the objects of this namespace are cached. For `None`, returns whether the objects of all
    /// namespaces are cached.
    pub fn caches(&self, namespaced: bool, namespace: Option<&str>) -> bool {
        match &self.namespaces {
            Some(cached) if namespaced => namespace.is_some_and(|namespace| cached.contains(namespace)),
            _ => true,
        }
    }

    /// Returns the namespace of a request if a view of only this namespace serves the request. `None` if a view of all
    /// namespaces serves the request.
    pub fn view_of<'a>(&self, namespaced: bool, namespace: Option<&'a str>) -> Option<&'a str> {
        namespace.filter(|_| namespaced && self.namespaces.is_some())
    }
}

/// Policies of all resources. The first rule that matches a resource applies.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// Configuration of resources without a rule.
    pub default: ResourcePolicy,
    /// Rules, in the order of their precedence.
    pub rules: Vec<(Vec<ResourcePattern>, ResourcePolicy)>,
    /// Cached resources. `None` for all resources.
    pub registered: Option<Vec<ResourcePattern>>,
    /// Whether Secrets are cached only if [`registered`](Self::registered) names them, so that `*` and `None` exclude
    /// Secrets. True in shared mode, where an administrator has to decide explicitly to store the Secrets of all
    /// clusters in one process.
    pub secrets_by_name: bool,
}

impl Policies {
    /// Returns the policy of a resource.
    pub fn policy_for(&self, resource: &GroupVersionResource) -> &ResourcePolicy {
        let rule = self.rules.iter().find(|(patterns, _)| patterns.iter().any(|pattern| pattern.matches(resource)));
        rule.map_or(&self.default, |(_, policy)| policy)
    }

    /// Returns whether the policy of any resource demands integer resourceVersions.
    pub fn any_integer(&self) -> bool {
        let mut all = self.rules.iter().map(|(_, policy)| policy).chain([&self.default]);
        all.any(|policy| policy.item_resource_versions == ItemResourceVersions::Integer)
    }

    /// Returns whether a resource is cached. Visits the patterns without an allocation.
    pub fn is_registered(&self, resource: &GroupVersionResource) -> bool {
        let by_name = self.secrets_by_name && resource.group.is_empty() && *resource.resource == *SECRETS;
        let is_match = |pattern: &ResourcePattern| match pattern {
            ResourcePattern::All => !by_name,
            ResourcePattern::Resource { .. } => pattern.matches(resource),
        };
        self.registered.as_ref().map_or(!by_name, |patterns| patterns.iter().any(is_match))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_configured_namespaces_of_a_resource_are_cached() {
        let some = ResourcePolicy { namespaces: Some(["a".to_owned()].into()), ..ResourcePolicy::default() };
        for (policy, namespaced, namespace, is_cached, view) in [
            (&some, true, Some("a"), true, Some("a")),
            (&some, true, Some("b"), false, Some("b")),
            (&some, true, None, false, None),
            (&some, false, None, true, None),
            (&ResourcePolicy::default(), true, Some("a"), true, None),
            (&ResourcePolicy::default(), true, None, true, None),
        ] {
            assert_eq!(policy.caches(namespaced, namespace), is_cached, "{namespace:?}");
            assert_eq!(policy.view_of(namespaced, namespace), view, "{namespace:?}");
        }
    }

    #[test]
    fn secrets_are_cached_only_by_explicit_name_in_shared_mode() {
        let registered = |texts: &[&str]| Some(texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>());
        let all = || registered(&["*"]);
        for (registered, secrets_by_name, group, resource, expected) in [
            (None, false, "", "secrets", true),
            (None, true, "", "secrets", false),
            (None, true, "", "configmaps", true),
            (None, true, "example.com", "secrets", true),
            (all(), false, "", "secrets", true),
            (all(), true, "", "secrets", false),
            (all(), true, "", "pods", true),
            (all(), true, "example.com", "secrets", true),
            (registered(&["*", "secrets"]), true, "", "secrets", true),
            (registered(&["v1/secrets"]), true, "", "secrets", true),
            (registered(&["pods"]), true, "", "secrets", false),
            (registered(&["secrets.example.com"]), true, "", "secrets", false),
        ] {
            let policies = Policies { registered, secrets_by_name, ..Policies::default() };
            let resource = GroupVersionResource::new(group, "v1", resource);
            assert_eq!(policies.is_registered(&resource), expected, "{resource} {policies:?}");
        }
    }
}
