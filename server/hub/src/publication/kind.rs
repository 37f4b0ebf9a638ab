//! The kinds of published objects, and the objects that members should have.

use serde_json::{Value, json};
use tributary_apimachinery::GroupVersionResource;
use tributary_crds::PUBLISHED_BY;
use tributary_router::cluster_status::ClusterStatus;

use super::argo_cd_secret::{self, argo_cd_fields, argo_cd_name};
use super::cluster_profile::{self, profile_fields, profile_status};
use super::kubeconfig_secret::{self, kubeconfig_fields};
use super::member_access::{AuthenticatedAccess, MemberAccess};

/// A kind of published objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PublishedKind {
    ClusterProfile,
    KubeconfigSecret,
    ArgoCdSecret,
}

/// Kind, namespace and publisher of the published objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PublishedPlace {
    pub(super) kind: PublishedKind,
    pub(super) namespace: String,
    /// The value of the label [`PUBLISHED_BY`].
    pub(super) instance: String,
}

impl PublishedKind {
    /// Returns the name of the kind for logs and metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ClusterProfile => "ClusterProfile",
            Self::KubeconfigSecret => "KubeconfigSecret",
            Self::ArgoCdSecret => "ArgoCDSecret",
        }
    }

    pub(super) fn resource(self) -> GroupVersionResource {
        match self {
            Self::ClusterProfile => GroupVersionResource::new("multicluster.x-k8s.io", "v1alpha1", "clusterprofiles"),
            Self::KubeconfigSecret | Self::ArgoCdSecret => GroupVersionResource::new("", "v1", "secrets"),
        }
    }

    /// Returns the `apiVersion` and the `kind` of the objects.
    pub(super) fn type_names(self) -> (&'static str, &'static str) {
        match self {
            Self::ClusterProfile => ("multicluster.x-k8s.io/v1alpha1", "ClusterProfile"),
            Self::KubeconfigSecret | Self::ArgoCdSecret => ("v1", "Secret"),
        }
    }

    /// Returns the label by which readers of the published objects, for example Argo CD, select them.
    fn format_label(self) -> (&'static str, &'static str) {
        match self {
            Self::ClusterProfile => cluster_profile::LABEL,
            Self::KubeconfigSecret => kubeconfig_secret::LABEL,
            Self::ArgoCdSecret => argo_cd_secret::LABEL,
        }
    }

    /// Returns the name of a member's published object.
    pub(super) fn object_name(self, member: &str) -> String {
        match self {
            Self::ClusterProfile | Self::KubeconfigSecret => member.to_owned(),
            Self::ArgoCdSecret => argo_cd_name(member),
        }
    }
}

impl PublishedPlace {
    /// Returns the path of the collection.
    pub(super) fn path(&self) -> String {
        let resource = self.kind.resource();
        let root = if resource.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", resource.group) };
        format!("{root}/{}/namespaces/{}/{}", resource.version, self.namespace, resource.resource)
    }

    /// Returns the selector of the objects that this Tributary has published here.
    pub(super) fn label_selector(&self) -> String {
        let (key, value) = self.kind.format_label();
        format!("{PUBLISHED_BY}={},{key}={value}", self.instance)
    }

    /// Returns whether the labels of an object name this Tributary as its publisher. Only such objects are changed.
    pub(super) fn is_published(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let (key, value) = self.kind.format_label();
        let has_labels = labels[PUBLISHED_BY] == *self.instance && labels[key] == value;
        has_labels && (self.kind != PublishedKind::ClusterProfile || cluster_profile::is_managed(object))
    }

    /// Returns the object that a member should have; `None` if the object must contain a token and none is available.
    /// `present` is the object in the hub; null if the object does not exist.
    pub(super) fn desired_object(
        &self,
        member: &ClusterStatus,
        access: &MemberAccess<'_>,
        with_token: Option<&AuthenticatedAccess<'_>>,
        present: &Value,
    ) -> Option<Value> {
        let name = &member.origin.name;
        let mut object = match self.kind {
            PublishedKind::ClusterProfile => {
                let mut profile = profile_fields(name);
                profile["status"] = profile_status(member, access, &present["status"]);
                profile
            }
            PublishedKind::KubeconfigSecret => kubeconfig_fields(name, with_token?),
            PublishedKind::ArgoCdSecret => argo_cd_fields(name, with_token?),
        };
        let (api_version, kind) = self.kind.type_names();
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        let (key, value) = self.kind.format_label();
        let metadata = &mut object["metadata"];
        metadata["labels"] =
            json!({"app.kubernetes.io/managed-by": "tributary", PUBLISHED_BY: self.instance, key: value});
        metadata["name"] = json!(self.kind.object_name(name));
        metadata["namespace"] = json!(self.namespace);
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use jiff::Timestamp;
    use tributary_crds::SecretText;
    use tributary_router::Report;
    use tributary_router::report::{ClusterCondition, ClusterReport};

    use super::super::member_access::member_states;
    use super::*;

    const CA: &str = "-----BEGIN CERTIFICATE-----";

    fn place(kind: PublishedKind) -> PublishedPlace {
        PublishedPlace { kind, namespace: "fleet".to_owned(), instance: "tributary-system".to_owned() }
    }

    fn member(condition: ClusterCondition, problem: Option<&str>) -> ClusterStatus {
        let cluster = ClusterReport {
            name: "eu".to_owned(),
            condition,
            problem: problem.map(str::to_owned),
            version: Some("v1.36.3".to_owned()),
            ..ClusterReport::default()
        };
        let report = Report { clusters: vec![cluster], ..Report::default() };
        member_states(&report, "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap()).remove(0)
    }

    /// Returns the object of a ready member.
    fn object(kind: PublishedKind, authorities: Option<&str>) -> Value {
        let address = "https://tributary:6443".parse().unwrap();
        let access = MemberAccess { address: &address, authorities };
        let token = SecretText::new("hunter2");
        let with_token = AuthenticatedAccess { access: access.clone(), token: &token };
        let member = member(ClusterCondition::Ready, None);
        place(kind).desired_object(&member, &access, Some(&with_token), &Value::Null).unwrap()
    }

    fn decoded(object: &Value, key: &str) -> String {
        String::from_utf8(STANDARD.decode(object["data"][key].as_str().unwrap()).unwrap()).unwrap()
    }

    #[test]
    fn profile_of_a_member_names_the_manager_the_address_and_the_state() {
        let profile = object(PublishedKind::ClusterProfile, Some(CA));
        let expected = json!({
            "apiVersion": "multicluster.x-k8s.io/v1alpha1",
            "kind": "ClusterProfile",
            "metadata": {
                "name": "eu",
                "namespace": "fleet",
                "labels": {
                    "x-k8s.io/cluster-manager": "tributary",
                    "app.kubernetes.io/managed-by": "tributary",
                    "tributary.dev/published-by": "tributary-system",
                },
            },
            "spec": {"displayName": "eu", "clusterManager": {"name": "tributary"}},
            "status": {
                "version": {"kubernetes": "v1.36.3"},
                "accessProviders": [{
                    "name": "tributary",
                    "cluster": {
                        "server": "https://tributary:6443/clusters/eu",
                        "certificate-authority-data": STANDARD.encode(CA),
                    },
                }],
                "conditions": [
                    {
                        "type": "ControlPlaneHealthy",
                        "status": "True",
                        "reason": "Synced",
                        "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    },
                    {
                        "type": "tributary.dev/Synced",
                        "status": "True",
                        "reason": "Synced",
                        "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    },
                ],
            },
        });
        assert_eq!(profile, expected);
        let cluster = &object(PublishedKind::ClusterProfile, None)["status"]["accessProviders"][0]["cluster"];
        assert_eq!(*cluster, json!({"server": "https://tributary:6443/clusters/eu"}));
    }

    #[test]
    fn condition_of_a_profile_changes_only_with_its_status_or_reason() {
        let address = "https://tributary:6443".parse().unwrap();
        let access = MemberAccess { address: &address, authorities: None };
        let render = |member: &ClusterStatus, present: &Value| {
            place(PublishedKind::ClusterProfile).desired_object(member, &access, None, present).unwrap()
        };
        let healthy = |profile: &Value| profile["status"]["conditions"][0].clone();
        let mut first = render(&member(ClusterCondition::Unreachable, Some("no answer for 1 s")), &Value::Null);
        assert_eq!(healthy(&first)["status"], "False");
        first["status"]["conditions"][0]["lastTransitionTime"] = json!("2001-01-01T00:00:00Z");
        let later = render(&member(ClusterCondition::Unreachable, Some("no answer for 9 s")), &first);
        assert_eq!(healthy(&later), healthy(&first));
        let other_reason = healthy(&render(&member(ClusterCondition::Untrusted, Some("no")), &first));
        assert_eq!(other_reason["lastTransitionTime"], "2001-01-01T00:00:00Z");
        assert_ne!(other_reason["reason"], healthy(&first)["reason"]);
        let recovered = healthy(&render(&member(ClusterCondition::Ready, None), &first));
        assert_eq!(
            (&recovered["status"], &recovered["lastTransitionTime"]),
            (&json!("True"), &json!("2026-01-01T00:00:00Z"))
        );
    }

    #[test]
    fn kubeconfig_of_a_secret_has_the_address_the_authorities_and_the_token() {
        let secret = object(PublishedKind::KubeconfigSecret, Some(CA));
        assert_eq!((&secret["metadata"]["name"], &secret["type"]), (&json!("eu"), &json!("Opaque")));
        assert_eq!(secret["metadata"]["labels"]["sigs.k8s.io/multicluster-runtime-kubeconfig"], "true");
        let kubeconfig: Value = serde_json::from_str(&decoded(&secret, "kubeconfig")).unwrap();
        assert_eq!(kubeconfig["current-context"], "eu");
        assert_eq!(kubeconfig["contexts"], json!([{"name": "eu", "context": {"cluster": "eu", "user": "tributary"}}]));
        assert_eq!(kubeconfig["users"], json!([{"name": "tributary", "user": {"token": "hunter2"}}]));
        let cluster = &kubeconfig["clusters"][0]["cluster"];
        assert_eq!(cluster["server"], "https://tributary:6443/clusters/eu");
        assert_eq!(cluster["certificate-authority-data"], STANDARD.encode(CA));
    }

    #[test]
    fn argo_cd_secret_has_the_address_the_authorities_and_the_token() {
        let secret = object(PublishedKind::ArgoCdSecret, Some(CA));
        assert_eq!(secret["metadata"]["name"], "tributary-eu");
        assert_eq!(secret["metadata"]["labels"]["argocd.argoproj.io/secret-type"], "cluster");
        assert_eq!(
            (&*decoded(&secret, "name"), &*decoded(&secret, "server")),
            ("eu", "https://tributary:6443/clusters/eu")
        );
        let config: Value = serde_json::from_str(&decoded(&secret, "config")).unwrap();
        let tls = json!({"insecure": false, "caData": STANDARD.encode(CA)});
        assert_eq!(config, json!({"bearerToken": "hunter2", "tlsClientConfig": tls}));
    }

    #[test]
    fn secret_is_not_rendered_without_a_token() {
        let address = "https://tributary:6443".parse().unwrap();
        let access = MemberAccess { address: &address, authorities: None };
        for kind in [PublishedKind::KubeconfigSecret, PublishedKind::ArgoCdSecret] {
            let member = member(ClusterCondition::Ready, None);
            assert_eq!(place(kind).desired_object(&member, &access, None, &Value::Null), None);
        }
    }

    #[test]
    fn only_an_object_of_this_tributary_counts_as_published() {
        for kind in [PublishedKind::ClusterProfile, PublishedKind::KubeconfigSecret, PublishedKind::ArgoCdSecret] {
            let own = object(kind, None);
            assert!(place(kind).is_published(&own));
            for label in ["tributary.dev/published-by", kind.format_label().0] {
                let mut other = own.clone();
                other["metadata"]["labels"][label] = json!("other");
                assert!(!place(kind).is_published(&other), "{kind:?} {label}");
            }
        }
        let mut other_manager = object(PublishedKind::ClusterProfile, None);
        other_manager["spec"]["clusterManager"]["name"] = json!("open-cluster-management");
        assert!(!place(PublishedKind::ClusterProfile).is_published(&other_manager));
        let selector = place(PublishedKind::KubeconfigSecret).label_selector();
        assert_eq!(
            selector,
            "tributary.dev/published-by=tributary-system,sigs.k8s.io/multicluster-runtime-kubeconfig=true"
        );
    }
}
