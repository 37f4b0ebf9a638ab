//! Marks by which clients recognize a cluster's objects: the annotation, and the form of the objects' resourceVersions.

use std::fmt::Write;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tributary_apimachinery::{
    ClusterAnnotation, ClusterAnnotations, ClusterName, ItemResourceVersions, ResourceVersion,
};
use tributary_merge::{ClusterIndex, IntegerResourceVersion, ItemEncoder, OpaqueVersion};

/// Texts that a response inserts into the objects of a cluster. They are computed once for each cluster.
#[derive(Debug)]
pub struct ClusterMark {
    /// Name of the cluster in the mark.
    pub name: ClusterName,
    annotation: ClusterAnnotation,
    annotation_with_karmada: ClusterAnnotation,
    item: ArcSwap<ItemEncoder>,
    index: Option<ClusterIndex>,
}

impl ClusterMark {
    /// Creates the mark of a cluster. `index` is the cluster's number in integer resourceVersions. An index above 9999
    /// is ignored.
    pub fn new(name: &ClusterName, index: Option<u16>) -> Self {
        Self {
            name: name.clone(),
            annotation: ClusterAnnotation::new(name),
            annotation_with_karmada: ClusterAnnotation::of(name, ClusterAnnotations::WithKarmada),
            item: ArcSwap::from_pointee(ItemEncoder::new(name)),
            index: index.and_then(|index| ClusterIndex::new(index).ok()),
        }
    }

    /// Sets the mark that the resourceVersions of the cluster's objects contain from now on, or removes the mark.
    /// Without a mark, clients could mix up these versions with versions of a different cluster that had the same name
    /// before.
    pub fn mark_versions(&self, mark: Option<&str>) {
        if mark.is_none() && !self.item.load().is_marked() {
            return;
        }
        self.item.store(Arc::new(ItemEncoder::marked(&self.name, mark)));
    }

    /// Copies the version mark of an earlier configuration of the same cluster.
    pub(crate) fn mark_versions_as(&self, before: &Self) {
        self.item.store(before.item.load_full());
    }

    /// Returns the annotations that name the cluster: only Tributary's own annotation, or also Karmada's.
    pub fn annotation(&self, annotations: ClusterAnnotations) -> &ClusterAnnotation {
        match annotations {
            ClusterAnnotations::Own => &self.annotation,
            ClusterAnnotations::WithKarmada => &self.annotation_with_karmada,
        }
    }

    /// Returns the cluster's number in integer resourceVersions.
    pub fn index(&self) -> Option<ClusterIndex> {
        self.index
    }

    /// Encodes, for clients, a member's resourceVersion that is not a number. The result contains the name of the
    /// cluster.
    pub fn opaque_version(&self, version: &str) -> String {
        OpaqueVersion::encode(&self.name, version)
    }

    /// Replaces the content of `out` by the resourceVersion of an object. Takes about 30 ns.
    ///
    /// If the integer form is impossible (the cluster has no index, or the version is larger than etcd's versions),
    /// `out` gets the composite form. Tributary accepts both forms.
    pub fn item_version(&self, form: ItemResourceVersions, version: ResourceVersion, out: &mut String) {
        out.clear();
        let integer = match (form, self.index) {
            (ItemResourceVersions::Integer, Some(index)) => IntegerResourceVersion::new(version, index).ok(),
            _ => None,
        };
        match integer {
            // A write to a String cannot fail.
            Some(integer) => drop(write!(out, "{}", integer.encode())),
            None => self.item.load().write(version, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_resource_version_needs_a_cluster_index_and_an_etcd_revision() {
        let name = ClusterName::new("c").unwrap();
        let written = |index, form, version| {
            let mut text = "before".to_owned();
            ClusterMark::new(&name, index).item_version(form, ResourceVersion(version), &mut text);
            text
        };
        let composite = |version| tributary_merge::item(&name, ResourceVersion(version));
        assert_eq!(written(Some(7), ItemResourceVersions::Integer, 1234), "12340007");
        assert_eq!(written(Some(0), ItemResourceVersions::Integer, 1), "10000");
        assert_eq!(written(Some(7), ItemResourceVersions::Composite, 1234), composite(1234));
        assert_eq!(written(None, ItemResourceVersions::Integer, 1234), composite(1234));
        assert_eq!(written(Some(10_000), ItemResourceVersions::Integer, 1234), composite(1234));
        assert_eq!(written(Some(7), ItemResourceVersions::Integer, u64::MAX), composite(u64::MAX));
    }
}
