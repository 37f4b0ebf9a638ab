//! The grounds on which a write means a cluster, in their order, and their words.

use std::fmt;

use tributary_apimachinery::object::CLUSTER_ANNOTATION;

/// On what ground a write means a cluster. The first that applies decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// The body's annotation names it.
    Annotation,
    /// The version, or the uid, that the write depends on is of that cluster.
    Precondition,
    /// The owner of the object is there, or what an Event is about.
    Owner,
    /// The records of the object's Helm release are there.
    Release,
    /// It is the only one that has an object of the name.
    Name,
    /// It is the only one that has the Pod, or the node, of a Binding, or the node that a new Pod is bound to.
    Node,
    /// It is the only one that serves such objects.
    Kind,
    /// It is the only one that has the namespace.
    Namespace,
    /// The configuration names it.
    Placement,
}

impl Ground {
    /// What may decide about a new object, in its order. Of a precondition the version alone can: it says where the
    /// object was.
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

    /// What a write of a name may say of the cluster whose object it means, in its order.
    pub const OF_EXISTING: [Self; 5] = [Self::Annotation, Self::Precondition, Self::Owner, Self::Release, Self::Node];

    /// Whether it speaks for a cluster only because no other has something: then one that is unknown may have it, too.
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
