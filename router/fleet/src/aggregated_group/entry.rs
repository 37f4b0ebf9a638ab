//! Discovery documents of the aggregated entry. Each document is serialized once.

use std::sync::OnceLock;

use serde_json::{Value, json};
use tributary_apimachinery::{ForeignDoors, ForeignSystem, MERGED_VIEW};

use super::{GROUP, VERSION, VIEWS, entry_group};
use crate::discovery::document::Document;
use crate::discovery::model::Group;
use crate::discovery::{DiscoveryPath, documents};
use crate::foreign_groups::groups_of;

/// Discovery documents of the aggregated entry for one combination of open doors.
struct EntryDiscovery {
    aggregated: Document,
    groups: Document,
    /// Name of each group and of its only version, with the documents of the group and of the version.
    by_name: Vec<(String, String, Document, Document)>,
}

impl EntryDiscovery {
    fn new(doors: &ForeignDoors) -> Self {
        let groups: Vec<Group> = [entry_group()].into_iter().chain(foreign_groups(doors)).collect();
        let named = groups.iter().map(|group| {
            let version = &group.versions[0];
            let name = &group.metadata.name;
            let resources = documents::resource_list(name, version, &documents::StorageVersionHashes::new());
            let group = documents::api_group_document(group);
            (name.clone(), version.version.clone(), Document::new(&group), Document::new(&resources))
        });
        let listed = groups.iter().map(|group| {
            let mut group = documents::api_group_document(group);
            if let Some(fields) = group.as_object_mut() {
                fields.retain(|name, _| !matches!(name.as_str(), "kind" | "apiVersion"));
            }
            group
        });
        Self {
            by_name: named.collect(),
            groups: Document::new(
                &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed.collect::<Vec<_>>()}),
            ),
            aggregated: Document::new(&json!({
                "kind": "APIGroupDiscoveryList",
                "apiVersion": "apidiscovery.k8s.io/v2",
                "metadata": {},
                "items": groups,
            })),
        }
    }

    /// Returns the documents for this combination of open doors. The first call for a combination builds them.
    fn for_doors(doors: &ForeignDoors) -> &'static Self {
        static MADE: [OnceLock<EntryDiscovery>; COMBINATIONS] = [const { OnceLock::new() }; COMBINATIONS];
        MADE[combination(doors)].get_or_init(|| Self::new(doors))
    }
}

/// Number of combinations of open doors: each foreign system has one door.
pub(crate) const COMBINATIONS: usize = 1 << ForeignSystem::ALL.len();

/// Returns the index of a combination of open doors, less than [`COMBINATIONS`].
pub(crate) fn combination(doors: &ForeignDoors) -> usize {
    let bits = ForeignSystem::ALL.into_iter().enumerate();
    bits.map(|(at, system)| usize::from(doors.is_open(system)) << at).sum()
}

/// Returns the groups of the open doors.
pub(crate) fn foreign_groups(doors: &ForeignDoors) -> impl Iterator<Item = Group> {
    ForeignSystem::ALL.into_iter().filter(|system| doors.is_open(*system)).flat_map(groups_of)
}

/// Returns the aggregated discovery document (`apidiscovery.k8s.io/v2`) of the aggregated entry.
pub fn aggregated_discovery(doors: &ForeignDoors) -> &'static Document {
    &EntryDiscovery::for_doors(doors).aggregated
}

/// Returns the legacy discovery document of the aggregated entry at a path; `None` if the entry does not serve the
/// path.
pub fn legacy_discovery(doors: &ForeignDoors, path: &DiscoveryPath<'_>) -> Option<&'static Document> {
    let discovery = EntryDiscovery::for_doors(doors);
    let mut named = discovery.by_name.iter();
    match path {
        DiscoveryPath::Groups => Some(&discovery.groups),
        DiscoveryPath::Group(group) => named.find(|own| own.0 == *group).map(|own| &own.2),
        DiscoveryPath::Version(group, version) => {
            named.find(|own| own.0 == *group && own.1 == *version).map(|own| &own.3)
        }
        _ => None,
    }
}

/// Returns the object of the resource `views` for the merged view, with this resourceVersion.
pub fn view(resource_version: &str) -> Value {
    json!({
        "kind": "View",
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "metadata": {"name": MERGED_VIEW, "resourceVersion": resource_version},
        "status": {"path": format!("/apis/{GROUP}/{VERSION}/{VIEWS}/{MERGED_VIEW}/proxy")},
    })
}

#[cfg(test)]
mod tests {
    use super::super::{api_group, group_discovery, resource_list};
    use super::*;

    fn parsed(document: &Document) -> Value {
        serde_json::from_slice(&document.json).unwrap()
    }

    #[test]
    fn discovery_of_the_aggregated_entry_has_one_group() {
        let closed = ForeignDoors::default();
        let legacy_discovery = |path: &_| legacy_discovery(&closed, path);
        let list = parsed(aggregated_discovery(&closed));
        assert_eq!(list["items"], json!([group_discovery()]));
        let groups = parsed(legacy_discovery(&DiscoveryPath::Groups).unwrap());
        assert_eq!(groups["groups"].as_array().unwrap().len(), 1);
        assert_eq!((&groups["groups"][0]["name"], &groups["groups"][0]["kind"]), (&json!(GROUP), &Value::Null));
        assert_eq!(parsed(legacy_discovery(&DiscoveryPath::Group(GROUP)).unwrap()), api_group());
        assert_eq!(parsed(legacy_discovery(&DiscoveryPath::Version(GROUP, VERSION)).unwrap()), resource_list());
        for path in
            [DiscoveryPath::Root, DiscoveryPath::Core, DiscoveryPath::Group("apps"), DiscoveryPath::Version("", "v1")]
        {
            assert!(legacy_discovery(&path).is_none(), "{path:?}");
        }
    }

    #[test]
    fn discovery_of_the_aggregated_entry_has_the_groups_of_open_doors() {
        let mut doors = ForeignDoors::default();
        doors.open(ForeignSystem::ClusterGateway, [].into());
        let path = DiscoveryPath::Version("cluster.core.oam.dev", "v1alpha1");
        assert!(legacy_discovery(&ForeignDoors::default(), &path).is_none());
        let resources = parsed(legacy_discovery(&doors, &path).unwrap());
        let names: Vec<_> = resources["resources"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
        assert_eq!(names, ["clustergateways", "clustergateways/health", "clustergateways/proxy", "virtualclusters"]);
        assert!(legacy_discovery(&doors, &DiscoveryPath::Group("cluster.karmada.io")).is_none());
        doors.open(ForeignSystem::Karmada, [].into());
        let list = parsed(aggregated_discovery(&doors));
        let groups: Vec<_> = list["items"].as_array().unwrap().iter().map(|it| &it["metadata"]["name"]).collect();
        assert_eq!(groups, [GROUP, "cluster.core.oam.dev", "cluster.karmada.io", "search.karmada.io"]);
        assert_eq!(
            parsed(legacy_discovery(&doors, &DiscoveryPath::Groups).unwrap())["groups"].as_array().unwrap().len(),
            4
        );
    }
}
