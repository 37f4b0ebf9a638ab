//! Kinds of objects in the requests, and the bodies of requests.

use serde_json::{Value, json};

#[derive(Debug)]
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    kind: &'static str,
    pub(super) namespaced: bool,
    /// True if Tributary does not cache this kind. Tributary then reads the objects from the clusters as the user.
    pub(super) is_live: bool,
}

const CUSTOM: &str = "matrix.example.com";

/// Kinds of three API groups: with and without namespace, with and without subresources, built in and custom, cached
/// and not cached. No controller creates objects of these kinds in a new namespace, except `kube-root-ca.crt` and
/// `default`, which each member has.
pub(super) const KINDS: [Kind; 9] = [
    Kind::core("pods", "Pod"),
    Kind::core("configmaps", "ConfigMap"),
    Kind::core("serviceaccounts", "ServiceAccount"),
    // A PUT creates a missing Endpoints object (`AllowCreateOnUpdate` in kubernetes' `pkg/registry/core/endpoint`).
    Kind::core("endpoints", "Endpoints"),
    Kind { group: "apps", ..Kind::core("deployments", "Deployment") },
    // In shared mode, Tributary caches Secrets only if the configuration lists them.
    Kind { is_live: true, ..Kind::core("secrets", "Secret") },
    Kind { group: CUSTOM, ..Kind::core("gadgets", "Gadget") },
    Kind { namespaced: false, ..Kind::core("persistentvolumes", "PersistentVolume") },
    Kind { namespaced: false, ..NAMESPACE },
];

const NAMESPACE: Kind = Kind::core("namespaces", "Namespace");

impl Kind {
    const fn core(resource: &'static str, kind: &'static str) -> Self {
        Self { group: "", resource, kind, namespaced: true, is_live: false }
    }

    /// Path of the collection in a namespace. An empty namespace means all namespaces.
    pub(super) fn path(&self, namespace: &str) -> String {
        let place = if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
        format!("{}/{place}{}", self.root(), self.resource)
    }

    /// Path of the discovery document that lists this kind.
    pub(super) fn root(&self) -> String {
        if self.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/v1", self.group) }
    }

    /// Makes an object of this kind with only its required fields.
    pub(super) fn object(&self, name: &str, labels: &Value) -> Value {
        let api_version = if self.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", self.group) };
        let mut object = json!({"apiVersion": api_version, "kind": self.kind,
            "metadata": {"name": name, "labels": labels}});
        match self.resource {
            "deployments" => {
                let labels = json!({"app": name});
                let container = json!({"name": "one", "image": "none"});
                object["spec"] = json!({"replicas": 0, "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}});
            }
            "pods" => object["spec"] = pod_spec(),
            "gadgets" => object["spec"] = json!({"replicas": 0}),
            "persistentvolumes" => {
                object["spec"] = json!({"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
                    "hostPath": {"path": "/nowhere"}});
            }
            "namespaces" => object["spec"] = json!({"finalizers": ["kubernetes"]}),
            _ => {}
        }
        object
    }

    /// Returns the CustomResourceDefinition of this kind. `None` for a built-in kind.
    pub(super) fn definition(&self) -> Option<Value> {
        let (plural, kind) = (self.resource, self.kind);
        let replicas = json!({"type": "object", "properties": {"replicas": {"type": "integer"}}});
        let schema = json!({"type": "object", "properties": {"spec": replicas, "status": replicas}});
        let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}, "scale": scale}});
        let names = json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind,
            "listKind": format!("{kind}List")});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{CUSTOM}")},
            "spec": {"group": CUSTOM, "scope": "Namespaced", "names": names, "versions": [version]}});
        (self.group == CUSTOM).then_some(definition)
    }

    /// Makes the body of a POST or PUT for a subresource.
    pub(super) fn below(&self, subresource: &str, name: &str, namespace: &str) -> Value {
        match subresource {
            "scale" => json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
                "metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": 0}}),
            // A Binding with a Pod's name and a node would determine the cluster. The body omits the name, so that only
            // the path determines the cluster.
            "binding" => json!({"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "nowhere"}}),
            "eviction" => json!({"apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace}}),
            "token" => json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
            _ => self.object(name, &json!({"touched": "yes"})),
        }
    }
}

/// Makes the spec of a Pod that never changes. The Pod has no node, so no kubelet runs it or gets requests for it. The
/// spec contains the fields that admission adds, because an update must not change them.
fn pod_spec() -> Value {
    json!({"serviceAccountName": "default", "automountServiceAccountToken": false,
        "containers": [{"name": "one", "image": "none"}]})
}
