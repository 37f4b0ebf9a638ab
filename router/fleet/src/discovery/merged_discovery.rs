//! Union of the clusters' discovery documents: the resources of the merged view, with their clusters.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use tributary_apimachinery::{ClusterName, GroupVersion, GroupVersionResource, RequestInfo, ResourceRequest};

use super::document::{DiscoveryPath, Document};
use super::index::DocumentIndex;
use super::join::{Copies, join};
use super::model::{Group, GroupList, Resource, Version};
use super::not_merged::{NotMergedReason, Undescribed};

/// Discovery of a cluster, from its `/api` and `/apis` documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberDiscovery {
    /// Core group (`/api`).
    pub core: Arc<GroupList>,
    /// All named groups (`/apis`).
    pub named: Arc<GroupList>,
}

/// Resources of all clusters. The value is immutable, and is built again when a cluster's document changes.
#[derive(Clone, Debug, Default)]
pub struct MergedDiscovery {
    /// Core group (`/api`).
    pub core: GroupList,
    /// All named groups (`/apis`).
    pub named: GroupList,
    resources: BTreeMap<GroupVersionResource, Arc<ServedResource>>,
    members: BTreeSet<ClusterName>,
    clashes: BTreeSet<String>,
    /// Serialized aggregated documents of the core group and of the named groups. Each is created at the first request.
    written: [OnceLock<Document>; 2],
}

/// A resource of the merged view, with the clusters that serve the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedResource {
    /// Group, version and name of the resource.
    pub resource: GroupVersionResource,
    /// Description of the resource in discovery, with the verbs and subresources of all clusters.
    pub description: Resource,
    /// Clusters that serve the resource, sorted by name. Resources that the same clusters serve share the list.
    pub clusters: Arc<[ClusterName]>,
    /// Clusters that support list and watch of the resource, so that a cacher can store its objects.
    pub cacheable: Arc<[ClusterName]>,
    /// Clusters that the merged resource omits, sorted by name, because their kind, scope or versions differ, or
    /// because their discovery lists the version without its resources.
    pub not_merged: Vec<(ClusterName, NotMergedReason)>,
}

impl MergedDiscovery {
    /// Joins the clusters' documents. The cluster with the highest precedence (the newest server) comes first.
    ///
    /// * Groups have the order of the first cluster. A group that this cluster lacks follows the group that precedes it
    ///   in another cluster's document.
    /// * The versions of a group are sorted by the number of clusters that serve them, because a list in a rarer
    ///   version lacks objects. If the numbers are equal, the order of the first cluster decides, then the order of
    ///   versions (`v2`, `v1`, `v1beta1`).
    /// * A version is `Stale` only if it is stale in every cluster that serves it.
    /// * Verbs, short names, categories and subresources are the union over all clusters.
    /// * If clusters serve a resource with different kinds or scopes, the majority decides. If the numbers are equal,
    ///   the first cluster by name decides. Kubernetes' own resources have a fixed kind and scope. Lists name the
    ///   omitted clusters.
    ///
    /// Costs time in proportion to the number of distinct documents. A cluster whose document equals a different
    /// cluster's adds next to nothing (`bench/benches/discovery.rs`).
    pub fn new(members: &[(ClusterName, Arc<MemberDiscovery>)]) -> Self {
        let mut by_name: Vec<usize> = (0..members.len()).collect();
        by_name.sort_by(|a, b| members[*a].0.cmp(&members[*b].0));
        let mut core = Distinct::new(members, &by_name, |member| &member.core);
        let mut named = Distinct::new(members, &by_name, |member| &member.named);
        let members = members.iter().map(|(cluster, _)| cluster.clone()).collect();
        let mut merged_discovery =
            Self { core: join(&core.documents), named: join(&named.documents), members, ..Self::default() };
        for (groups, distinct) in [(&merged_discovery.core, &mut core), (&merged_discovery.named, &mut named)] {
            for group in &groups.items {
                for version in &group.versions {
                    for description in &version.resources {
                        let resource =
                            GroupVersionResource::new(&group.metadata.name, &version.version, &description.resource);
                        let served = distinct.served(&resource, description);
                        merged_discovery.clashes.extend(served.clash());
                        merged_discovery.resources.insert(resource, Arc::new(served));
                    }
                }
            }
        }
        merged_discovery
    }

    /// Adds a group that Tributary itself serves. The group replaces a group of the clusters with the same name, and
    /// comes last, so that clients prefer resources of equal names in other groups. The resources of the group have no
    /// clusters, so [`get`](Self::get) does not find them.
    pub fn with_own_group(mut self, own: Group) -> Self {
        self.named.items.retain(|group| group.metadata.name != own.metadata.name);
        self.resources.retain(|resource, _| *resource.group != *own.metadata.name);
        self.named.items.push(own);
        self
    }

    /// Returns whether the union contains the discovery of this cluster.
    pub fn has_discovery_of(&self, cluster: &ClusterName) -> bool {
        self.members.contains(cluster)
    }

    /// Returns one line of text for each resource that members serve with different kinds or scopes.
    pub fn clashes(&self) -> &BTreeSet<String> {
        &self.clashes
    }

    /// Returns the aggregated document of the core group if `core` is set, else of all named groups.
    pub fn aggregated(&self, core: bool) -> &Document {
        let (written, groups) = if core { (&self.written[0], &self.core) } else { (&self.written[1], &self.named) };
        written.get_or_init(|| Document::new(groups))
    }

    /// Returns whether a path has a discovery document.
    pub fn has_document(&self, path: &DiscoveryPath<'_>) -> bool {
        match path {
            DiscoveryPath::Root | DiscoveryPath::Core | DiscoveryPath::Groups => true,
            DiscoveryPath::Group(name) => self.group(name).is_some(),
            DiscoveryPath::Version(group, version) => self.version(group, version).is_some(),
        }
    }

    /// Returns a group by name; the core group has the empty name.
    pub fn group(&self, name: &str) -> Option<&Group> {
        let groups = if name.is_empty() { &self.core } else { &self.named };
        groups.items.iter().find(|group| group.metadata.name == name)
    }

    /// Returns a version of a group.
    pub fn version(&self, group: &str, version: &str) -> Option<&Version> {
        self.group(group)?.versions.iter().find(|own| own.version == version)
    }

    /// Returns a resource, if any member serves it.
    pub fn get(&self, resource: &GroupVersionResource) -> Option<&Arc<ServedResource>> {
        self.resources.get(resource)
    }

    /// Returns the resource of a request, with its clusters. `None` for paths without a resource, and for resources
    /// that no cluster serves.
    pub fn served<'a>(&self, info: &'a RequestInfo) -> Option<(&'a ResourceRequest, &Arc<ServedResource>)> {
        let request = info.resource()?;
        Some((request, self.get(&request.resource)?))
    }

    /// Returns all resources, sorted by group, version and name.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<ServedResource>> {
        self.resources.values()
    }

    /// Returns the resource whose objects have this kind. If no cluster serves the resource in the wanted version,
    /// returns it in a different version of the group, which has the same objects.
    pub fn of_kind(&self, wanted: &GroupVersion, kind: &str) -> Option<&Arc<ServedResource>> {
        let of_group =
            |served: &&Arc<ServedResource>| served.description.kind() == kind && served.resource.group == wanted.group;
        let mut found = self.resources.values().filter(of_group);
        let exact = self.resources.values().filter(of_group).find(|served| served.resource.version == wanted.version);
        exact.or_else(|| found.next())
    }
}

struct Distinct<'a> {
    /// Distinct documents, sorted by precedence. A document has the precedence of the first member that has it.
    documents: Vec<Copies<'a, GroupList>>,
    indices: Vec<DocumentIndex<'a>>,
    /// Members sorted by name, each with the index of its document in `documents`.
    members: Vec<(&'a ClusterName, usize)>,
    /// Names of the clusters that have one of several documents. The key has a flag for each document. The list is
    /// shared by all resources that the same documents serve.
    names: HashMap<Vec<bool>, Arc<[ClusterName]>>,
}

enum MemberResource {
    Lacks,
    Serves { cacheable: bool },
    NotMerged(NotMergedReason),
}

impl<'a> Distinct<'a> {
    /// Collects the distinct documents of the members. `by_name` contains the indexes of `members`, sorted by cluster
    /// name. `document` selects one of a member's two documents.
    fn new(
        members: &'a [(ClusterName, Arc<MemberDiscovery>)],
        by_name: &[usize],
        document: impl Fn(&'a MemberDiscovery) -> &'a Arc<GroupList>,
    ) -> Self {
        let mut rank = vec![0; members.len()];
        by_name.iter().enumerate().for_each(|(place, member)| rank[*member] = place);
        let mut documents: Vec<Copies<'a, GroupList>> = Vec::new();
        let mut places = HashMap::new();
        let mut named: Vec<(&ClusterName, usize)> = by_name.iter().map(|member| (&members[*member].0, 0)).collect();
        for ((_, member), rank) in members.iter().zip(rank) {
            let value = document(member);
            let place = *places.entry(Arc::as_ptr(value)).or_insert(documents.len());
            match documents.get_mut(place) {
                Some(known) => (known.count, known.first) = (known.count + 1, known.first.min(rank)),
                None => documents.push(Copies { value, count: 1, first: rank }),
            }
            named[rank].1 = place;
        }
        let indices = documents.iter().map(|document| DocumentIndex::new(document.value)).collect();
        Self { documents, indices, members: named, names: HashMap::new() }
    }

    fn served(&mut self, resource: &GroupVersionResource, description: &Resource) -> ServedResource {
        let own: Vec<MemberResource> =
            self.indices.iter().map(|index| MemberResource::from_document(index, resource, description)).collect();
        let serves = own.iter().map(|own| matches!(own, MemberResource::Serves { .. })).collect();
        let holds = own.iter().map(|own| matches!(own, MemberResource::Serves { cacheable: true })).collect();
        let not_merged = |(cluster, place): &(&ClusterName, usize)| match &own[*place] {
            MemberResource::NotMerged(not_merged) => Some(((*cluster).clone(), not_merged.clone())),
            _ => None,
        };
        let is_any = own.iter().any(|own| matches!(own, MemberResource::NotMerged(_)));
        let not_merged = if is_any { self.members.iter().filter_map(not_merged).collect() } else { Vec::new() };
        ServedResource {
            resource: resource.clone(),
            description: description.clone(),
            clusters: self.having(serves),
            cacheable: self.having(holds),
            not_merged,
        }
    }

    fn having(&mut self, documents: Vec<bool>) -> Arc<[ClusterName]> {
        let members = &self.members;
        let make = |documents: &Vec<bool>| {
            members.iter().filter(|(_, place)| documents[*place]).map(|(cluster, _)| (*cluster).clone()).collect()
        };
        let made = self.names.get(&documents).cloned();
        made.unwrap_or_else(|| {
            let names: Arc<[ClusterName]> = make(&documents);
            self.names.insert(documents, Arc::clone(&names));
            names
        })
    }
}

impl MemberResource {
    fn from_document(document: &DocumentIndex<'_>, resource: &GroupVersionResource, description: &Resource) -> Self {
        match document.find(resource) {
            None => document.not_merged_reason(resource).map_or(Self::Lacks, Self::NotMerged),
            Some(own) if own.nature() != description.nature() => {
                Self::NotMerged(NotMergedReason::Clashes(own.nature().to_string()))
            }
            Some(own) => Self::Serves { cacheable: own.has_verb("list") && own.has_verb("watch") },
        }
    }
}

impl ServedResource {
    /// Creates a resource that is absent in discovery. `cluster` is the only cluster that serves the resource's group
    /// and version.
    pub fn unlisted(request: &ResourceRequest, cluster: ClusterName) -> Self {
        let scope = if request.namespace.is_some() { "Namespaced" } else { "Cluster" };
        let description = Resource {
            resource: request.resource.resource.to_string(),
            response_kind: None,
            scope: scope.to_owned(),
            singular_resource: String::new(),
            verbs: Vec::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            subresources: Vec::new(),
        };
        let (clusters, cacheable) = (Arc::new([cluster]), Arc::new([]));
        Self { resource: request.resource.clone(), description, clusters, cacheable, not_merged: Vec::new() }
    }

    /// Returns the clusters whose objects are absent in all responses, with the reasons. The result does not contain
    /// clusters whose discovery lists the API version without its resources, because such a cluster may have no objects
    /// of the resource.
    pub fn left_out(&self) -> impl Iterator<Item = &(ClusterName, NotMergedReason)> {
        self.not_merged.iter().filter(|(_, not_merged)| !not_merged.is_undescribed())
    }

    /// Returns whether a cluster serves the resource with any kind, scope or version.
    pub fn is_served_by(&self, cluster: &ClusterName) -> bool {
        // Binary search is possible because both `clusters` and `not_merged` are sorted by name.
        self.clusters.binary_search(cluster).is_ok()
            || self.not_merged.binary_search_by(|(other, _)| other.cmp(cluster)).is_ok()
    }

    /// Returns the clusters whose discovery lists the API version without its resources. Such a cluster may or may not
    /// have objects of the resource.
    pub fn undescribed(&self) -> impl Iterator<Item = &ClusterName> {
        self.not_merged.iter().filter(|(_, not_merged)| not_merged.is_undescribed()).map(|(cluster, _)| cluster)
    }

    fn clash(&self) -> Option<String> {
        let others: Vec<_> = self
            .not_merged
            .iter()
            .filter_map(|(cluster, not_merged)| match not_merged {
                NotMergedReason::Clashes(kind) => Some(format!("{cluster} as {kind}")),
                _ => None,
            })
            .collect();
        let clusters: Vec<_> = self.clusters.iter().map(ClusterName::as_str).collect();
        (!others.is_empty()).then(|| {
            let (resource, kind) = (&self.resource, self.description.nature());
            format!(
                "{resource}: {} as {kind}, {}; the merged view omits the objects of the latter",
                clusters.join(", "),
                others.join(", ")
            )
        })
    }
}

impl MemberDiscovery {
    /// Returns the reason why the member's discovery lists an API version without the version's resources. `None` if
    /// discovery has the resources, or lacks the version.
    pub fn undescribed(&self, wanted: &GroupVersion) -> Option<Undescribed> {
        let groups = if wanted.group.is_empty() { &self.core } else { &self.named };
        groups.group(&wanted.group)?.undescribed(&wanted.version)
    }

    /// Returns whether the member serves an API version, even if discovery lacks the version's resources.
    pub fn has_version(&self, wanted: &GroupVersion) -> bool {
        let groups = if wanted.group.is_empty() { &self.core } else { &self.named };
        let group = groups.group(&wanted.group);
        group.is_some_and(|group| group.versions.iter().any(|own| *own.version == *wanted.version))
    }

    /// Returns the API versions whose resources the member's discovery lacks.
    pub fn all_undescribed(&self) -> impl Iterator<Item = GroupVersion> {
        [&self.core, &self.named].into_iter().flat_map(|groups| groups.undescribed()).map(|(version, _)| version)
    }

    /// Returns whether this discovery contains every resource of a second discovery.
    pub fn serves_all_of(&self, other: &Self) -> bool {
        let has_all = |own: &GroupList, other: &GroupList| {
            let own = DocumentIndex::new(own);
            DocumentIndex::new(other).resources.keys().all(|resource| own.resources.contains_key(resource))
        };
        has_all(&self.core, &other.core) && has_all(&self.named, &other.named)
    }

    /// Returns the description of a resource in the member's discovery.
    pub fn find(&self, resource: &GroupVersionResource) -> Option<&Resource> {
        if resource.group.is_empty() { self.core.find(resource) } else { self.named.find(resource) }
    }
}

impl GroupList {
    fn group(&self, name: &str) -> Option<&Group> {
        self.items.iter().find(|group| group.metadata.name == name)
    }

    fn find(&self, resource: &GroupVersionResource) -> Option<&Resource> {
        let group = self.group(&resource.group)?;
        let version = group.versions.iter().find(|version| *version.version == *resource.version)?;
        version.resources.iter().find(|own| *own.resource == *resource.resource)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::intake::{Root, limit_document};
    use super::super::model::{GroupMetadata, GroupVersionKind, Nature, STALE};
    use super::*;

    fn resource(name: &str, kind: &str, verbs: &[&str]) -> Resource {
        Resource {
            resource: name.into(),
            response_kind: Some(GroupVersionKind { group: String::new(), version: "v1".into(), kind: kind.into() }),
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
                    unreadable: None,
                })
                .collect(),
            unreadable: None,
        }
    }

    fn cluster(name: &str, core: Vec<Group>, named: Vec<Group>) -> (ClusterName, Arc<MemberDiscovery>) {
        let member = MemberDiscovery { core: GroupList::new(core).into(), named: GroupList::new(named).into() };
        (ClusterName::new(name).unwrap(), Arc::new(member))
    }

    #[test]
    fn discovery_union_joins_groups_versions_resources_and_verbs() {
        let all = ["get", "list", "watch"];
        let merged_discovery = MergedDiscovery::new(&[
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
        let names: Vec<_> = merged_discovery.named.items.iter().map(|group| group.metadata.name.as_str()).collect();
        assert_eq!(names, ["y.io", "x.io"], "what only the second has stands before what it stands before there");
        let pods = merged_discovery.get(&GroupVersionResource::new("", "v1", "pods")).unwrap();
        assert_eq!((pods.clusters.len(), pods.cacheable.len()), (2, 1));
        let foos = merged_discovery.get(&GroupVersionResource::new("x.io", "v1", "foos")).unwrap();
        assert_eq!(foos.description.verbs, ["list", "get", "watch"]);
        assert_eq!(*foos.cacheable, [ClusterName::new("b").unwrap()]);
        assert!(merged_discovery.get(&GroupVersionResource::new("", "v1", "bars")).is_some());
        let of_kind = |api_version: &str, kind: &str| {
            merged_discovery.of_kind(&GroupVersion::parse(api_version), kind).map(|served| served.resource.to_string())
        };
        assert_eq!(of_kind("x.io/v1", "Foo").as_deref(), Some("foos.v1.x.io"));
        assert_eq!(of_kind("x.io/v0", "Foo").as_deref(), Some("foos.v1.x.io"), "another version of the same kind");
        assert_eq!(of_kind("y.io/v1", "Foo"), None);
    }

    #[test]
    fn discovery_union_omits_and_reports_conflicting_resources() {
        let all = ["list", "watch"];
        let mut other = resource("foos", "Gadget", &all);
        other.scope = "Cluster".into();
        let mut stale = group("x.io", &[("v1", Vec::new())]);
        stale.versions[0].freshness = STALE.into();
        let foos = || resource("foos", "Foo", &all);
        let merged_discovery = MergedDiscovery::new(&[
            cluster("a", Vec::new(), vec![group("x.io", &[("v1", vec![other])])]),
            cluster("b", Vec::new(), vec![group("x.io", &[("v1", vec![foos()])])]),
            cluster("c", Vec::new(), vec![group("x.io", &[("v1", vec![foos()])])]),
            cluster("d", Vec::new(), vec![group("x.io", &[("v1beta1", vec![foos()])])]),
            cluster("e", Vec::new(), vec![stale]),
        ]);
        let served = merged_discovery.get(&GroupVersionResource::new("x.io", "v1", "foos")).unwrap();
        assert_eq!((served.description.kind(), served.clusters.len(), served.cacheable.len()), ("Foo", 2, 2));
        let reasons: Vec<_> = served
            .not_merged
            .iter()
            .map(|(name, other)| format!("{name}: {}", other.reason(&served.resource)))
            .collect();
        assert_eq!(
            reasons,
            [
                "a: the cluster serves the resource as Gadget (cluster-scoped)",
                "d: the cluster serves the resource only in v1beta1",
                "e: the server behind its x.io/v1 does not answer"
            ]
        );
        assert_eq!((served.left_out().count(), served.undescribed().count()), (2, 1));
        let clashes: Vec<_> = merged_discovery.clashes().iter().collect();
        assert_eq!(clashes.len(), 1);
        assert!(
            clashes[0].starts_with("foos.v1.x.io: b, c as Foo (namespaced), a as Gadget (cluster-scoped)"),
            "{clashes:?}"
        );
    }

    fn documents() -> impl Strategy<Value = Arc<GroupList>> {
        let verbs = prop::sample::subsequence(vec!["get", "list", "watch"], 0..=3);
        let own = ("[ab]", prop::sample::select(vec!["Foo", "Bar"]), any::<bool>(), verbs);
        let resources = prop::collection::vec(own, 0..3);
        let versions =
            prop::collection::vec((prop::sample::select(vec!["v1", "v2", "v1beta1"]), resources, any::<bool>()), 1..3);
        let groups = prop::collection::vec((prop::sample::select(vec!["x.io", "y.io"]), versions), 0..3);
        groups.prop_map(|groups| {
            let resource = |(name, kind, cluster, verbs): (String, &str, bool, Vec<&str>)| {
                let mut resource = resource(&name, kind, &verbs);
                if cluster {
                    resource.scope = "Cluster".into();
                }
                resource
            };
            let groups = groups.into_iter().map(|(name, versions)| {
                let stale: Vec<_> = versions.iter().map(|(_, _, stale)| *stale).collect();
                let versions: Vec<_> = versions
                    .into_iter()
                    .map(|(version, resources, _)| (version, resources.into_iter().map(resource).collect()))
                    .collect();
                let mut group = group(name, &versions);
                for (version, stale) in group.versions.iter_mut().zip(stale) {
                    if stale {
                        version.freshness = STALE.into();
                    }
                }
                group
            });
            Arc::new(limit_document(GroupList::new(groups.collect()), Root::Named).0)
        })
    }

    /// Returns the most frequent kind and scope, counted cluster by cluster.
    fn most_say<'a>(
        members: &'a [(ClusterName, Arc<MemberDiscovery>)],
        resource: &GroupVersionResource,
    ) -> Option<Nature<'a>> {
        let mut by_name: Vec<_> = members.iter().collect();
        by_name.sort_by(|(a, _), (b, _)| a.cmp(b));
        let own: Vec<_> = by_name.iter().filter_map(|(_, member)| Some(member.find(resource)?.nature())).collect();
        let count = |nature: &Nature<'_>| own.iter().filter(|other| *other == nature).count();
        own.iter().rev().max_by_key(|nature| count(nature)).copied()
    }

    proptest! {
        #[test]
        fn shared_and_copied_discovery_documents_give_the_same_union(
            documents in prop::collection::vec(documents(), 1..5),
            members in prop::collection::vec((0_usize..5, any::<u16>()), 1..12),
        ) {
            let shared: Vec<_> = members
                .iter()
                .enumerate()
                .map(|(number, (document, name))| {
                    let named = Arc::clone(&documents[document % documents.len()]);
                    let member = MemberDiscovery { core: Arc::default(), named };
                    (ClusterName::new(&format!("c{name}-{number}")).unwrap(), Arc::new(member))
                })
                .collect();
            let copied: Vec<_> = shared
                .iter()
                .map(|(name, member)| {
                    let named = Arc::new((*member.named).clone());
                    (name.clone(), Arc::new(MemberDiscovery { core: Arc::default(), named }))
                })
                .collect();
            let (merged_discovery, plain) = (MergedDiscovery::new(&shared), MergedDiscovery::new(&copied));
            prop_assert_eq!(&merged_discovery.named, &plain.named);
            prop_assert_eq!(&merged_discovery.resources, &plain.resources);
            prop_assert_eq!(&merged_discovery.clashes, &plain.clashes);
            for served in merged_discovery.resources() {
                prop_assert_eq!(Some(served.description.nature()), most_say(&shared, &served.resource));
                let serves = |(name, member): &(ClusterName, Arc<MemberDiscovery>)| {
                    let own = member.find(&served.resource)?;
                    (own.nature() == served.description.nature()).then(|| name.clone())
                };
                let mut clusters: Vec<_> = shared.iter().filter_map(serves).collect();
                clusters.sort();
                prop_assert_eq!(&served.clusters[..], &clusters[..]);
            }
        }
    }
}
