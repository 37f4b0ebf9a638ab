//! Simulates a metrics server (`metrics.k8s.io/v1beta1`) with CPU and memory values that a test sets.

use crate::{AggregatedServer, TestCluster};
use http::{header, request::Parts};
use serde_json::{Value, json};
use std::{
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

const GROUP_VERSION: &str = "metrics.k8s.io/v1beta1";

/// Running metrics server. Dropping it stops the server, and the member then reports the metrics API as unavailable.
#[derive(Debug)]
pub struct MetricsServer {
    server: AggregatedServer,
    figures: Arc<Mutex<Figures>>,
}

#[derive(Debug, Default)]
struct Figures {
    pods: Vec<Value>,
    nodes: Vec<Value>,
}

impl MetricsServer {
    /// Starts a metrics server without CPU and memory values on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// If no certificate can be made or no port is free.
    pub async fn start() -> anyhow::Result<Self> {
        let server = AggregatedServer::start().await?;
        server.set_resources(GROUP_VERSION, &resources());
        let figures = Arc::<Mutex<Figures>>::default();
        let known = Arc::clone(&figures);
        server.respond(Box::new(move |head| answer_request(head, &lock(&known))));
        Ok(Self { server, figures })
    }

    /// Sets the CPU and memory usage of a node, as Kubernetes quantities.
    pub fn set_node(&self, name: &str, cpu: &str, memory: &str) {
        let node = json!({
            "metadata": {"name": name, "labels": {"node": name}}, "timestamp": "2026-01-01T00:00:00Z", "window": "10s",
            "usage": {"cpu": cpu, "memory": memory},
        });
        set(&mut lock(&self.figures).nodes, node);
    }

    /// Sets the CPU and memory usage of a pod with one container, as Kubernetes quantities.
    pub fn set_pod(&self, namespace: &str, name: &str, cpu: &str, memory: &str) {
        let pod = json!({
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
            "timestamp": "2026-01-01T00:00:00Z", "window": "10s",
            "containers": [{"name": "main", "usage": {"cpu": cpu, "memory": memory}}],
        });
        set(&mut lock(&self.figures).pods, pod);
    }

    /// Registers the metrics API with a member; see [`AggregatedServer::register`].
    ///
    /// # Errors
    /// If the member refuses one of the objects.
    pub async fn register(&self, member: &TestCluster) -> anyhow::Result<()> {
        self.server.register(member, "metrics.k8s.io", "v1beta1").await
    }
}

impl Deref for MetricsServer {
    type Target = AggregatedServer;

    fn deref(&self) -> &AggregatedServer {
        &self.server
    }
}

fn lock(figures: &Mutex<Figures>) -> MutexGuard<'_, Figures> {
    figures.lock().unwrap_or_else(PoisonError::into_inner)
}

fn set(list: &mut Vec<Value>, new: Value) {
    list.retain(|known| {
        known["metadata"]["name"] != new["metadata"]["name"]
            || known["metadata"]["namespace"] != new["metadata"]["namespace"]
    });
    list.push(new);
}

fn answer_request(head: &Parts, figures: &Figures) -> Option<Value> {
    let path: Vec<&str> = head.uri.path().trim_matches('/').split('/').collect();
    let table = head
        .headers
        .get(header::ACCEPT)
        .is_some_and(|accept| accept.to_str().is_ok_and(|accept| accept.contains("as=Table")));
    let query = head.uri.query().unwrap_or_default();
    let label =
        query.split('&').find_map(|pair| pair.strip_prefix("labelSelector=")).map(|text| text.replace("%3D", "="));
    let wanted = |item: &&Value| {
        let Some((key, value)) = label.as_deref().and_then(|label| label.split_once('=')) else { return true };
        item["metadata"]["labels"][key] == value
    };
    match path.strip_prefix(&["apis", "metrics.k8s.io", "v1beta1"])? {
        ["nodes"] => Some(list("NodeMetrics", figures.nodes.iter().filter(wanted), table)),
        ["nodes", name] => {
            figures.nodes.iter().find(|node| node["metadata"]["name"] == *name).map(|node| whole("NodeMetrics", node))
        }
        ["pods"] => Some(list("PodMetrics", figures.pods.iter().filter(wanted), table)),
        ["namespaces", namespace, "pods"] => {
            let of_namespace = figures.pods.iter().filter(|pod| pod["metadata"]["namespace"] == *namespace);
            Some(list("PodMetrics", of_namespace.filter(wanted), table))
        }
        ["namespaces", namespace, "pods", name] => {
            let of_name = |pod: &&Value| pod["metadata"]["namespace"] == *namespace && pod["metadata"]["name"] == *name;
            figures.pods.iter().find(of_name).map(|pod| whole("PodMetrics", pod))
        }
        _ => None,
    }
}

fn resources() -> Value {
    let resource = |name: &str, kind: &str, namespaced: bool| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]});
    json!([resource("nodes", "NodeMetrics", false), resource("pods", "PodMetrics", true)])
}

fn whole(kind: &str, item: &Value) -> Value {
    let mut whole = item.clone();
    whole["kind"] = json!(kind);
    whole["apiVersion"] = json!(GROUP_VERSION);
    whole
}

fn list<'a>(kind: &str, items: impl Iterator<Item = &'a Value>, table: bool) -> Value {
    if !table {
        let items: Vec<Value> = items.map(|item| whole(kind, item)).collect();
        return json!({"kind": format!("{kind}List"), "apiVersion": GROUP_VERSION, "metadata": {}, "items": items});
    }
    let column = |name: &str| json!({"name": name, "type": "string", "format": "", "description": "", "priority": 0});
    let rows: Vec<Value> = items
        .map(|item| {
            let usage = if kind == "NodeMetrics" { &item["usage"] } else { &item["containers"][0]["usage"] };
            json!({
                "cells": [item["metadata"]["name"], usage["cpu"], usage["memory"], item["window"]],
                "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]},
            })
        })
        .collect();
    let columns: Vec<Value> = ["Name", "Cpu", "Memory", "Window"].map(column).into();
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": columns, "rows": rows})
}
