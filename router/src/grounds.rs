//! On what ground a write means a cluster: one ordered list, and the decision about what speaks for a cluster. Pure, so
//! that a table can test it; `forward/meant.rs` finds out what there is to decide about.

use std::fmt;

use tributary_apimachinery::ClusterName;
use tributary_apimachinery::object::CLUSTER_ANNOTATION;

/// On what ground a write means a cluster. The first that applies decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ground {
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
    /// It is the only one that has the node that a new Pod is bound to.
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
    pub(crate) const OF_NEW: [Self; 8] = [
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
    pub(crate) const OF_EXISTING: [Self; 5] =
        [Self::Annotation, Self::Precondition, Self::Owner, Self::Release, Self::Name];

    /// Whether it speaks for a cluster only because no other has something: then one that is unknown may have it, too.
    fn rests_on_others(self) -> bool {
        matches!(self, Self::Name | Self::Node | Self::Kind | Self::Namespace)
    }

    /// What speaks for a cluster, or against each. `placement` is the cluster that the configuration names.
    pub(crate) fn judge(self, evidence: Evidence, placement: Option<&ClusterName>) -> Verdict {
        let Evidence { has, mut may } = evidence;
        may.retain(|cluster| !has.contains(cluster));
        match <[ClusterName; 1]>::try_from(has) {
            // What it would be chosen for anyway needs no other ground.
            Ok([only]) if self.rests_on_others() && !may.is_empty() && placement == Some(&only) => Verdict::Nothing,
            Ok([only]) if self.rests_on_others() && !may.is_empty() => Verdict::Unsure { known: only, unknown: may },
            Ok([only]) => Verdict::Meant(only),
            Err(none) if none.is_empty() && self == Self::Release && !may.is_empty() => Verdict::Perhaps(may),
            Err(several) if !several.is_empty() && self == Self::Release => Verdict::Several(several),
            Err(_) => Verdict::Nothing,
        }
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

/// Which clusters a ground speaks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Those that have what it asks for.
    pub(crate) has: Vec<ClusterName>,
    /// Those of which it is not known.
    pub(crate) may: Vec<ClusterName>,
}

/// What a ground says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This cluster is meant.
    Meant(ClusterName),
    /// It cannot be told while these clusters are unknown.
    Unsure {
        /// The one that would be meant by what is known.
        known: ClusterName,
        /// Those that are not known.
        unknown: Vec<ClusterName>,
    },
    /// None is known to have what decides, and these clusters may.
    Perhaps(Vec<ClusterName>),
    /// It speaks for several, and each would be as wrong as the others.
    Several(Vec<ClusterName>),
    /// It does not apply: the next one decides.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<ClusterName> {
        text.split_whitespace().map(|it| ClusterName::new(it).unwrap()).collect()
    }

    #[test]
    fn what_speaks_for_a_cluster_decides() {
        let meant = |cluster: &str| Verdict::Meant(names(cluster).remove(0));
        let unsure =
            |known: &str, unknown: &str| Verdict::Unsure { known: names(known).remove(0), unknown: names(unknown) };
        let perhaps = |clusters| Verdict::Perhaps(names(clusters));
        let several = |clusters| Verdict::Several(names(clusters));
        let nothing = || Verdict::Nothing;
        let only = [Ground::Node, Ground::Kind, Ground::Namespace];
        let released = [Ground::Release];
        for (grounds, has, may, placement, expected) in [
            (&only[..], "a", "", "", meant("a")),
            (&only, "a", "", "b", meant("a")),
            (&only, "a", "b", "", unsure("a", "b")),
            (&only, "a", "b", "b", unsure("a", "b")),
            (&only, "a", "b", "c", unsure("a", "b")),
            // It goes where the configuration sends it, whatever the unknown one has.
            (&only, "a", "b", "a", nothing()),
            // One that is known to have it needs no asking.
            (&only, "a", "a", "", meant("a")),
            (&only, "a b", "", "", nothing()),
            (&only, "a b", "c", "a", nothing()),
            (&only, "", "", "", nothing()),
            (&only, "", "a", "", nothing()),
            (&released, "a", "", "b", meant("a")),
            (&released, "a", "b", "b", meant("a")),
            (&released, "a b", "", "a", several("a b")),
            (&released, "a b", "c", "", several("a b")),
            (&released, "", "b", "a", perhaps("b")),
            (&released, "", "", "a", nothing()),
        ] {
            for ground in grounds {
                let evidence = Evidence { has: names(has), may: names(may) };
                let judged = ground.judge(evidence, names(placement).first());
                assert_eq!(judged, expected, "{ground:?}: {has}; {may}; {placement}");
            }
        }
    }
}
