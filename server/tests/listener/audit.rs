//! Tests of the listener's audit log: the stages at which each kind of request is recorded.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::request::Parts;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tributary_apimachinery::body::{Body, empty, full};
use tributary_apimachinery::{AuditLevel, RequestInfo};
use tributary_listener::Bounds;
use tributary_records::audit::{AuditLogSettings, AuditMode, AuditSettings, Auditor};
use tributary_records::line_log::Rotation;
use tributary_router::{Answer, RequestContext};
use tributary_server::handler::Handler;

use crate::fixture::{SOON, Server, default_handler_methods, router_over, start_audited, text};
use crate::slow_readers::watch_over_websocket;

/// A handler that replaces the router. It serves a pod, a watch, an exec, errors, and a panic.
struct StandIn;

impl StandIn {
    async fn respond(&self, request: Request<Body>, context: &RequestContext) -> Response<Body> {
        match request.uri().path() {
            "/api/v1/namespaces/n/pods/panic" => panic!("a handler's fault"),
            "/api/v1/namespaces/n/pods/gone"
            | "/api/v1/namespaces/n/pods/gone/log"
            | "/api/v1/namespaces/n/services/s/proxy/gone" => {
                let status = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "gone", "code": 404});
                let mut response = Response::new(full(status.to_string()));
                *response.status_mut() = StatusCode::NOT_FOUND;
                response
                    .headers_mut()
                    .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
                response
            }
            // The JSON has line breaks, like the response of a kube-apiserver to `?pretty=1` or to curl. The audit
            // event must still contain it.
            "/api/v1/namespaces/n/pods/pretty" => {
                let details = json!({"name": "pretty", "kind": "pods", "uid": "u"});
                let status = json!({"kind": "Status", "status": "Success", "details": details});
                let mut response = Response::new(full(serde_json::to_string_pretty(&status).unwrap()));
                response
                    .headers_mut()
                    .insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
                response
            }
            "/api/v1/pods" => {
                let first = futures::stream::iter([Ok(Frame::data(Bytes::from_static(b"ADDED\n")))]);
                let body = StreamBody::new(first.chain(futures::stream::pending())).boxed_unsync();
                Response::builder().header(header::CONTENT_TYPE, "application/json").body(body).unwrap()
            }
            "/api/v1/namespaces/n/pods/p/exec" => {
                let upgrade = context.arrival.upgrade.clone().unwrap();
                tokio::spawn(async move {
                    let mut io = TokioIo::new(upgrade.connection.await.unwrap());
                    let mut buffer = [0; 8];
                    while let Ok(1..) = io.read(&mut buffer).await {}
                    drop(upgrade.permits);
                });
                let mut response = Response::new(empty());
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("upgrade"));
                response.headers_mut().insert(header::UPGRADE, header::HeaderValue::from_static("spdy/3.1"));
                response
            }
            _ => {
                let id = request.headers().get("audit-id").cloned();
                let text = id.map(|id| id.to_str().unwrap().to_owned()).unwrap_or_default();
                Response::new(full(text))
            }
        }
    }
}

impl Handler for StandIn {
    async fn handle(&self, request: Request<Body>, context: &RequestContext) -> Answer {
        self.respond(request, context).await.into()
    }

    /// Simulates dispatch policies that disable audit events for some pods and for Tributary's own paths.
    fn audit_level(&self, head: &Parts, _info: &RequestInfo, _context: &RequestContext) -> Option<AuditLevel> {
        let path = head.uri.path();
        let is_unwritten =
            ["/metrics", "/tributary"].iter().any(|own| path.starts_with(own)) || path.ends_with("/quiet");
        is_unwritten.then_some(AuditLevel::None)
    }

    default_handler_methods!();
}

const POLICY: &str = r#"{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [
    {"level": "None", "nonResourceURLs": ["/version"]},
    {"level": "Metadata", "nonResourceURLs": ["/healthz"], "omitStages": ["RequestReceived"]},
    {"level": "Metadata"}
]}"#;

/// Opens an audit log with [`POLICY`] in `folder`.
pub(crate) async fn auditor(folder: &Path, log: PathBuf, mode: AuditMode) -> Option<Arc<Auditor>> {
    let policy = folder.join("policy.yaml");
    std::fs::write(&policy, POLICY).unwrap();
    let rotation = Rotation::default();
    let log = AuditLogSettings { path: log, rotation, mode, buffer_size: 10_000, event_bytes_max: None };
    let settings = AuditSettings { policy_file: Some(policy), log: Some(log), webhook: None };
    Auditor::open(&settings).await.unwrap()
}

struct Audited {
    server: Server,
    log: PathBuf,
    _folder: tempfile::TempDir,
}

impl Audited {
    async fn start(log: Option<&str>, mode: AuditMode) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let log = log.map_or_else(|| folder.path().join("audit.log"), PathBuf::from);
        let auditor = auditor(folder.path(), log.clone(), mode).await;
        let server = start_audited(Bounds::default(), StandIn, auditor).await;
        Self { server, log, _folder: folder }
    }

    fn events(&self, id: &str) -> Vec<Value> {
        let all = events(&self.log);
        all.into_iter().filter(|event| event["auditID"] == id).collect()
    }

    /// Returns the stage and status code of each event with this audit ID.
    fn stages(&self, id: &str) -> Vec<(String, u64)> {
        let stage = |event: &Value| event["stage"].as_str().unwrap().to_owned();
        let code = |event: &Value| event["responseStatus"]["code"].as_u64().unwrap_or_default();
        self.events(id).iter().map(|event| (stage(event), code(event))).collect()
    }

    async fn eventually_has(&self, id: &str, stages: &[(&str, u64)]) {
        let expected: Vec<_> = stages.iter().map(|(stage, code)| ((*stage).to_owned(), *code)).collect();
        let written = async {
            while self.stages(id) != expected {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        let waited = tokio::time::timeout(SOON, written).await;
        assert!(waited.is_ok(), "{id}: {:?}, not {expected:?}", self.stages(id));
    }
}

pub(crate) fn events(log: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn ended(builder: http::request::Builder, id: &str) -> Request<Empty<Bytes>> {
    builder.header("audit-id", id).body(Empty::new()).unwrap()
}

#[tokio::test]
async fn response_is_audited_before_its_client_receives_the_end() {
    let audited = Audited::start(None, AuditMode::Blocking).await;
    let server = &audited.server;
    let mut client = server.http2().await;
    for (id, path, expected) in [
        ("pod", "/api/v1/namespaces/n/pods/p", &[("RequestReceived", 0), ("ResponseComplete", 200)][..]),
        ("gone", "/api/v1/namespaces/n/pods/gone", &[("RequestReceived", 0), ("ResponseComplete", 404)]),
        ("panic", "/api/v1/namespaces/n/pods/panic", &[("RequestReceived", 0), ("Panic", 500)]),
        ("metrics", "/metrics", &[("RequestReceived", 0), ("ResponseComplete", 200)]),
        ("version", "/version", &[]),
    ] {
        let response = client.send_request(ended(server.request(path), id)).await.unwrap();
        assert_eq!(response.headers()["audit-id"], id);
        text(response).await;
        // In blocking mode the event is written before the response, so the test does not wait.
        let written = audited.stages(id);
        let written: Vec<_> = written.iter().map(|(stage, code)| (stage.as_str(), *code)).collect();
        assert_eq!(written, expected, "{path}");
    }
    let gone = audited.events("gone").pop().unwrap();
    assert_eq!((&gone["responseStatus"]["message"], &gone["verb"]), (&json!("gone"), &json!("get")));
    assert_eq!(gone["user"]["username"], "tributary:personal");
    assert_eq!(gone["sourceIPs"], json!(["127.0.0.1"]));
    assert_eq!(gone["annotations"]["tributary.dev/answered-by"], "tributary");
    assert_eq!(gone["objectRef"]["name"], "gone");
}

/// kube-apiserver sets `impersonatedUser` only after it has authorized the impersonation. Tributary answers discovery
/// and health checks for every user without authorizing an impersonation.
#[tokio::test]
async fn discovery_and_health_checks_are_audited_without_the_impersonated_user() {
    let (_member, router) = router_over("eu").await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let audit = auditor(folder.path(), log.clone(), AuditMode::Blocking).await;
    let server = start_audited(Bounds::default(), router, audit).await;
    let mut client = server.http2().await;
    let asked = json!(r#"asked: {"username":"root","groups":["system:authenticated"]}"#);
    for (id, path, expected) in [
        ("api", "/api", (Value::Null, asked.clone())),
        ("v1", "/api/v1", (Value::Null, asked.clone())),
        ("apis", "/apis", (Value::Null, asked.clone())),
        ("health", "/readyz", (Value::Null, asked)),
        // At the path of a cluster, the cluster authorizes the impersonation, so the event contains the impersonated
        // user.
        ("member", "/clusters/eu/api/v1/namespaces", (json!("root"), json!("decided by each cluster"))),
    ] {
        let request = server.request(path).header("impersonate-user", "root");
        text(client.send_request(ended(request, id)).await.unwrap()).await;
        let is_end = |event: &Value| event["auditID"] == id && event["stage"] == "ResponseComplete";
        let event = events(&log).into_iter().find(is_end).unwrap();
        let annotation = event["annotations"]["tributary.dev/impersonation"].clone();
        assert_eq!((event["impersonatedUser"]["username"].clone(), annotation), expected, "{path}");
    }
}

#[tokio::test]
async fn request_without_an_audit_id_gets_a_new_one() {
    let audited = Audited::start(None, AuditMode::Blocking).await;
    let server = &audited.server;
    let mut client = server.http2().await;
    let request = server.request("/api/v1/namespaces/n/pods/p").body(Empty::new()).unwrap();
    let response = client.send_request(request).await.unwrap();
    let id = response.headers()["audit-id"].to_str().unwrap().to_owned();
    assert_eq!(text(response).await, id, "the handler is told the same");
    assert_eq!(audited.stages(&id).len(), 2);
}

#[tokio::test]
async fn unauthenticated_request_is_audited_once_without_its_credential() {
    let audited = Audited::start(None, AuditMode::Blocking).await;
    let server = &audited.server;
    for (id, token, message) in [
        ("none", None, "Authentication failed, no credentials provided"),
        ("wrong", Some("Bearer CANARY"), "Authentication failed, attempted: bearer"),
    ] {
        let mut client = server.http2().await;
        let mut request = ended(server.bare("/api/v1/pods?access_token="), id);
        if let Some(token) = token {
            request.headers_mut().insert(header::AUTHORIZATION, token.parse().unwrap());
        }
        let response = client.send_request(request).await.unwrap();
        assert_eq!(
            (response.status(), &response.headers()["audit-id"]),
            (StatusCode::UNAUTHORIZED, &id.parse().unwrap())
        );
        let [event] = &audited.events(id)[..] else { panic!("one event: {:?}", audited.stages(id)) };
        assert_eq!((&event["stage"], &event["user"]), (&json!("ResponseStarted"), &json!({})));
        let unauthorized = json!({
            "metadata": {}, "status": "Failure", "reason": "Unauthorized", "message": message, "code": 401,
        });
        assert_eq!(event["responseStatus"], unauthorized);
    }
    assert!(!std::fs::read_to_string(&audited.log).unwrap().contains("CANARY"));
    let health = ended(server.bare("/healthz"), "health");
    server.http2().await.send_request(health).await.unwrap();
    audited.eventually_has("health", &[("ResponseComplete", 200)]).await;
    let nobody = json!({"username": "system:anonymous", "groups": ["system:unauthenticated"]});
    assert_eq!(audited.events("health")[0]["user"], nobody);
}

/// As in kube-apiserver, the event of stage `ResponseStarted` also contains the Status of an error response.
#[tokio::test]
async fn refused_long_running_request_has_its_status_at_response_started() {
    let audited = Audited::start(None, AuditMode::Blocking).await;
    let server = &audited.server;
    let log = server.request("/api/v1/namespaces/n/pods/gone/log?follow=true");
    let response = server.http2().await.send_request(ended(log, "refused")).await.unwrap();
    assert!(text(response).await.contains("NotFound"), "the answer is whole");
    let stages = [("RequestReceived", 0), ("ResponseStarted", 404), ("ResponseComplete", 404)];
    audited.eventually_has("refused", &stages).await;
    for event in &audited.events("refused")[1..] {
        assert_eq!(
            (&event["responseStatus"]["reason"], &event["responseStatus"]["message"]),
            (&json!("NotFound"), &json!("gone"))
        );
    }
}

#[tokio::test]
async fn multiline_response_is_audited_on_one_line() {
    let audited = Audited::start(None, AuditMode::Blocking).await;
    let server = &audited.server;
    let request = server.request("/api/v1/namespaces/n/pods/pretty?pretty=1").method("DELETE");
    let response = server.http2().await.send_request(ended(request, "pretty")).await.unwrap();
    assert!(text(response).await.contains('\n'), "the client has it as it was asked for");
    audited.eventually_has("pretty", &[("RequestReceived", 0), ("ResponseComplete", 200)]).await;
    let expected = json!({
        "metadata": {}, "status": "Success", "details": {"name": "pretty", "kind": "pods", "uid": "u"}, "code": 200,
    });
    assert_eq!(audited.events("pretty")[1]["responseStatus"], expected);
}

/// The Status in a response may come from the workload behind `proxy/`. A client must not be able to write arbitrary
/// text to the audit log through a workload.
#[tokio::test]
async fn workload_error_is_audited_with_only_its_code() {
    let audited = Audited::start(None, AuditMode::Blocking).await;
    let server = &audited.server;
    let request = ended(server.request("/api/v1/namespaces/n/services/s/proxy/gone"), "workload");
    let response = server.http2().await.send_request(request).await.unwrap();
    assert!(text(response).await.contains("NotFound"), "its client is told all of it");
    let stages = [("RequestReceived", 0), ("ResponseStarted", 404), ("ResponseComplete", 404)];
    audited.eventually_has("workload", &stages).await;
    for event in &audited.events("workload")[1..] {
        assert_eq!(event["responseStatus"], json!({"metadata": {}, "code": 404}), "{event}");
    }
}

#[tokio::test]
async fn long_running_request_is_audited_at_its_begin_and_end() {
    let audited = Audited::start(None, AuditMode::Blocking).await;
    let server = &audited.server;
    let mut client = server.http2().await;
    let mut watch = client.send_request(ended(server.request("/api/v1/pods?watch=1"), "watch")).await.unwrap();
    watch.body_mut().frame().await.unwrap().unwrap();
    let begun = [("RequestReceived", 0), ("ResponseStarted", 200)];
    audited.eventually_has("watch", &begun).await;
    drop(watch);
    audited.eventually_has("watch", &[begun[0], begun[1], ("ResponseComplete", 200)]).await;

    let exec = server.request("/api/v1/namespaces/n/pods/p/exec?command=id").method("POST");
    let exec = exec.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "spdy/3.1");
    let mut response = server.http1().await.send_request(ended(exec, "exec")).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut tunnel = TokioIo::new(hyper::upgrade::on(&mut response).await.unwrap());
    tunnel.write_all(b"hello").await.unwrap();
    let begun = [("RequestReceived", 0), ("ResponseStarted", 101)];
    audited.eventually_has("exec", &begun).await;
    drop(tunnel);
    audited.eventually_has("exec", &[begun[0], begun[1], ("ResponseComplete", 101)]).await;

    let mut websocket = watch_over_websocket(server, "/api/v1/pods?watch=1&limit=7").await;
    websocket.read_u8().await.unwrap();
    let of_websocket = |event: &Value| event["requestURI"] == "/api/v1/pods?watch=1&limit=7";
    let id = events(&audited.log).into_iter().find(of_websocket).unwrap()["auditID"].as_str().unwrap().to_owned();
    audited.eventually_has(&id, &begun).await;
    drop(websocket);
    audited.eventually_has(&id, &[begun[0], begun[1], ("ResponseComplete", 101)]).await;
}

#[tokio::test]
async fn failed_audit_write_refuses_requests_only_in_strict_mode() {
    // Each write to `/dev/full` fails as on a full disk.
    let full = Some("/dev/full");
    for (mode, status) in
        [(AuditMode::Blocking, StatusCode::OK), (AuditMode::BlockingStrict, StatusCode::INTERNAL_SERVER_ERROR)]
    {
        let audited = Audited::start(full, mode).await;
        let server = &audited.server;
        let request = ended(server.request("/api/v1/namespaces/n/pods/p"), "pod");
        let response = server.http2().await.send_request(request).await.unwrap();
        assert_eq!(response.status(), status, "{mode:?}");
        if status != StatusCode::OK {
            assert!(text(response).await.contains("failed to store audit event"));
        }
    }
}

/// Dispatch policies do not apply to Tributary's own paths, so the audit levels of dispatch policies do not apply
/// either.
#[tokio::test]
async fn tributarys_own_paths_obey_only_the_audit_policy() {
    let audited = Audited::start(None, AuditMode::Blocking).await;
    let server = &audited.server;
    let mut client = server.http2().await;
    for (id, path, is_written) in [
        ("quiet", "/api/v1/namespaces/n/pods/quiet", false),
        ("metrics", "/metrics", true),
        ("status", "/tributary/status", true),
        ("question", "/tributary/policy-test?user=ann&verb=get&path=%2Fversion", true),
        ("beside", "/tributary/other", false),
    ] {
        text(client.send_request(ended(server.request(path), id)).await.unwrap()).await;
        let expected: &[_] =
            if is_written { &[("RequestReceived".to_owned(), 0), ("ResponseComplete".to_owned(), 200)] } else { &[] };
        assert_eq!(audited.stages(id), expected, "{path}");
    }
}
