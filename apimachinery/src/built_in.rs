//! The built-in resources of Kubernetes, with their kinds and scopes. No cluster can serve a built-in resource with a
//! different kind or scope.

mod served_by_default;

pub use served_by_default::served_by_default;

/// A row of the table: the group, resource and kind of a built-in resource, and whether the resource is namespaced.
type BuiltIn = (&'static str, &'static str, &'static str, bool);

/// The built-in resources of the Kubernetes versions 1.30 to 1.36, sorted by group and name, including the APIs that
/// are disabled by default. A test compares the list with a real kube-apiserver
/// (`e2e/tests/e2e/conformance/discovery.rs`).
///
/// Source: kubernetes/api, the `+genclient:nonNamespaced` marks of each type; kube-aggregator and
/// apiextensions-apiserver for the groups that they serve.
const BUILT_IN: &[BuiltIn] = &[
    ("", "bindings", "Binding", true),
    ("", "componentstatuses", "ComponentStatus", false),
    ("", "configmaps", "ConfigMap", true),
    ("", "endpoints", "Endpoints", true),
    ("", "events", "Event", true),
    ("", "limitranges", "LimitRange", true),
    ("", "namespaces", "Namespace", false),
    ("", "nodes", "Node", false),
    ("", "persistentvolumeclaims", "PersistentVolumeClaim", true),
    ("", "persistentvolumes", "PersistentVolume", false),
    ("", "pods", "Pod", true),
    ("", "podtemplates", "PodTemplate", true),
    ("", "replicationcontrollers", "ReplicationController", true),
    ("", "resourcequotas", "ResourceQuota", true),
    ("", "secrets", "Secret", true),
    ("", "serviceaccounts", "ServiceAccount", true),
    ("", "services", "Service", true),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", false),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", false),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", false),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", false),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", false),
    ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", false),
    ("apiregistration.k8s.io", "apiservices", "APIService", false),
    ("apps", "controllerrevisions", "ControllerRevision", true),
    ("apps", "daemonsets", "DaemonSet", true),
    ("apps", "deployments", "Deployment", true),
    ("apps", "replicasets", "ReplicaSet", true),
    ("apps", "statefulsets", "StatefulSet", true),
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview", false),
    ("authentication.k8s.io", "tokenreviews", "TokenReview", false),
    ("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview", true),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview", false),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview", false),
    ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", false),
    ("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler", true),
    ("batch", "cronjobs", "CronJob", true),
    ("batch", "jobs", "Job", true),
    ("certificates.k8s.io", "certificatesigningrequests", "CertificateSigningRequest", false),
    ("certificates.k8s.io", "clustertrustbundles", "ClusterTrustBundle", false),
    ("certificates.k8s.io", "podcertificaterequests", "PodCertificateRequest", true),
    ("coordination.k8s.io", "leasecandidates", "LeaseCandidate", true),
    ("coordination.k8s.io", "leases", "Lease", true),
    ("discovery.k8s.io", "endpointslices", "EndpointSlice", true),
    ("events.k8s.io", "events", "Event", true),
    ("flowcontrol.apiserver.k8s.io", "flowschemas", "FlowSchema", false),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", "PriorityLevelConfiguration", false),
    ("internal.apiserver.k8s.io", "storageversions", "StorageVersion", false),
    ("networking.k8s.io", "ingressclasses", "IngressClass", false),
    ("networking.k8s.io", "ingresses", "Ingress", true),
    ("networking.k8s.io", "ipaddresses", "IPAddress", false),
    ("networking.k8s.io", "networkpolicies", "NetworkPolicy", true),
    ("networking.k8s.io", "servicecidrs", "ServiceCIDR", false),
    ("node.k8s.io", "runtimeclasses", "RuntimeClass", false),
    ("policy", "poddisruptionbudgets", "PodDisruptionBudget", true),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", false),
    ("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", false),
    ("rbac.authorization.k8s.io", "rolebindings", "RoleBinding", true),
    ("rbac.authorization.k8s.io", "roles", "Role", true),
    ("resource.k8s.io", "deviceclasses", "DeviceClass", false),
    ("resource.k8s.io", "devicetaintrules", "DeviceTaintRule", false),
    ("resource.k8s.io", "resourceclaims", "ResourceClaim", true),
    ("resource.k8s.io", "resourceclaimtemplates", "ResourceClaimTemplate", true),
    ("resource.k8s.io", "resourcepoolstatusrequests", "ResourcePoolStatusRequest", false),
    ("resource.k8s.io", "resourceslices", "ResourceSlice", false),
    ("scheduling.k8s.io", "podgroups", "PodGroup", true),
    ("scheduling.k8s.io", "priorityclasses", "PriorityClass", false),
    ("scheduling.k8s.io", "workloads", "Workload", true),
    ("storage.k8s.io", "csidrivers", "CSIDriver", false),
    ("storage.k8s.io", "csinodes", "CSINode", false),
    ("storage.k8s.io", "csistoragecapacities", "CSIStorageCapacity", true),
    ("storage.k8s.io", "storageclasses", "StorageClass", false),
    ("storage.k8s.io", "volumeattachments", "VolumeAttachment", false),
    ("storage.k8s.io", "volumeattributesclasses", "VolumeAttributesClass", false),
    ("storagemigration.k8s.io", "storageversionmigrations", "StorageVersionMigration", false),
];

/// Returns the kind of a built-in resource, and whether the resource is namespaced. Returns `None` for any other
/// resource. Cost: a binary search among about a hundred entries.
pub fn built_in(group: &str, resource: &str) -> Option<(&'static str, bool)> {
    let at = BUILT_IN.binary_search_by(|(own_group, own, ..)| (*own_group, *own).cmp(&(group, resource))).ok()?;
    let (_, _, kind, namespaced) = BUILT_IN[at];
    Some((kind, namespaced))
}

/// Iterates over the built-in resources, as group, resource name and kind.
pub fn all_built_in() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    BUILT_IN.iter().map(|(group, resource, kind, _)| (*group, *resource, *kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_built_in_resource_is_found_with_its_kind_and_scope() {
        assert!(BUILT_IN.is_sorted_by_key(|(group, resource, ..)| (*group, *resource)));
        for (group, resource, kind, namespaced) in BUILT_IN {
            assert_eq!(built_in(group, resource), Some((*kind, *namespaced)));
        }
        assert_eq!(built_in("", "pods"), Some(("Pod", true)));
        assert_eq!(built_in("apps", "pods"), None);
        assert_eq!(built_in("example.com", "widgets"), None);
    }
}
