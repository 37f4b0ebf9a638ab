//! Index of a discovery document by names. Without the index, each lookup of a resource would search the whole
//! document. Tributary looks up each resource of the merged view in each document.

use std::collections::HashMap;

use tributary_apimachinery::GroupVersionResource;

use super::model::{Group, GroupList, Resource};
use super::not_merged::NotMergedReason;

/// Index of a document. All names in the document are unique, because `intake.rs` removes repeated names. Costs one
/// entry for each resource.
pub(super) struct DocumentIndex<'a> {
    /// Resources by group, version and name.
    pub(super) resources: HashMap<(&'a str, &'a str, &'a str), &'a Resource>,
    /// Versions of each resource, by group and name.
    versions: HashMap<(&'a str, &'a str), Vec<&'a str>>,
    /// Groups with an API version that discovery lists without its resources.
    undescribed: HashMap<&'a str, &'a Group>,
}

impl<'a> DocumentIndex<'a> {
    pub(super) fn new(document: &'a GroupList) -> Self {
        let mut index = Self { resources: HashMap::new(), versions: HashMap::new(), undescribed: HashMap::new() };
        for group in &document.items {
            let group_name = &*group.metadata.name;
            if !group.is_described() {
                index.undescribed.insert(group_name, group);
            }
            for version in &group.versions {
                let version_name = &*version.version;
                for resource in &version.resources {
                    let name = &*resource.resource;
                    index.resources.entry((group_name, version_name, name)).or_insert_with(|| {
                        index.versions.entry((group_name, name)).or_default().push(version_name);
                        resource
                    });
                }
            }
        }
        index
    }

    pub(super) fn find(&self, resource: &GroupVersionResource) -> Option<&'a Resource> {
        self.resources.get(&(&*resource.group, &*resource.version, &*resource.resource)).copied()
    }

    /// Returns why the merged view omits a cluster that does not serve a resource in this version: the cluster serves
    /// the resource only in different versions, or lists the version without its resources. `None` if the cluster lacks
    /// the resource in all versions.
    pub(super) fn not_merged_reason(&self, resource: &GroupVersionResource) -> Option<NotMergedReason> {
        let undescribed = self.undescribed.get(&*resource.group).and_then(|group| group.undescribed(&resource.version));
        if let Some(undescribed) = undescribed {
            return Some(NotMergedReason::Undescribed(undescribed));
        }
        let versions = self.versions.get(&(&*resource.group, &*resource.resource))?;
        Some(NotMergedReason::InVersions(versions.iter().map(|version| (*version).to_owned()).collect()))
    }
}
