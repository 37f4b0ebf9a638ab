//! The kinds of objects that are asked for, and what is sent of them.

use serde_json::{Value, json};

/// A kind of objects.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    kind: &'static str,
    pub(super) namespaced: bool,
}

/// In two groups, with and without a namespace, with and without subresources. Nothing makes objects of these by itself
/// in a namespace of an unknown name but `kube-root-ca.crt` and `default`, which each member has.
pub(super) const KINDS: [Kind; 6] = [
    Kind::core("configmaps", "ConfigMap"),
    Kind::core("serviceaccounts", "ServiceAccount"),
    // A PUT makes them where there are none (`AllowCreateOnUpdate` in kubernetes' `pkg/registry/core/endpoint`).
    Kind::core("endpoints", "Endpoints"),
    Kind { group: "apps", ..Kind::core("deployments", "Deployment") },
    Kind { namespaced: false, ..Kind::core("persistentvolumes", "PersistentVolume") },
    Kind { namespaced: false, ..NAMESPACE },
];

const NAMESPACE: Kind = Kind::core("namespaces", "Namespace");

impl Kind {
    const fn core(resource: &'static str, kind: &'static str) -> Self {
        Self { group: "", resource, kind, namespaced: true }
    }

    /// The path of all of them, or of those of a namespace.
    pub(super) fn path(&self, namespace: &str) -> String {
        let place = if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
        format!("{}/{place}{}", self.root(), self.resource)
    }

    /// The path of the document that tells of it.
    pub(super) fn root(&self) -> String {
        if self.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}/v1", self.group) }
    }

    /// An object of it. What needs no more than a name has no more.
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
            "persistentvolumes" => {
                object["spec"] = json!({"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
                    "hostPath": {"path": "/nowhere"}});
            }
            "namespaces" => object["spec"] = json!({"finalizers": ["kubernetes"]}),
            _ => {}
        }
        object
    }

    /// What is posted, or put, below an object of it.
    pub(super) fn below(&self, subresource: &str, name: &str, namespace: &str) -> Value {
        match subresource {
            "scale" => json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
                "metadata": {"name": name, "namespace": namespace}, "spec": {"replicas": 0}}),
            "token" => json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}),
            _ => self.object(name, &json!({"touched": "yes"})),
        }
    }
}
