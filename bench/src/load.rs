//! Fills a real member with pods of about 6 KB.

use anyhow::Context;
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use http::Method;
use serde_json::{Value, json};

use crate::client::Contestant;

/// The number of pods per namespace.
pub(crate) const PODS_PER_NAMESPACE: usize = 100;
/// The number of concurrent requests: enough to keep a kube-apiserver on two cores busy.
const PARALLEL: usize = 32;
/// The number of connections for these requests.
const CONNECTIONS: usize = 4;

pub(crate) fn namespace(number: usize) -> String {
    format!("load-{number:04}")
}

pub(crate) fn pod_name(number: usize) -> String {
    format!("checkout-6f9c7d8b54-{number:06}")
}

/// Creates namespaces with 100 pods each. One pod in a hundred has the label `slice=s00`.
///
/// # Errors
/// If the member refuses an object.
pub(crate) async fn fill(target: &Contestant, pods: usize) -> anyhow::Result<()> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(target.connect().await?);
    }
    let namespaces = pods.div_ceil(PODS_PER_NAMESPACE);
    let create = |number: usize, path: String, object: Value| {
        let connection = connections[number % CONNECTIONS].clone();
        async move {
            let body = Bytes::from(object.to_string());
            connection.write(Method::POST, &path, "application/json", body).await.map(drop).context("load")
        }
    };
    stream::iter(0..namespaces)
        .map(|number| {
            let object = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": namespace(number)}});
            create(number, "/api/v1/namespaces".to_owned(), object)
        })
        .buffer_unordered(PARALLEL)
        .try_collect::<()>()
        .await?;
    stream::iter(0..pods)
        .map(|number| {
            let path = format!("/api/v1/namespaces/{}/pods", namespace(number / PODS_PER_NAMESPACE));
            create(number, path, pod(number))
        })
        .buffer_unordered(PARALLEL)
        .try_collect::<()>()
        .await
}

/// A pod like those of a Deployment for a usual web service. With managedFields and defaults from the server it has
/// about 6 KB.
fn pod(number: usize) -> Value {
    let environment: Vec<_> = (0..5)
        .map(|place| json!({"name": format!("SETTING_{place:02}"), "value": format!("value-{number}-{place}")}))
        .collect();
    let container = |name: &str, port: u16| {
        json!({
            "name": name, "image": format!("images.example/shop/{name}:v1.{}.0", number % 30),
            "env": environment, "ports": [{"name": name, "containerPort": port, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
            "readinessProbe": {"httpGet": {"path": "/healthz", "port": port}, "periodSeconds": 10},
            "livenessProbe": {"httpGet": {"path": "/livez", "port": port}, "periodSeconds": 20},
            "volumeMounts": [{"name": "config", "mountPath": "/etc/config", "readOnly": true}],
        })
    };
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": pod_name(number),
            "labels": {
                "app.kubernetes.io/name": "checkout", "app.kubernetes.io/instance": format!("checkout-{}", number % 40),
                "pod-template-hash": "6f9c7d8b54", "slice": format!("s{:02}", number % 100), "tier": "service",
            },
            "annotations": {
                "prometheus.io/scrape": "true", "prometheus.io/port": "8080",
                "checksum/config": format!("{number:064x}"),
            },
        },
        "spec": {
            "nodeName": format!("node-{:04}", number % 300),
            "containers": [container("checkout", 8080), container("metrics", 9090)],
            "volumes": [{"name": "config", "configMap": {"name": "checkout-config"}}],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
    })
}
