//! Simulates an aggregated API server, which a member reaches through its aggregator. A test sets the JSON document at
//! each path.

use crate::{TestCluster, certificates::TestCertificates};
use anyhow::Context;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

/// Function that makes a JSON answer from the head of a request. `None` leaves the path unknown.
pub type Responder = Box<dyn Fn(&Parts) -> Option<Value> + Send>;

/// A running aggregated API server. Dropping it stops the server, and the member reports the APIService as unavailable.
#[derive(Debug)]
pub struct AggregatedServer {
    port: u16,
    acceptor: Acceptor,
    behavior: Arc<Mutex<Behavior>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Clone)]
struct Acceptor(TlsAcceptor);

/// Configures the answers of the server. The server tries the fields in this order.
#[derive(Default)]
struct Behavior {
    delay: Duration,
    /// URL of the server to which requests are redirected. Discovery requests (`/apis`, API groups and versions) are
    /// never redirected.
    redirect: Option<String>,
    /// The status of every answer; `None` serves the configured documents.
    failure: Option<StatusCode>,
    pages: BTreeMap<String, Value>,
    responder: Option<Responder>,
    /// resourceVersion that the server sets in an echoed object. If set, the server answers a request for a path
    /// without a document with the object in the request's body.
    echo: Option<String>,
    requests: usize,
}

impl AggregatedServer {
    /// Starts a server on a free port of 127.0.0.1. The server has no API groups and answers every path except `/apis`
    /// with 404.
    ///
    /// # Errors
    /// If no certificate can be made, or no port is free.
    pub async fn start() -> anyhow::Result<Self> {
        let certificates = TestCertificates::generate("aggregated")?;
        let chain = CertificateDer::pem_slice_iter(certificates.serving_certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .context("read the certificate")?;
        let key = PrivateKeyDer::from_pem_slice(certificates.serving_key.as_bytes()).context("read the key")?;
        let mut tls = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.context("listen")?;
        let port = listener.local_addr().context("read the port")?.port();
        let acceptor = Acceptor(TlsAcceptor::from(Arc::new(tls)));
        let server = Self { port, acceptor, behavior: Arc::default(), task: Mutex::default() };
        server.set("/apis", json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}));
        server.listen(listener);
        Ok(server)
    }

    /// Serves a JSON document at a path. `path` is decoded and has no query.
    pub fn set(&self, path: &str, document: Value) {
        lock(&self.behavior).pages.insert(path.to_owned(), document);
    }

    /// Sets the document of `/apis/GROUP/VERSION`, which lists the resources of a group and version.
    pub fn set_resources(&self, group_version: &str, resources: &Value) {
        let list = json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
        });
        self.set(&format!("/apis/{group_version}"), list);
    }

    /// Removes the document at a path. The server then answers the path with 404.
    pub fn remove(&self, path: &str) {
        lock(&self.behavior).pages.remove(path);
    }

    /// Answers each request for a path without a document with the result of this function.
    pub fn respond(&self, responder: Responder) {
        lock(&self.behavior).responder = Some(responder);
    }

    /// Answers each request for a path without a document with the object in the request's body, and sets this
    /// resourceVersion in the object.
    pub fn echo(&self, resource_version: &str) {
        lock(&self.behavior).echo = Some(resource_version.to_owned());
    }

    /// Delays every answer by this duration.
    pub fn delay(&self, delay: Duration) {
        lock(&self.behavior).delay = delay;
    }

    /// Answers every request with this status. `None` restores the configured answers.
    pub fn fail(&self, status: Option<StatusCode>) {
        lock(&self.behavior).failure = status;
    }

    /// Redirects all requests except discovery to another server. `None` stops the redirects.
    pub fn redirect_to(&self, other: Option<&Self>) {
        lock(&self.behavior).redirect = other.map(Self::url);
    }

    /// Registers a group and version with a member: an ExternalName Service and an APIService. The member may take
    /// seconds to find the server.
    ///
    /// # Errors
    /// If the member refuses one of the objects.
    pub async fn register(&self, member: &TestCluster, group: &str, version: &str) -> anyhow::Result<()> {
        let name = format!("aggregated-{}", self.port);
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self.port}]},
        });
        let answer = member.http().post("/api/v1/namespaces/default/services", &service).send().await?;
        if answer.status != StatusCode::CONFLICT {
            answer.expect(201)?;
        }
        let api_service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.{group}")},
            "spec": {
                "group": group, "version": version, "insecureSkipTLSVerify": true,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"namespace": "default", "name": name, "port": self.port},
            },
        });
        let path = "/apis/apiregistration.k8s.io/v1/apiservices";
        member.http().post(path, &api_service).send().await?.expect(201)?;
        Ok(())
    }

    /// The URL of the server: scheme, host and port.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// The number of received requests.
    #[must_use]
    pub fn requests(&self) -> usize {
        lock(&self.behavior).requests
    }

    /// Stops the server: closes its connections and refuses new connections.
    pub fn stop(&self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }

    /// Starts a stopped server again, at the same port.
    ///
    /// # Errors
    /// If the port is taken.
    pub async fn start_again(&self) -> anyhow::Result<()> {
        self.stop();
        self.listen(TcpListener::bind(("127.0.0.1", self.port)).await.context("listen again")?);
        Ok(())
    }

    fn listen(&self, listener: TcpListener) {
        let task = tokio::spawn(serve(listener, self.acceptor.clone(), Arc::clone(&self.behavior)));
        *lock(&self.task) = Some(task);
    }
}

impl Drop for AggregatedServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: TcpListener, acceptor: Acceptor, behavior: Arc<Mutex<Behavior>>) {
    // The end of this task drops the `JoinSet`, which aborts the tasks of all connections.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, behavior) = (acceptor.clone(), Arc::clone(&behavior));
        connections.spawn(async move {
            let Ok(stream) = acceptor.0.accept(stream).await else { return };
            let service = service_fn(move |request: http::Request<Incoming>| {
                let behavior = Arc::clone(&behavior);
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                    let delay = lock(&behavior).delay;
                    tokio::time::sleep(delay).await;
                    Ok::<_, Infallible>(lock(&behavior).answer_request(&head, &body))
                }
            });
            let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            let _ended = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

impl Behavior {
    fn answer_request(&mut self, head: &Parts, body: &Bytes) -> Response<Full<Bytes>> {
        self.requests += 1;
        let path = head.uri.path();
        if let Some(server) = self.redirect.as_ref().filter(|_| path.trim_matches('/').split('/').count() > 3) {
            let mut response = Response::new(Full::default());
            *response.status_mut() = StatusCode::FOUND;
            let location = HeaderValue::try_from(format!("{server}{path}"));
            response.headers_mut().extend(location.ok().map(|location| (header::LOCATION, location)));
            return response;
        }
        if let Some(status) = self.failure {
            return json_answer(status, &failure(status));
        }
        let decoded = percent_encoding::percent_decode_str(path).decode_utf8_lossy();
        let page = self.pages.get(&*decoded).cloned();
        let found = page
            .or_else(|| self.responder.as_ref().and_then(|respond| respond(head)))
            .or_else(|| self.echo.as_ref().and_then(|version| echo(body, version)));
        match found {
            Some(found) => json_answer(StatusCode::OK, &found),
            None => json_answer(StatusCode::NOT_FOUND, &failure(StatusCode::NOT_FOUND)),
        }
    }
}

fn echo(body: &[u8], resource_version: &str) -> Option<Value> {
    let mut object: Value = serde_json::from_slice(body).ok()?;
    object["metadata"].as_object_mut()?.insert("resourceVersion".to_owned(), json!(resource_version));
    Some(object)
}

fn failure(status: StatusCode) -> Value {
    let reason = status.canonical_reason().unwrap_or_default();
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": status.as_u16(),
        "reason": reason.replace(' ', ""), "message": reason.to_lowercase(),
    })
}

fn json_answer(status: StatusCode, document: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(document.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Acceptor")
    }
}

impl fmt::Debug for Behavior {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages: Vec<_> = self.pages.keys().collect();
        formatter.debug_struct("Behavior").field("pages", &pages).finish_non_exhaustive()
    }
}
