//! The built-in resources that kube-apiservers serve by default, with subresources and verbs.

/// The verbs that a kube-apiserver supports for most resources (`OBJECT_VERBS`) and for most subresources
/// (`SUBRESOURCE_VERBS`).
const OBJECT_VERBS: &str = "create delete deletecollection get list patch update watch";
const SUBRESOURCE_VERBS: &str = "get patch update";

/// Rows with a group, verbs, and the resources of the group that support exactly these verbs. The table has all
/// resources that each kube-apiserver serves by default, and the metrics API, which most clusters have. A test compares
/// the table with a real kube-apiserver (`e2e/tests/e2e/shared_mode/join.rs`).
///
/// Source: kubernetes `api/discovery/api__v1.json` and `aggregated_v2.json`, the versions that are enabled by default.
const SERVED_BY_DEFAULT: &[(&str, &str, &str)] = &[
    (
        "",
        OBJECT_VERBS,
        "configmaps endpoints events limitranges nodes persistentvolumeclaims persistentvolumes pods \
         podtemplates replicationcontrollers resourcequotas secrets serviceaccounts services",
    ),
    ("", "create", "bindings pods/binding pods/eviction serviceaccounts/token"),
    ("", "create delete get list patch update watch", "namespaces"),
    ("", "create delete get patch update", "nodes/proxy pods/proxy services/proxy"),
    ("", "create get", "pods/attach pods/exec pods/portforward"),
    ("", "get", "pods/log"),
    ("", "get list", "componentstatuses"),
    (
        "",
        SUBRESOURCE_VERBS,
        "namespaces/status nodes/status persistentvolumeclaims/status persistentvolumes/status \
         pods/ephemeralcontainers pods/resize pods/status replicationcontrollers/scale \
         replicationcontrollers/status resourcequotas/status services/status",
    ),
    ("", "update", "namespaces/finalize"),
    (
        "admissionregistration.k8s.io",
        OBJECT_VERBS,
        "mutatingadmissionpolicies mutatingadmissionpolicybindings mutatingwebhookconfigurations \
         validatingadmissionpolicies validatingadmissionpolicybindings validatingwebhookconfigurations",
    ),
    ("admissionregistration.k8s.io", SUBRESOURCE_VERBS, "validatingadmissionpolicies/status"),
    ("apiextensions.k8s.io", OBJECT_VERBS, "customresourcedefinitions"),
    ("apiextensions.k8s.io", SUBRESOURCE_VERBS, "customresourcedefinitions/status"),
    ("apiregistration.k8s.io", OBJECT_VERBS, "apiservices"),
    ("apiregistration.k8s.io", SUBRESOURCE_VERBS, "apiservices/status"),
    ("apps", OBJECT_VERBS, "controllerrevisions daemonsets deployments replicasets statefulsets"),
    (
        "apps",
        SUBRESOURCE_VERBS,
        "daemonsets/status deployments/scale deployments/status replicasets/scale replicasets/status \
         statefulsets/scale statefulsets/status",
    ),
    ("authentication.k8s.io", "create", "selfsubjectreviews tokenreviews"),
    (
        "authorization.k8s.io",
        "create",
        "localsubjectaccessreviews selfsubjectaccessreviews selfsubjectrulesreviews subjectaccessreviews",
    ),
    ("autoscaling", OBJECT_VERBS, "horizontalpodautoscalers"),
    ("autoscaling", SUBRESOURCE_VERBS, "horizontalpodautoscalers/status"),
    ("batch", OBJECT_VERBS, "cronjobs jobs"),
    ("batch", SUBRESOURCE_VERBS, "cronjobs/status jobs/status"),
    ("certificates.k8s.io", OBJECT_VERBS, "certificatesigningrequests"),
    ("certificates.k8s.io", SUBRESOURCE_VERBS, "certificatesigningrequests/approval certificatesigningrequests/status"),
    ("coordination.k8s.io", OBJECT_VERBS, "leases"),
    ("discovery.k8s.io", OBJECT_VERBS, "endpointslices"),
    ("events.k8s.io", OBJECT_VERBS, "events"),
    ("flowcontrol.apiserver.k8s.io", OBJECT_VERBS, "flowschemas prioritylevelconfigurations"),
    ("flowcontrol.apiserver.k8s.io", SUBRESOURCE_VERBS, "flowschemas/status prioritylevelconfigurations/status"),
    ("metrics.k8s.io", "get list", "nodes pods"),
    ("networking.k8s.io", OBJECT_VERBS, "ingressclasses ingresses ipaddresses networkpolicies servicecidrs"),
    ("networking.k8s.io", SUBRESOURCE_VERBS, "ingresses/status servicecidrs/status"),
    ("node.k8s.io", OBJECT_VERBS, "runtimeclasses"),
    ("policy", OBJECT_VERBS, "poddisruptionbudgets"),
    ("policy", SUBRESOURCE_VERBS, "poddisruptionbudgets/status"),
    ("rbac.authorization.k8s.io", OBJECT_VERBS, "clusterrolebindings clusterroles rolebindings roles"),
    ("resource.k8s.io", OBJECT_VERBS, "deviceclasses resourceclaims resourceclaimtemplates resourceslices"),
    ("resource.k8s.io", SUBRESOURCE_VERBS, "resourceclaims/status"),
    ("scheduling.k8s.io", OBJECT_VERBS, "priorityclasses"),
    (
        "storage.k8s.io",
        OBJECT_VERBS,
        "csidrivers csinodes csistoragecapacities storageclasses volumeattachments volumeattributesclasses",
    ),
    ("storage.k8s.io", SUBRESOURCE_VERBS, "volumeattachments/status"),
];

/// Iterates over the resources that each kube-apiserver serves by default, and the resources of the metrics API, as
/// group, verbs (separated by spaces) and name. The name of a subresource has the form `resource/subresource`.
pub fn served_by_default() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    SERVED_BY_DEFAULT.iter().flat_map(|(group, verbs, resources)| {
        resources.split_whitespace().map(move |resource| (*group, *verbs, resource))
    })
}
