//! The union of the members' discovery documents: what the merged endpoint serves, and which cluster serves what.

use std::collections::BTreeMap;
use std::sync::Arc;

use tributary_apimachinery::{ClusterName, GroupVersion, GroupVersionResource};

use super::documents::DiscoveryPath;
use super::model::{Group, GroupList, Resource, Subresource, Version};

/// What one member serves: its `/api` and `/apis` documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberDiscovery {
    /// The core group (`/api`).
    pub core: GroupList,
    /// All other groups (`/apis`).
    pub named: GroupList,
}

/// What all members together serve. Immutable; made anew when a member's document changes.
#[derive(Clone, Debug, Default)]
pub struct Union {
    /// The core group (`/api`).
    pub core: GroupList,
    /// All other groups (`/apis`).
    pub named: GroupList,
    resources: BTreeMap<GroupVersionResource, Arc<ServedResource>>,
}

/// One resource of the union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedResource {
    /// The resource's name.
    pub resource: GroupVersionResource,
    /// As discovery describes it; verbs and subresources are those that any member offers.
    pub description: Resource,
    /// The clusters that serve it, by name.
    pub clusters: Vec<ClusterName>,
    /// The clusters whose objects can be both listed and watched, so that a cacher can hold them.
    pub cacheable: Vec<ClusterName>,
}

impl Union {
    /// Joins the members' documents. The order of groups and versions is the first member's, by name; what only later
    /// members have comes after.
    pub fn new(members: &[(ClusterName, Arc<MemberDiscovery>)]) -> Self {
        let core = join(members.iter().map(|(_, member)| &member.core));
        let named = join(members.iter().map(|(_, member)| &member.named));
        let mut union = Self { resources: BTreeMap::new(), core, named };
        for group in union.core.items.iter().chain(&union.named.items) {
            for version in &group.versions {
                for description in &version.resources {
                    let resource =
                        GroupVersionResource::new(&group.metadata.name, &version.version, &description.resource);
                    let served = served_by(members, &resource, description);
                    union.resources.insert(resource, Arc::new(served));
                }
            }
        }
        union
    }

    /// Whether a discovery document has something to tell.
    pub fn has_document(&self, path: &DiscoveryPath<'_>) -> bool {
        match path {
            DiscoveryPath::Root | DiscoveryPath::Core | DiscoveryPath::Groups => true,
            DiscoveryPath::Group(name) => self.group(name).is_some(),
            DiscoveryPath::Version(group, version) => self.version(group, version).is_some(),
        }
    }

    /// A group; the core group has no name.
    pub fn group(&self, name: &str) -> Option<&Group> {
        let groups = if name.is_empty() { &self.core } else { &self.named };
        groups.items.iter().find(|group| group.metadata.name == name)
    }

    /// A version of a group.
    pub fn version(&self, group: &str, version: &str) -> Option<&Version> {
        self.group(group)?.versions.iter().find(|own| own.version == version)
    }

    /// The resource of this name, if any member serves it.
    pub fn get(&self, resource: &GroupVersionResource) -> Option<&Arc<ServedResource>> {
        self.resources.get(resource)
    }

    /// All resources by group, version and name.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<ServedResource>> {
        self.resources.values()
    }

    /// The resource whose objects are of this kind, in this version or, where nobody serves that any more, in another one of
    /// its group: the objects are the same.
    pub fn of_kind(&self, wanted: &GroupVersion, kind: &str) -> Option<&Arc<ServedResource>> {
        let of_group =
            |served: &&Arc<ServedResource>| served.description.kind() == kind && served.resource.group == wanted.group;
        let mut found = self.resources.values().filter(of_group);
        let exact = self.resources.values().filter(of_group).find(|served| served.resource.version == wanted.version);
        exact.or_else(|| found.next())
    }
}

fn served_by(
    members: &[(ClusterName, Arc<MemberDiscovery>)],
    resource: &GroupVersionResource,
    description: &Resource,
) -> ServedResource {
    let mut served = ServedResource {
        resource: resource.clone(),
        description: description.clone(),
        clusters: Vec::new(),
        cacheable: Vec::new(),
    };
    for (cluster, member) in members {
        let Some(own) = member.find(resource) else { continue };
        served.clusters.push(cluster.clone());
        if own.has_verb("list") && own.has_verb("watch") {
            served.cacheable.push(cluster.clone());
        }
    }
    served
}

impl MemberDiscovery {
    /// Whether what the member says of this version may be out of date: the aggregated server behind it does not answer.
    pub fn is_stale(&self, wanted: &GroupVersion) -> bool {
        let group = self.named.items.iter().find(|group| *group.metadata.name == *wanted.group);
        let version = group.and_then(|group| group.versions.iter().find(|version| *version.version == *wanted.version));
        version.is_some_and(|version| version.freshness == "Stale")
    }

    /// Whether it has every resource that another document has.
    pub fn serves_all_of(&self, other: &Self) -> bool {
        let groups = other.core.items.iter().chain(&other.named.items);
        let versions = groups.flat_map(|group| group.versions.iter().map(move |version| (group, version)));
        let mut resources = versions.flat_map(|(group, version)| {
            version.resources.iter().map(move |own| (&group.metadata.name, &version.version, &own.resource))
        });
        resources.all(|(group, version, name)| self.find(&GroupVersionResource::new(group, version, name)).is_some())
    }

    /// The member's own description of a resource.
    pub fn find(&self, resource: &GroupVersionResource) -> Option<&Resource> {
        let groups = if resource.group.is_empty() { &self.core } else { &self.named };
        let group = groups.items.iter().find(|group| *group.metadata.name == *resource.group)?;
        let version = group.versions.iter().find(|version| *version.version == *resource.version)?;
        version.resources.iter().find(|own| *own.resource == *resource.resource)
    }
}

fn join<'a>(documents: impl Iterator<Item = &'a GroupList>) -> GroupList {
    let mut groups: Vec<Group> = Vec::new();
    for document in documents {
        let same = |own: &Group, other: &Group| own.metadata.name == other.metadata.name;
        join_all(&mut groups, &document.items, same, |own, other| join_versions(&mut own.versions, &other.versions));
    }
    GroupList::new(groups)
}

fn join_versions(known: &mut Vec<Version>, more: &[Version]) {
    let same = |own: &Version, other: &Version| own.version == other.version;
    join_all(known, more, same, |own, other| join_resources(&mut own.resources, &other.resources));
}

fn join_resources(known: &mut Vec<Resource>, more: &[Resource]) {
    let same = |own: &Resource, other: &Resource| own.resource == other.resource;
    join_all(known, more, same, |own, other| {
        join_verbs(&mut own.verbs, &other.verbs);
        join_subresources(&mut own.subresources, &other.subresources);
    });
}

fn join_subresources(known: &mut Vec<Subresource>, more: &[Subresource]) {
    let same = |own: &Subresource, other: &Subresource| own.subresource == other.subresource;
    join_all(known, more, same, |own, other| join_verbs(&mut own.verbs, &other.verbs));
}

fn join_verbs(known: &mut Vec<String>, more: &[String]) {
    join_all(known, more, String::eq, |_, _| {});
}

/// Adds what is not known yet; what is known is joined.
fn join_all<T: Clone>(known: &mut Vec<T>, more: &[T], same: impl Fn(&T, &T) -> bool, join: impl Fn(&mut T, &T)) {
    for other in more {
        match known.iter_mut().find(|own| same(own, other)) {
            Some(own) => join(own, other),
            None => known.push(other.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{GroupMetadata, Kind};
    use super::*;

    fn resource(name: &str, kind: &str, verbs: &[&str]) -> Resource {
        Resource {
            resource: name.into(),
            response_kind: Some(Kind { group: String::new(), version: "v1".into(), kind: kind.into() }),
            scope: "Namespaced".into(),
            singular_resource: String::new(),
            verbs: verbs.iter().map(ToString::to_string).collect(),
            short_names: Vec::new(),
            categories: Vec::new(),
            subresources: Vec::new(),
        }
    }

    fn group(name: &str, versions: &[(&str, Vec<Resource>)]) -> Group {
        Group {
            metadata: GroupMetadata { name: name.into(), creation_timestamp: None },
            versions: versions
                .iter()
                .map(|(version, resources)| Version {
                    version: (*version).into(),
                    resources: resources.clone(),
                    freshness: "Current".into(),
                })
                .collect(),
        }
    }

    fn cluster(name: &str, core: Vec<Group>, named: Vec<Group>) -> (ClusterName, Arc<MemberDiscovery>) {
        let member = MemberDiscovery { core: GroupList::new(core), named: GroupList::new(named) };
        (ClusterName::new(name).unwrap(), Arc::new(member))
    }

    #[test]
    fn groups_versions_resources_and_verbs_are_joined() {
        let all = ["get", "list", "watch"];
        let union = Union::new(&[
            cluster(
                "a",
                vec![group("", &[("v1", vec![resource("pods", "Pod", &all)])])],
                vec![group("x.io", &[("v1", vec![resource("foos", "Foo", &["list"])])])],
            ),
            cluster(
                "b",
                vec![group("", &[("v1", vec![resource("pods", "Pod", &["get"]), resource("bars", "Bar", &all)])])],
                vec![
                    group("y.io", &[("v1", vec![])]),
                    group("x.io", &[("v2", vec![]), ("v1", vec![resource("foos", "Foo", &all)])]),
                ],
            ),
        ]);
        let names: Vec<_> = union.named.items.iter().map(|group| group.metadata.name.as_str()).collect();
        assert_eq!(names, ["x.io", "y.io"]);
        let pods = union.get(&GroupVersionResource::new("", "v1", "pods")).unwrap();
        assert_eq!((pods.clusters.len(), pods.cacheable.len()), (2, 1));
        let foos = union.get(&GroupVersionResource::new("x.io", "v1", "foos")).unwrap();
        assert_eq!(foos.description.verbs, ["list", "get", "watch"]);
        assert_eq!(foos.cacheable, [ClusterName::new("b").unwrap()]);
        assert!(union.get(&GroupVersionResource::new("", "v1", "bars")).is_some());
        let of_kind = |api_version: &str, kind: &str| {
            union.of_kind(&GroupVersion::parse(api_version), kind).map(|served| served.resource.to_string())
        };
        assert_eq!(of_kind("x.io/v1", "Foo").as_deref(), Some("foos.v1.x.io"));
        assert_eq!(of_kind("x.io/v0", "Foo").as_deref(), Some("foos.v1.x.io"), "another version of the same kind");
        assert_eq!(of_kind("y.io/v1", "Foo"), None);
    }
}
