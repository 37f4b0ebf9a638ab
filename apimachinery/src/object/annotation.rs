//! The annotations that name an object's cluster, and their insertion into objects.

use crate::{ClusterName, json};

/// The key of the annotation that names an object's cluster.
pub const CLUSTER_ANNOTATION: &str = "tributary.dev/cluster";

/// The key of the annotation by which objects of Karmada's search proxy name their cluster
/// (`CacheSourceAnnotationKey` in Karmada's `pkg/apis/cluster/v1alpha1`).
pub const KARMADA_ANNOTATION: &str = "resource.karmada.io/cached-from-cluster";

/// The keys of all annotations that name an object's cluster. Only answers have these annotations: Tributary removes
/// them from bodies and from members' objects.
pub(crate) const CLUSTER_ANNOTATIONS: [&str; 2] = [CLUSTER_ANNOTATION, KARMADA_ANNOTATION];

/// Returns whether a key in JSON text, without its quotes, is the key of an annotation that names an object's cluster.
pub(crate) fn is_cluster_annotation(key: &[u8]) -> bool {
    CLUSTER_ANNOTATIONS.iter().any(|own| json::key_equals(key, own))
}

/// The annotations that name the cluster of each object in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClusterAnnotations {
    /// `tributary.dev/cluster`.
    #[default]
    Own,
    /// `tributary.dev/cluster` and Karmada's `resource.karmada.io/cached-from-cluster`.
    WithKarmada,
}

impl ClusterAnnotations {
    /// Returns the keys of the annotations.
    pub fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Own => &CLUSTER_ANNOTATIONS[..1],
            Self::WithKarmada => &CLUSTER_ANNOTATIONS,
        }
    }
}

/// The annotations that name an object's cluster, ready to be inserted into objects.
#[derive(Clone, Debug)]
pub struct ClusterAnnotation {
    pub(super) new_map: Box<[u8]>,
    pub(super) before_others: Box<[u8]>,
    pub(super) empty_map: Box<[u8]>,
}

impl ClusterAnnotation {
    /// Creates Tributary's own annotation of a cluster.
    pub fn new(cluster: &ClusterName) -> Self {
        Self::of(cluster, ClusterAnnotations::Own)
    }

    /// Creates the annotations of a cluster with the keys of `annotations`. The name of a cluster needs no escapes in
    /// JSON.
    pub fn of(cluster: &ClusterName, annotations: ClusterAnnotations) -> Self {
        let members: Vec<_> = annotations.keys().iter().map(|key| format!("\"{key}\":\"{cluster}\"")).collect();
        let member = members.join(",");
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
    /// The annotations map has entries. The cluster annotations are inserted before these entries.
    BeforeOthers,
    EmptyMap,
}
