//! The specs that pass on a bare member and not through Tributary, on purpose, and why. Nothing else may differ, and what is
//! listed here has to differ still.

use super::Target;

/// One deliberate difference.
#[derive(Debug)]
pub(crate) struct Difference {
    /// A part of the spec's full name that no other spec has.
    pub(crate) spec: &'static str,
    /// Where it fails.
    pub(crate) targets: &'static [Target],
    /// Why.
    pub(crate) reason: &'static str,
}

/// Through Tributary over any number of members.
const TRIBUTARY: &[Target] = &[Target::OverOne, Target::OverTwo];

/// All of them.
pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        spec: "health handlers should contain necessary checks",
        targets: TRIBUTARY,
        reason: "it asks for kube-apiserver's own poststarthook lines; /readyz?verbose has a line for each cluster instead",
    },
    Difference {
        spec: "client-go should negotiate watch and report errors with accept \"application/vnd.kubernetes.protobuf\"",
        targets: TRIBUTARY,
        reason: "objects are held as JSON: a client that takes protobuf alone is told so by a 406",
    },
];

/// The difference that a spec is known for at a target.
pub(crate) fn of(target: Target, spec: &str) -> Option<&'static Difference> {
    DIFFERENCES.iter().find(|difference| difference.targets.contains(&target) && spec.contains(difference.spec))
}
