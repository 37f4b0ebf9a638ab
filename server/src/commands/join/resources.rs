//! The kinds that a cluster serves, as far as roles name them.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::discovery::v2::APIGroupDiscoveryList;

/// What may be read of an object.
pub(super) const READS: [&str; 3] = ["get", "list", "watch"];

/// Verbs that are allowed on each resource, or `resource/subresource`, of each group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownResources(BTreeMap<(String, String), BTreeSet<String>>);

impl KnownResources {
    /// What a cluster says that it serves, of all versions together.
    pub fn of(discovered: &[APIGroupDiscoveryList]) -> Self {
        let mut known = Self::default();
        for group in discovered.iter().flat_map(|list| &list.items) {
            let name = group.metadata.as_ref().and_then(|metadata| metadata.name.clone()).unwrap_or_default();
            for resource in group.versions.iter().flat_map(|version| &version.resources) {
                let plural = resource.resource.clone().unwrap_or_default();
                for below in &resource.subresources {
                    let subresource = below.subresource.clone().unwrap_or_default();
                    known.add(&name, &format!("{plural}/{subresource}"), below.verbs.iter().map(String::as_str));
                }
                known.add(&name, &plural, resource.verbs.iter().map(String::as_str));
            }
        }
        known
    }

    /// What every cluster serves: of the manifests, which are written before any cluster is known.
    pub fn usual() -> Self {
        let mut known = Self::default();
        for (group, resources) in USUAL {
            for resource in resources.split_whitespace() {
                let verbs = "get list watch create update patch delete deletecollection";
                known.add(group, resource, verbs.split(' '));
            }
        }
        for (group, resources, verbs) in BELOW {
            resources.split_whitespace().for_each(|resource| known.add(group, resource, verbs.split(' ')));
        }
        known
    }

    fn add<'a>(&mut self, group: &str, resource: &str, verbs: impl Iterator<Item = &'a str>) {
        let own = self.0.entry((group.to_owned(), resource.to_owned())).or_default();
        own.extend(verbs.map(str::to_owned));
    }

    /// All of them: group, resource and verbs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str, &BTreeSet<String>)> {
        self.0.iter().map(|((group, resource), verbs)| (&**group, &**resource, verbs))
    }
}

/// The groups and resources of Kubernetes itself that can be listed and watched.
const USUAL: &[(&str, &str)] = &[
    (
        "",
        "configmaps endpoints events limitranges namespaces nodes persistentvolumeclaims persistentvolumes pods podtemplates \
         replicationcontrollers resourcequotas secrets serviceaccounts services",
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingadmissionpolicies mutatingadmissionpolicybindings mutatingwebhookconfigurations \
         validatingadmissionpolicies validatingadmissionpolicybindings validatingwebhookconfigurations",
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "apiservices"),
    ("apps", "controllerrevisions daemonsets deployments replicasets statefulsets"),
    ("autoscaling", "horizontalpodautoscalers"),
    ("batch", "cronjobs jobs"),
    ("certificates.k8s.io", "certificatesigningrequests"),
    ("coordination.k8s.io", "leases"),
    ("discovery.k8s.io", "endpointslices"),
    ("events.k8s.io", "events"),
    ("flowcontrol.apiserver.k8s.io", "flowschemas prioritylevelconfigurations"),
    ("networking.k8s.io", "ingressclasses ingresses ipaddresses networkpolicies servicecidrs"),
    ("node.k8s.io", "runtimeclasses"),
    ("policy", "poddisruptionbudgets"),
    ("rbac.authorization.k8s.io", "clusterrolebindings clusterroles rolebindings roles"),
    ("resource.k8s.io", "deviceclasses resourceclaims resourceclaimtemplates resourceslices"),
    ("scheduling.k8s.io", "priorityclasses"),
    (
        "storage.k8s.io",
        "csidrivers csinodes csistoragecapacities storageclasses volumeattachments volumeattributesclasses",
    ),
];

/// What of them is below, and what cannot be watched.
const BELOW: &[(&str, &str, &str)] = &[
    ("", "pods/attach pods/exec pods/portforward", "create get"),
    ("", "pods/log", "get"),
    ("", "pods/eviction serviceaccounts/token", "create"),
    ("", "pods/ephemeralcontainers pods/resize", "get patch update"),
    ("", "replicationcontrollers/scale", "get patch update"),
    (
        "",
        "namespaces/status nodes/status persistentvolumeclaims/status persistentvolumes/status pods/status \
         replicationcontrollers/status resourcequotas/status services/status",
        "get patch update",
    ),
    ("", "namespaces/finalize", "update"),
    (
        "apps",
        "daemonsets/status deployments/scale deployments/status replicasets/scale replicasets/status statefulsets/scale \
         statefulsets/status",
        "get patch update",
    ),
    ("autoscaling", "horizontalpodautoscalers/status", "get patch update"),
    ("batch", "cronjobs/status jobs/status", "get patch update"),
    ("metrics.k8s.io", "nodes pods", "get list"),
    ("networking.k8s.io", "ingresses/status", "get patch update"),
    ("policy", "poddisruptionbudgets/status", "get patch update"),
];
