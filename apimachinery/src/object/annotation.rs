//! The annotation that names an object's cluster, and its insertion into objects.

use crate::ClusterName;

/// The key of the annotation that names an object's cluster.
pub const CLUSTER_ANNOTATION: &str = "tributary.dev/cluster";

/// The annotation that names an object's cluster, ready to be inserted into objects.
#[derive(Clone, Debug)]
pub struct ClusterAnnotation {
    pub(super) new_map: Box<[u8]>,
    pub(super) before_others: Box<[u8]>,
    pub(super) empty_map: Box<[u8]>,
}

impl ClusterAnnotation {
    /// Creates the annotation of a cluster. The name of a cluster needs no escapes in JSON.
    pub fn new(cluster: &ClusterName) -> Self {
        let member = format!("\"{CLUSTER_ANNOTATION}\":\"{cluster}\"");
        Self {
            new_map: format!("\"annotations\":{{{member}}},").into_bytes().into(),
            before_others: format!("{member},").into_bytes().into(),
            empty_map: member.into_bytes().into(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnnotationPosition {
    /// The object has no annotations map. A new map becomes the first field of the metadata.
    NewMap,
    /// The annotations map has entries. The cluster annotation is inserted before these entries.
    BeforeOthers,
    EmptyMap,
}
