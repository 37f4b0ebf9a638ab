//! A small aggregated API server: `metrics.k8s.io/v1beta1`, with the figures that a test gives it. It stands in for
//! metrics-server behind a member's own aggregator, which speaks to it as to any other.

use crate::{TestCluster, certificates::TestCertificates};
use anyhow::Context;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

const GROUP_VERSION: &str = "metrics.k8s.io/v1beta1";

/// A running metrics server. Dropping it stops it; the member then says that it is not available.
#[derive(Debug)]
pub struct MetricsServer {
    port: u16,
    figures: Arc<Mutex<Figures>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Figures {
    pods: Vec<Value>,
    nodes: Vec<Value>,
    /// Where clients are sent instead of being answered.
    elsewhere: Option<String>,
    /// How many requests came.
    requests: usize,
}

impl MetricsServer {
    /// Starts it on a free port of 127.0.0.1, without figures.
    ///
    /// # Errors
    /// When no certificate can be made or no port be had.
    pub async fn start() -> anyhow::Result<Self> {
        let certificates = TestCertificates::generate("metrics")?;
        let chain = CertificateDer::pem_slice_iter(certificates.serving_certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .context("read the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(certificates.serving_key.as_bytes()).context("read the key")?;
        let mut tls = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let port = listener.local_addr().context("read the port")?.port();
        let figures = Arc::default();
        let task = tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(tls)), Arc::clone(&figures)));
        Ok(Self { port, figures, task })
    }

    /// Sets the usage of a node: CPU and memory as quantities.
    pub fn set_node(&self, name: &str, cpu: &str, memory: &str) {
        let node = json!({
            "metadata": {"name": name, "labels": {"node": name}}, "timestamp": "2026-01-01T00:00:00Z", "window": "10s",
            "usage": {"cpu": cpu, "memory": memory},
        });
        set(&mut lock(&self.figures).nodes, node);
    }

    /// Sets the usage of a pod of one container: CPU and memory as quantities.
    pub fn set_pod(&self, namespace: &str, name: &str, cpu: &str, memory: &str) {
        let pod = json!({
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
            "timestamp": "2026-01-01T00:00:00Z", "window": "10s",
            "containers": [{"name": "main", "usage": {"cpu": cpu, "memory": memory}}],
        });
        set(&mut lock(&self.figures).pods, pod);
    }

    /// Registers it with a member: an ExternalName Service and an APIService.
    /// The member may take seconds to see that it is there.
    ///
    /// # Errors
    /// When the member refuses one of the objects.
    pub async fn register(&self, member: &TestCluster) -> anyhow::Result<()> {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics"},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self.port}]},
        });
        member.http().post("/api/v1/namespaces/default/services", &service).send().await?.expect(201)?;
        let api_service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {
                "group": "metrics.k8s.io", "version": "v1beta1", "insecureSkipTLSVerify": true,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"namespace": "default", "name": "metrics", "port": self.port},
            },
        });
        let path = "/apis/apiregistration.k8s.io/v1/apiservices";
        member.http().post(path, &api_service).send().await?.expect(201)?;
        Ok(())
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// Redirects everything but discovery to another server from now on, or no longer.
    pub fn redirect_to(&self, other: Option<&Self>) {
        lock(&self.figures).elsewhere = other.map(Self::url);
    }

    /// How many requests came so far.
    #[must_use]
    pub fn requests(&self) -> usize {
        lock(&self.figures).requests
    }

    /// Stops answering: connections are refused.
    pub fn stop(&self) {
        self.task.abort();
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock(figures: &Mutex<Figures>) -> std::sync::MutexGuard<'_, Figures> {
    figures.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn set(list: &mut Vec<Value>, new: Value) {
    list.retain(|known| {
        known["metadata"]["name"] != new["metadata"]["name"]
            || known["metadata"]["namespace"] != new["metadata"]["namespace"]
    });
    list.push(new);
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, figures: Arc<Mutex<Figures>>) {
    // Connections end with this task.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, figures) = (acceptor.clone(), Arc::clone(&figures));
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request: Request<Incoming>| {
                let response = answer(&request, &figures);
                async move { Ok::<_, Infallible>(response) }
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn answer(request: &Request<Incoming>, figures: &Mutex<Figures>) -> Response<Full<Bytes>> {
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    let mut figures = lock(figures);
    figures.requests += 1;
    if let Some(elsewhere) = figures.elsewhere.as_ref().filter(|_| path.len() > 3) {
        let location = HeaderValue::try_from(format!("{elsewhere}{}", request.uri().path()));
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::FOUND;
        response.headers_mut().extend(location.ok().map(|location| (header::LOCATION, location)));
        return response;
    }
    let table = request
        .headers()
        .get(header::ACCEPT)
        .is_some_and(|accept| accept.to_str().is_ok_and(|accept| accept.contains("as=Table")));
    let query = request.uri().query().unwrap_or_default();
    let label =
        query.split('&').find_map(|pair| pair.strip_prefix("labelSelector=")).map(|text| text.replace("%3D", "="));
    let wanted = |item: &&Value| {
        let Some((key, value)) = label.as_deref().and_then(|label| label.split_once('=')) else { return true };
        item["metadata"]["labels"][key] == value
    };
    let found = match path[..] {
        ["apis", "metrics.k8s.io", "v1beta1"] => Some(resources()),
        ["apis", "metrics.k8s.io", "v1beta1", "nodes"] => {
            Some(list("NodeMetrics", figures.nodes.iter().filter(wanted), table))
        }
        ["apis", "metrics.k8s.io", "v1beta1", "nodes", name] => {
            figures.nodes.iter().find(|node| node["metadata"]["name"] == name).map(|node| whole("NodeMetrics", node))
        }
        ["apis", "metrics.k8s.io", "v1beta1", "pods"] => {
            Some(list("PodMetrics", figures.pods.iter().filter(wanted), table))
        }
        ["apis", "metrics.k8s.io", "v1beta1", "namespaces", namespace, "pods"] => {
            let of_namespace = figures.pods.iter().filter(|pod| pod["metadata"]["namespace"] == namespace);
            Some(list("PodMetrics", of_namespace.filter(wanted), table))
        }
        ["apis", "metrics.k8s.io", "v1beta1", "namespaces", namespace, "pods", name] => {
            let of_name = |pod: &&Value| pod["metadata"]["namespace"] == namespace && pod["metadata"]["name"] == name;
            figures.pods.iter().find(of_name).map(|pod| whole("PodMetrics", pod))
        }
        _ => None,
    };
    let not_found = || json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404});
    let (code, text) = match found {
        Some(found) => (StatusCode::OK, found),
        None => (StatusCode::NOT_FOUND, not_found()),
    };
    let mut response = Response::new(Full::from(text.to_string()));
    *response.status_mut() = code;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn resources() -> Value {
    let resource = |name: &str, kind: &str, namespaced: bool| json!({"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": ["get", "list"]});
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION,
        "resources": [resource("nodes", "NodeMetrics", false), resource("pods", "PodMetrics", true)],
    })
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
