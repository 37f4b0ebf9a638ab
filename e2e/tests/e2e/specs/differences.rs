//! Specs that pass on a bare member but deliberately fail through Tributary, with the reasons. All other specs must
//! have the same result, and a listed spec must still fail.

use super::Target;

#[derive(Debug)]
pub(crate) struct Difference {
    /// Parts of the full names of specs. Each part occurs in only one name.
    pub(crate) specs: &'static [&'static str],
    pub(crate) targets: &'static [Target],
    /// Part of the failure's text by which the test recognizes this reason.
    pub(crate) sign: &'static str,
    pub(crate) reason: &'static str,
}

/// Targets that have a Tributary.
const TRIBUTARY: &[Target] = &[Target::OverOne, Target::OverTwo];

pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        specs: &["health handlers should contain necessary checks"],
        targets: TRIBUTARY,
        sign: "missing required /healthz?verbose=1 checks",
        reason: "it asks for kube-apiserver's own poststarthook lines; /readyz?verbose has a line for each cluster instead",
    },
    Difference {
        specs: &[
            "client-go should negotiate watch and report errors with accept \"application/vnd.kubernetes.protobuf\"",
        ],
        targets: TRIBUTARY,
        sign: "only the following media types are accepted: application/json, application/yaml",
        reason: "objects are held as JSON: a client that takes protobuf alone is told so by a 406",
    },
    Difference {
        specs: &["API priority and fairness should ensure that requests can be classified"],
        targets: TRIBUTARY,
        // This part of the text names the source line at which the spec waits for a metric.
        sign: "flowcontrol.go:841] Unexpected error",
        reason: "it looks for kube-apiserver's own metrics; /metrics is Tributary's, a member's are under /clusters/<name>/metrics",
    },
    Difference {
        specs: &["MetricsGrabber should grab all metrics slis from API server"],
        targets: TRIBUTARY,
        sign: "the server could not find the requested resource",
        reason: "/metrics/slis is kube-apiserver's own; a member's is under /clusters/<name>/metrics/slis",
    },
    Difference {
        specs: &[
            "[sig-api-machinery] API priority and fairness should support FlowSchema API operations [Conformance]",
            "[sig-api-machinery] API priority and fairness should support PriorityLevelConfiguration API operations [Conformance]",
            "[sig-api-machinery] CustomResourceDefinition resources [Privileged:ClusterAdmin] custom resource defaulting for requests and from storage works [Conformance]",
            "[sig-api-machinery] CustomResourcePublishOpenAPI [Privileged:ClusterAdmin] removes definition from spec when one version gets changed to not be served [Conformance]",
            "[sig-api-machinery] MutatingAdmissionPolicy [Privileged:ClusterAdmin] should support MutatingAdmissionPolicy API operations [Conformance]",
            "[sig-api-machinery] MutatingAdmissionPolicy [Privileged:ClusterAdmin] should support MutatingAdmissionPolicyBinding API operations [Conformance]",
            "[sig-api-machinery] Namespaces [Serial] should patch a Namespace [Conformance]",
            "[sig-api-machinery] ResourceQuota should manage the lifecycle of a ResourceQuota [Conformance]",
            "[sig-api-machinery] ValidatingAdmissionPolicy [Privileged:ClusterAdmin] should support ValidatingAdmissionPolicy API operations [Conformance]",
            "[sig-api-machinery] ValidatingAdmissionPolicy [Privileged:ClusterAdmin] should support ValidatingAdmissionPolicyBinding API operations [Conformance]",
            "[sig-apps] ControllerRevision [Serial] should manage the lifecycle of a ControllerRevision [Conformance]",
            "[sig-apps] CronJob should support CronJob API operations [Conformance]",
            "[sig-apps] Daemon set [Serial] should update pod when spec was updated and update strategy is RollingUpdate [Conformance]",
            "[sig-apps] Deployment should run the lifecycle of a Deployment [Conformance]",
            "[sig-apps] DisruptionController should create a PodDisruptionBudget [Conformance]",
            "[sig-apps] Job should manage the lifecycle of a job [Conformance]",
            "[sig-apps] ReplicaSet Replace and Patch tests [Conformance]",
            "[sig-apps] ReplicationController should test the lifecycle of a ReplicationController [Conformance]",
            "[sig-apps] StatefulSet Basic StatefulSet functionality [StatefulSetBasic] should list, patch and delete a collection of StatefulSets [Conformance]",
            "[sig-auth] Certificates API [Privileged:ClusterAdmin] should support CSR API operations [Conformance]",
            "[sig-auth] ServiceAccounts should run through the lifecycle of a ServiceAccount [Conformance]",
            "[sig-instrumentation] Events API should ensure that an event can be fetched, patched, deleted, and listed [Conformance]",
            "[sig-network] EndpointSlice should support creating EndpointSlice API operations [Conformance]",
            "[sig-network] Endpoints should test the lifecycle of an Endpoint [Conformance]",
            "[sig-network] Ingress API should support creating Ingress API operations [Conformance]",
            "[sig-network] IngressClass API should support creating IngressClass API operations [Conformance]",
            "[sig-network] ServiceCIDR and IPAddress API should support IPAddress API operations [Conformance]",
            "[sig-node] ConfigMap should run through a ConfigMap lifecycle [Conformance]",
            "[sig-node] Lease lease API should be available [Conformance]",
            "[sig-node] Node Lifecycle should run through the lifecycle of a node [Conformance]",
            "[sig-node] PodTemplates should run the lifecycle of PodTemplates [Conformance]",
            "[sig-node] Pods should run through the lifecycle of Pods and PodStatus [Conformance]",
            "[sig-node] RuntimeClass should support RuntimeClasses API operations [Conformance]",
            "[sig-node] Secrets should patch a secret [Conformance]",
            "[sig-scheduling] LimitRange should list, patch and delete a LimitRange by collection [Conformance]",
            "[sig-scheduling] SchedulerPreemption [Serial] PriorityClass endpoints verify PriorityClass endpoints can be operated with different HTTP methods [Conformance]",
        ],
        targets: &[Target::OverOne],
        sign: "Expected resource version to be a valid uint128",
        reason: "it compares versions as numbers, which Composite ones are not; with Integer ones, as over two, it passes",
    },
    Difference {
        specs: &[
            "Kubectl get componentstatuses should get componentstatuses",
            "ServiceCIDR and IPAddress API should support ServiceCIDR API operations",
        ],
        targets: &[Target::OverTwo],
        sign: "exists in more than one cluster",
        reason: "it reads what every member has by the same name: get is a 409 with the paths of both, list and watch have both",
    },
    Difference {
        specs: &["API Server should have Endpoints and EndpointSlices pointing to API Server"],
        targets: &[Target::OverTwo],
        sign: "EndpointSlice ports do not match Endpoints ports",
        reason: "it expects the EndpointSlices of one kube-apiserver: a list has those of every member's",
    },
];

/// Returns the listed difference of a spec at a target, if any.
pub(crate) fn of(target: Target, spec: &str) -> Option<&'static Difference> {
    let is_known = |difference: &&Difference| difference.specs.iter().any(|part| spec.contains(part));
    DIFFERENCES.iter().find(|difference| difference.targets.contains(&target) && is_known(difference))
}
