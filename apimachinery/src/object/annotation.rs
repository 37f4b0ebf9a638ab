//! The annotation that names an object's cluster, and how it is added.

use crate::ClusterName;

/// The key of the annotation that names an object's cluster.
pub const CLUSTER_ANNOTATION: &str = "tributary.dev/cluster";

/// The annotation that names an object's cluster, ready to be spliced into objects.
#[derive(Clone, Debug)]
pub struct ClusterAnnotation {
    pub(super) new_map: Box<[u8]>,
    pub(super) before_others: Box<[u8]>,
    pub(super) empty_map: Box<[u8]>,
}

impl ClusterAnnotation {
    /// Prepares the annotation of one cluster. A cluster's name needs no escapes in JSON.
    pub fn new(cluster: &ClusterName) -> Self {
        let member = format!("\"{CLUSTER_ANNOTATION}\":\"{cluster}\"");
        Self {
            new_map: format!("\"annotations\":{{{member}}},").into_bytes().into(),
            before_others: format!("{member},").into_bytes().into(),
            empty_map: member.into_bytes().into(),
        }
    }
}

/// How the cluster's annotation is added to the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnnotationPlace {
    /// There is no annotations map: a new one is the first member of the metadata.
    NewMap,
    /// The map has members: ours comes before them.
    BeforeOthers,
    /// The map is empty.
    EmptyMap,
}
