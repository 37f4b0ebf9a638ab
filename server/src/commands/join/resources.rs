//! The kinds that a cluster serves, as far as roles name them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::ensure;
use kube::core::discovery::v2::APIGroupDiscoveryList;
use serde_json::Value;
use tributary_authorization::RbacKind;

/// What may be read of an object.
pub(super) const READS: [&str; 3] = ["get", "list", "watch"];

/// By which verb an account may do something in users' names (KEP-5284).
pub(super) const ON_BEHALF: &str = "impersonate-on:user-info:";

/// The group of roles and bindings.
const RBAC: &str = RbacKind::GROUP;

/// How a kube-apiserver marks a version whose aggregated server does not answer it.
const STALE: &str = "Stale";

/// Verbs that are allowed on each resource, or `resource/subresource`, of each group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownResources {
    by_name: BTreeMap<(String, String), BTreeSet<String>>,
    /// Groups of which not all is known: the servers behind them do not answer the cluster.
    stale: BTreeSet<String>,
}

impl KnownResources {
    /// What a cluster says that it serves, of all versions together.
    pub fn of(discovered: &[APIGroupDiscoveryList]) -> Self {
        let mut known = Self::default();
        for group in discovered.iter().flat_map(|list| &list.items) {
            let name = group.metadata.as_ref().and_then(|metadata| metadata.name.clone()).unwrap_or_default();
            if group.versions.iter().any(|version| version.freshness.as_deref() == Some(STALE)) {
                known.stale.insert(name.clone());
            }
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
        for (group, verbs, resources) in USUAL {
            resources.split_whitespace().for_each(|resource| known.add(group, resource, verbs.split(' ')));
        }
        known
    }

    /// The groups of which not all is known.
    pub fn stale(&self) -> impl Iterator<Item = &str> {
        self.stale.iter().map(String::as_str)
    }

    /// Whether an account can be given rights by a role.
    ///
    /// # Errors
    /// What the cluster lacks, and what to do.
    pub(super) fn has_roles(&self) -> anyhow::Result<()> {
        let has = |resource: &str| self.by_name.contains_key(&(RBAC.to_owned(), resource.to_owned()));
        ensure!(
            has("clusterroles") && has("clusterrolebindings"),
            "the cluster serves no {RBAC}, by which join gives an account its rights; start its kube-apiserver with \
             --authorization-mode=Node,RBAC and without --runtime-config that turns the API off, or write an UpstreamCluster \
             with credentials of another kind yourself (docs/configuration.md)"
        );
        Ok(())
    }

    /// Takes from the rules that a role has what is not known of [stale](Self::stale) groups, so that it keeps them.
    pub(super) fn take_from(&mut self, role: &Value) {
        let words = |rule: &Value, field: &str| -> Vec<String> {
            rule[field].as_array().into_iter().flatten().filter_map(|word| Some(word.as_str()?.to_owned())).collect()
        };
        for rule in role["rules"].as_array().into_iter().flatten() {
            let verbs = words(rule, "verbs");
            let verbs: Vec<_> = verbs.iter().map(|verb| verb.strip_prefix(ON_BEHALF).unwrap_or(verb)).collect();
            for group in
                words(rule, "apiGroups").iter().filter(|group| self.stale.contains(*group)).cloned().collect::<Vec<_>>()
            {
                for resource in words(rule, "resources") {
                    self.add(&group, &resource, verbs.iter().copied());
                }
            }
        }
    }

    fn add<'a>(&mut self, group: &str, resource: &str, verbs: impl Iterator<Item = &'a str>) {
        let own = self.by_name.entry((group.to_owned(), resource.to_owned())).or_default();
        own.extend(verbs.map(str::to_owned));
    }

    /// All of them: group, resource and verbs.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &BTreeSet<String>)> {
        self.by_name.iter().map(|((group, resource), verbs)| (&**group, &**resource, verbs))
    }
}

/// What can be done with objects, and with most of what lies below one.
const OBJECTS: &str = "create delete deletecollection get list patch update watch";
const BELOW: &str = "get patch update";

/// The groups, verbs and resources of Kubernetes itself that every kube-apiserver serves, and the metrics that most
/// clusters have. A case runs against a real one (`e2e/tests/e2e/shared_mode/join.rs`).
///
/// Source: kubernetes `api/discovery/api__v1.json` and `aggregated_v2.json`, the versions that are on by default.
const USUAL: &[(&str, &str, &str)] = &[
    (
        "",
        OBJECTS,
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
        BELOW,
        "namespaces/status nodes/status persistentvolumeclaims/status persistentvolumes/status \
         pods/ephemeralcontainers pods/resize pods/status replicationcontrollers/scale \
         replicationcontrollers/status resourcequotas/status services/status",
    ),
    ("", "update", "namespaces/finalize"),
    (
        "admissionregistration.k8s.io",
        OBJECTS,
        "mutatingadmissionpolicies mutatingadmissionpolicybindings mutatingwebhookconfigurations \
         validatingadmissionpolicies validatingadmissionpolicybindings validatingwebhookconfigurations",
    ),
    ("admissionregistration.k8s.io", BELOW, "validatingadmissionpolicies/status"),
    ("apiextensions.k8s.io", OBJECTS, "customresourcedefinitions"),
    ("apiextensions.k8s.io", BELOW, "customresourcedefinitions/status"),
    ("apiregistration.k8s.io", OBJECTS, "apiservices"),
    ("apiregistration.k8s.io", BELOW, "apiservices/status"),
    ("apps", OBJECTS, "controllerrevisions daemonsets deployments replicasets statefulsets"),
    (
        "apps",
        BELOW,
        "daemonsets/status deployments/scale deployments/status replicasets/scale replicasets/status \
         statefulsets/scale statefulsets/status",
    ),
    ("authentication.k8s.io", "create", "selfsubjectreviews tokenreviews"),
    (
        "authorization.k8s.io",
        "create",
        "localsubjectaccessreviews selfsubjectaccessreviews selfsubjectrulesreviews subjectaccessreviews",
    ),
    ("autoscaling", OBJECTS, "horizontalpodautoscalers"),
    ("autoscaling", BELOW, "horizontalpodautoscalers/status"),
    ("batch", OBJECTS, "cronjobs jobs"),
    ("batch", BELOW, "cronjobs/status jobs/status"),
    ("certificates.k8s.io", OBJECTS, "certificatesigningrequests"),
    ("certificates.k8s.io", BELOW, "certificatesigningrequests/approval certificatesigningrequests/status"),
    ("coordination.k8s.io", OBJECTS, "leases"),
    ("discovery.k8s.io", OBJECTS, "endpointslices"),
    ("events.k8s.io", OBJECTS, "events"),
    ("flowcontrol.apiserver.k8s.io", OBJECTS, "flowschemas prioritylevelconfigurations"),
    ("flowcontrol.apiserver.k8s.io", BELOW, "flowschemas/status prioritylevelconfigurations/status"),
    ("metrics.k8s.io", "get list", "nodes pods"),
    ("networking.k8s.io", OBJECTS, "ingressclasses ingresses ipaddresses networkpolicies servicecidrs"),
    ("networking.k8s.io", BELOW, "ingresses/status servicecidrs/status"),
    ("node.k8s.io", OBJECTS, "runtimeclasses"),
    ("policy", OBJECTS, "poddisruptionbudgets"),
    ("policy", BELOW, "poddisruptionbudgets/status"),
    (RBAC, OBJECTS, "clusterrolebindings clusterroles rolebindings roles"),
    ("resource.k8s.io", OBJECTS, "deviceclasses resourceclaims resourceclaimtemplates resourceslices"),
    ("resource.k8s.io", BELOW, "resourceclaims/status"),
    ("scheduling.k8s.io", OBJECTS, "priorityclasses"),
    (
        "storage.k8s.io",
        OBJECTS,
        "csidrivers csinodes csistoragecapacities storageclasses volumeattachments volumeattributesclasses",
    ),
    ("storage.k8s.io", BELOW, "volumeattachments/status"),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cluster_without_rbac_is_told_what_join_needs() {
        assert!(KnownResources::usual().has_roles().is_ok());
        let mut without = KnownResources::usual();
        without.by_name.retain(|(group, _), _| group != RBAC);
        let said = without.has_roles().unwrap_err().to_string();
        for part in ["serves no rbac.authorization.k8s.io", "--authorization-mode=Node,RBAC", "UpstreamCluster"] {
            assert!(said.contains(part), "{said}");
        }
    }

    /// Of an aggregated server that does not answer a kube-apiserver knows nothing, or what it said before.
    #[test]
    fn what_a_role_has_of_a_group_that_is_not_known_now_is_kept() {
        let discovered = json!({"items": [
            {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
                {"resource": "deployments", "scope": "Namespaced", "verbs": ["list", "watch"]}]}]},
            {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "freshness": "Stale"}]},
        ]});
        let mut known = KnownResources::of(&[serde_json::from_value(discovered).unwrap()]);
        assert_eq!(known.stale().collect::<Vec<_>>(), ["metrics.k8s.io"]);
        let all = |known: &KnownResources| {
            let all = known.iter().map(|(group, name, verbs)| {
                format!("{group} {name} {}", verbs.iter().cloned().collect::<Vec<_>>().join(" "))
            });
            all.collect::<Vec<_>>()
        };
        assert_eq!(all(&known), ["apps deployments list watch"]);
        known.take_from(&json!({"rules": [
            {"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["impersonate-on:user-info:get"]},
            {"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["list"]},
            {"apiGroups": ["gone.example"], "resources": ["carts"], "verbs": ["list", "watch"]},
        ]}));
        assert_eq!(all(&known), ["apps deployments list watch", "metrics.k8s.io pods get list"]);
    }
}
