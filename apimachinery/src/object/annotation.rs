//! The annotation with an object's cluster, and its insertion.

use crate::ClusterName;

/// The key of the annotation with an object's cluster.
pub const CLUSTER_ANNOTATION: &str = "tributary.dev/cluster";

/// The annotation with an object's cluster, ready to be inserted into objects.
#[derive(Clone, Debug)]
pub struct ClusterAnnotation {
    pub(super) new_map: Box<[u8]>,
    pub(super) before_others: Box<[u8]>,
    pub(super) empty_map: Box<[u8]>,
}

impl ClusterAnnotation {
    /// Prepares the annotation of a cluster. A cluster's name needs no escapes in JSON.
    pub fn new(cluster: &ClusterName) -> Self {
        let member = format!("\"{CLUSTER_ANNOTATION}\":\"{cluster}\"");
        Self {
            new_map: format!("\"annotations\":{{{member}}},").into_bytes().into(),
            before_others: format!("{member},").into_bytes().into(),
            empty_map: member.into_bytes().into(),
        }
    }
}

/// The way in which the annotation is inserted into an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnnotationPlace {
    /// The object has no annotations map: a new map becomes the first field of the metadata.
    NewMap,
    /// The map has entries: the annotation precedes them.
    BeforeOthers,
    /// The object has an empty map.
    EmptyMap,
}
