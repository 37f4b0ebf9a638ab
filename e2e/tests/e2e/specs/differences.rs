//! The specs that pass on a bare member and not through Tributary, on purpose, and why. Nothing else may differ, and what is
//! listed here has to differ still.

use super::Target;

/// One deliberate difference.
#[derive(Debug)]
pub(crate) struct Difference {
    /// For each spec a part of its full name that no other spec has.
    pub(crate) specs: &'static [&'static str],
    /// Where they fail.
    pub(crate) targets: &'static [Target],
    /// Why.
    pub(crate) reason: &'static str,
}

/// Through Tributary over any number of members.
const TRIBUTARY: &[Target] = &[Target::OverOne, Target::OverTwo];

/// All of them.
pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        specs: &["health handlers should contain necessary checks"],
        targets: TRIBUTARY,
        reason: "it asks for kube-apiserver's own poststarthook lines; /readyz?verbose has a line for each cluster instead",
    },
    Difference {
        specs: &[
            "client-go should negotiate watch and report errors with accept \"application/vnd.kubernetes.protobuf\"",
        ],
        targets: TRIBUTARY,
        reason: "objects are held as JSON: a client that takes protobuf alone is told so by a 406",
    },
    Difference {
        specs: &[
            "API priority and fairness should ensure that requests can be classified",
            "MetricsGrabber should grab all metrics slis from API server",
        ],
        targets: TRIBUTARY,
        reason: "it looks for kube-apiserver's own metrics; /metrics is Tributary's, a member's are under /clusters/<name>/metrics",
    },
    Difference {
        specs: &[
            "API priority and fairness should support FlowSchema API operations",
            "API priority and fairness should support PriorityLevelConfiguration API operations",
            "custom resource defaulting for requests and from storage works",
            "CustomResourcePublishOpenAPI [Privileged:ClusterAdmin] removes definition from spec when one version gets changed to not be served",
            "MutatingAdmissionPolicy [Privileged:ClusterAdmin] should support MutatingAdmissionPolicy API operations",
            "MutatingAdmissionPolicy [Privileged:ClusterAdmin] should support MutatingAdmissionPolicyBinding API operations",
            "ResourceQuota should manage the lifecycle of a ResourceQuota",
            "ValidatingAdmissionPolicy [Privileged:ClusterAdmin] should support ValidatingAdmissionPolicy API operations",
            "ValidatingAdmissionPolicy [Privileged:ClusterAdmin] should support ValidatingAdmissionPolicyBinding API operations",
            "Certificates API [Privileged:ClusterAdmin] should support CSR API operations",
            "ServiceAccounts should run through the lifecycle of a ServiceAccount",
            "Events API should ensure that an event can be fetched, patched, deleted, and listed",
            "Namespaces [Serial] should patch a Namespace",
        ],
        targets: &[Target::OverOne],
        reason: "it compares versions as numbers, which Composite ones are not; with Integer ones, as over two, it passes",
    },
    Difference {
        specs: &["Kubectl get componentstatuses should get componentstatuses"],
        targets: &[Target::OverTwo],
        reason: "it names a ComponentStatus that each member has: 409 with the paths of both",
    },
];

/// The difference that a spec is known for at a target.
pub(crate) fn of(target: Target, spec: &str) -> Option<&'static Difference> {
    let is_known = |difference: &&Difference| difference.specs.iter().any(|part| spec.contains(part));
    DIFFERENCES.iter().find(|difference| difference.targets.contains(&target) && is_known(difference))
}
