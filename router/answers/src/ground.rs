//! Grounds: the facts from which Tributary infers the cluster of a write, with texts for messages. The grounds are in
//! order of precedence.

use std::fmt;

use tributary_apimachinery::object::CLUSTER_ANNOTATION;

/// Fact from which Tributary infers the cluster of a write. The first ground that applies decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// The annotation `tributary.dev/cluster` in the request's body names the cluster.
    Annotation,
    /// The resourceVersion or uid in the write's precondition belongs to an object of the cluster.
    Precondition,
    /// The cluster has the owner in `ownerReferences`, or the object that an Event describes.
    Owner,
    /// The cluster has the records of the object's Helm release.
    Release,
    /// No other cluster has an object of this name.
    Name,
    /// No other cluster has the Pod or Node of a Binding, or the Node of a new Pod.
    Node,
    /// No other cluster serves the kind.
    Kind,
    /// No other cluster has the namespace.
    Namespace,
    /// The flag `--create-in`, or the placement of a ResourceRegistry, names the cluster.
    Placement,
}

impl Ground {
    /// Grounds for the cluster of a new object that rest on other objects in the clusters. In order of precedence.
    pub const BY_EVIDENCE: [Self; 4] = [Self::Release, Self::Node, Self::Kind, Self::Namespace];

    /// Grounds for the cluster of a write to an object that may already exist. In order of precedence.
    pub const OF_EXISTING: [Self; 5] = [Self::Annotation, Self::Precondition, Self::Owner, Self::Release, Self::Node];

    /// Returns whether the ground relies on the absence of something in all other clusters. Such a ground is unsafe
    /// while a cluster is unreachable, because the unreachable cluster may be the right one.
    pub fn requires_absence_elsewhere(self) -> bool {
        matches!(self, Self::Name | Self::Node | Self::Kind | Self::Namespace)
    }
}

/// Displays the reason for the cluster as a clause that can follow "because".
impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Annotation => return write!(f, "the annotation {CLUSTER_ANNOTATION} names this cluster"),
            Self::Precondition => "the resourceVersion or uid is of that cluster",
            Self::Owner => "the owner of the object, or the object of the Event, is in this cluster",
            Self::Release => "the records of the Helm release are in this cluster",
            Self::Name => "no other cluster has an object with this name",
            Self::Node => "only this cluster has the Pod or its node",
            Self::Kind => "no other cluster serves the resource",
            Self::Namespace => "no other cluster has the namespace",
            Self::Placement => "--create-in, or placement of a ResourceRegistry, names this cluster",
        })
    }
}
