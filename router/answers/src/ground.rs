//! The grounds on which a write means a cluster, in their order, and their words.

use std::fmt;

use tributary_apimachinery::object::CLUSTER_ANNOTATION;

/// Ground on which a write belongs to a cluster. The first ground that applies decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// The body's annotation names it.
    Annotation,
    /// The version, or the uid, that the write depends on is of that cluster.
    Precondition,
    /// The cluster has the owner of the object, or the object of an Event.
    Owner,
    /// The records of the object's Helm release are there.
    Release,
    /// No other cluster has an object of the name.
    Name,
    /// No other cluster has the Pod, or the node, of a Binding, or the node of a new Pod.
    Node,
    /// No other cluster serves the kind.
    Kind,
    /// No other cluster has the namespace.
    Namespace,
    /// The configuration names it.
    Placement,
}

impl Ground {
    /// Grounds for the cluster of a new object, in order of precedence. A precondition counts only by its version,
    /// which names the cluster of an earlier object.
    pub const OF_NEW: [Self; 8] = [
        Self::Annotation,
        Self::Precondition,
        Self::Owner,
        Self::Release,
        Self::Node,
        Self::Kind,
        Self::Namespace,
        Self::Placement,
    ];

    /// Grounds in a write to an existing name, in order of precedence.
    pub const OF_EXISTING: [Self; 5] = [Self::Annotation, Self::Precondition, Self::Owner, Self::Release, Self::Node];

    /// Whether the ground holds only if no other cluster has the object. Then an unknown cluster may have the object as
    /// well.
    pub fn rests_on_others(self) -> bool {
        matches!(self, Self::Name | Self::Node | Self::Kind | Self::Namespace)
    }
}

/// Why this cluster: a clause that can follow "because".
impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Annotation => return write!(f, "the annotation {CLUSTER_ANNOTATION} names it"),
            Self::Precondition => "the resourceVersion or uid is of that cluster",
            Self::Owner => "the owner of the object, or what the Event is about, is there",
            Self::Release => "the records of the Helm release are there",
            Self::Name => "no other cluster has an object of the name",
            Self::Node => "the Pod or its node is only there",
            Self::Kind => "no other cluster serves the resource",
            Self::Namespace => "no other cluster has the namespace",
            Self::Placement => "--create-in, or placement of a ResourceRegistry, names it",
        })
    }
}
