//! How each resource is to be treated: what the registries say, and the defaults.

use std::collections::BTreeSet;

use tributary_apimachinery::{
    ClusterName, Consistency, GroupVersionResource, ItemResourceVersions, Names, Partial, ResourcePattern,
};

/// How one resource is treated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The form of single objects' versions.
    pub item_resource_versions: ItemResourceVersions,
    /// What a read without a resourceVersion contains.
    pub consistency: Consistency,
    /// The clusters whose objects make up the merged view; `None` for all.
    /// Objects of the others are found by name, asked live.
    pub clusters: Option<BTreeSet<ClusterName>>,
    /// The namespaces whose objects are held in memory; `None` for all. The others are asked live.
    pub namespaces: Option<BTreeSet<String>>,
    /// What happens while a cluster is unknown.
    pub partial: Partial,
    /// Whether clusters may have an object of the same name each.
    pub names: Names,
    /// Where objects are created that do not say so themselves.
    pub placement: Option<ClusterName>,
}

impl Policy {
    /// Whether a cluster's objects are part of the merged view.
    pub fn selects(&self, cluster: &ClusterName) -> bool {
        self.clusters.as_ref().is_none_or(|clusters| clusters.contains(cluster))
    }

    /// Whether objects of a place are held in memory: of a namespace, or of all (`None`).
    pub fn holds(&self, namespaced: bool, namespace: Option<&str>) -> bool {
        match &self.namespaces {
            Some(held) if namespaced => namespace.is_some_and(|namespace| held.contains(namespace)),
            _ => true,
        }
    }

    /// The one namespace that the view of a place holds; `None` for all of them.
    pub fn view_of<'a>(&self, namespaced: bool, namespace: Option<&'a str>) -> Option<&'a str> {
        namespace.filter(|_| namespaced && self.namespaces.is_some())
    }
}

/// The policies of all resources. The first rule that names a resource holds.
#[derive(Clone, Debug, Default)]
pub struct Policies {
    /// What holds where no rule names the resource.
    pub default: Policy,
    /// The rules in order.
    pub rules: Vec<(Vec<ResourcePattern>, Policy)>,
    /// The resources that are cached; `None` for every one that can be.
    pub registered: Option<Vec<ResourcePattern>>,
}

impl Policies {
    /// The policy of a resource.
    pub fn of(&self, resource: &GroupVersionResource) -> &Policy {
        let rule = self.rules.iter().find(|(patterns, _)| patterns.iter().any(|pattern| pattern.matches(resource)));
        rule.map_or(&self.default, |(_, policy)| policy)
    }

    /// Whether some resource's objects carry integers.
    pub fn any_integer(&self) -> bool {
        let mut all = self.rules.iter().map(|(_, policy)| policy).chain([&self.default]);
        all.any(|policy| policy.item_resource_versions == ItemResourceVersions::Integer)
    }

    /// Whether a resource is to be cached.
    pub fn is_registered(&self, resource: &GroupVersionResource) -> bool {
        self.registered.as_ref().is_none_or(|patterns| patterns.iter().any(|pattern| pattern.matches(resource)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_held_by_namespace() {
        let some = Policy { namespaces: Some(["a".to_owned()].into()), ..Policy::default() };
        for (policy, namespaced, namespace, held, view) in [
            (&some, true, Some("a"), true, Some("a")),
            (&some, true, Some("b"), false, Some("b")),
            (&some, true, None, false, None),
            (&some, false, None, true, None),
            (&Policy::default(), true, Some("a"), true, None),
            (&Policy::default(), true, None, true, None),
        ] {
            assert_eq!(policy.holds(namespaced, namespace), held, "{namespace:?}");
            assert_eq!(policy.view_of(namespaced, namespace), view, "{namespace:?}");
        }
    }
}
