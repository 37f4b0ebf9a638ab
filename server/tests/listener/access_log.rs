//! Tests of the listener's access log: one line per request, written when the response has ended, without secrets.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tributary_apimachinery::body::{Body, empty, full};
use tributary_policy::{AccessLogSetting, LoggingModes};
use tributary_records::access_log::{AccessLog, AccessLogSettings};
use tributary_records::line_log::Rotation;
use tributary_router::{Answer, RequestContext};
use tributary_server::front::Observers;
use tributary_server::handler::Handler;

use crate::fixture::{SOON, Server, default_handler_methods, start_observed, text};

/// A handler that replaces the router. It serves an object, a watch that does not end, and an exec.
struct StandIn;

impl StandIn {
    async fn respond(&self, request: Request<Body>, context: &RequestContext) -> Response<Body> {
        match request.uri().path() {
            "/api/v1/pods" => {
                let first = futures::stream::iter([Ok(Frame::data(Bytes::from_static(b"ADDED\n")))]);
                Response::new(StreamBody::new(first.chain(futures::stream::pending())).boxed_unsync())
            }
            "/api/v1/namespaces/n/pods/p/exec" => {
                let upgrade = context.arrival.upgrade.clone().unwrap();
                tokio::spawn(async move {
                    let mut io = TokioIo::new(upgrade.connection.await.unwrap());
                    while let Ok(1..) = io.read(&mut [0; 8]).await {}
                    drop(upgrade.permits);
                });
                let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
                let response = response.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "spdy/3.1");
                response.body(empty()).unwrap()
            }
            "/api/v1/namespaces/n/pods/fails" => {
                Response::builder().status(StatusCode::SERVICE_UNAVAILABLE).body(empty()).unwrap()
            }
            _ => Response::new(full("an object")),
        }
    }
}

impl Handler for StandIn {
    async fn handle(&self, request: Request<Body>, context: &RequestContext) -> Answer {
        self.respond(request, context).await.into()
    }

    default_handler_methods!();
}

pub(crate) struct LogFile {
    pub(crate) log: Arc<AccessLog>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl LogFile {
    pub(crate) fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let settings = AccessLogSettings { path: path.clone(), rotation: Rotation::default(), buffer_size: 10_000 };
        let log = AccessLog::open(settings).unwrap();
        Self { log, path, _folder: folder }
    }

    pub(crate) fn observers(&self) -> Observers {
        Observers { access_log: Some(Arc::clone(&self.log)), tracer: None }
    }

    /// Waits until the log has at least `count` lines, and returns the parsed lines. Fails if the log has more.
    pub(crate) async fn lines(&self, count: usize) -> Vec<Value> {
        let wait = async {
            loop {
                let text = std::fs::read_to_string(&self.path).unwrap();
                if text.lines().count() >= count {
                    return text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>();
                }
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        let lines = tokio::time::timeout(SOON, wait).await.unwrap();
        assert_eq!(lines.len(), count, "{lines:#?}");
        lines
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }
}

struct Logged {
    server: Server,
    file: LogFile,
}

impl Logged {
    async fn start() -> Self {
        let file = LogFile::open();
        Self { server: start_observed(StandIn, file.observers()).await, file }
    }

    async fn lines(&self, count: usize) -> Vec<Value> {
        self.file.lines(count).await
    }

    async fn get(&self, path: &str) -> StatusCode {
        let request = self.server.request(path).header("user-agent", "kubectl/v1 (linux)").body(Empty::new()).unwrap();
        let response = self.server.http1().await.send_request(request).await.unwrap();
        let status = response.status();
        text(response).await;
        status
    }
}

#[tokio::test]
async fn access_log_line_has_user_request_and_result() {
    let logged = Logged::start().await;
    let path = "/clusters/eu/apis/apps/v1/namespaces/n/deployments/web/scale";
    assert_eq!(logged.get(&format!("{path}?pretty=true&token=secret-canary")).await, StatusCode::OK);
    let line = logged.lines(1).await.remove(0);
    for (field, expected) in [
        ("status", json!(200)),
        ("method", json!("GET")),
        ("path", json!(path)),
        ("verb", json!("get")),
        ("resource", json!("deployments.apps/scale")),
        ("namespace", json!("n")),
        ("name", json!("web")),
        ("cluster", json!("eu")),
        ("client", json!("kubectl")),
        ("userAgent", json!("kubectl/v1 (linux)")),
        ("sourceIps", json!(["127.0.0.1"])),
        ("bytes", json!("an object".len())),
        ("complete", json!(true)),
    ] {
        assert_eq!(line[field], expected, "{field} in {line}");
    }
    assert!(line["seconds"].as_f64().unwrap() >= line["headSeconds"].as_f64().unwrap());
    let written = logged.file.text();
    for secret in ["secret-canary", logged.server.token.as_str(), "pretty"] {
        assert!(!written.contains(secret), "{secret} in {written}");
    }
}

#[tokio::test]
async fn unauthenticated_request_is_logged_and_cannot_forge_a_line() {
    let logged = Logged::start().await;
    let forged = "x%0a%7b%22status%22:200%7d";
    let request = logged.server.bare(&format!("/api/v1/namespaces/{forged}"));
    let request = request.header("user-agent", "a\", \"user\": \"root\tb").body(Empty::new()).unwrap();
    let response = logged.server.http1().await.send_request(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    let line = logged.lines(1).await.remove(0);
    assert_eq!((&line["status"], &line["decision"]), (&json!(401), &json!("refused")));
    assert_eq!(line.get("user"), None);
    assert_eq!(line["userAgent"], "a\", \"user\": \"root\\u{9}b");
}

#[tokio::test]
async fn long_running_request_is_logged_at_its_end() {
    let logged = Logged::start().await;
    let request = logged.server.request("/api/v1/pods?watch=true").body(Empty::new()).unwrap();
    let mut client = logged.server.http2().await;
    let mut response = client.send_request(request).await.unwrap();
    response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(logged.file.text(), "", "it is not over");
    drop(response);
    let line = logged.lines(1).await.remove(0);
    assert_eq!((&line["verb"], &line["bytes"], &line["complete"]), (&json!("watch"), &json!(6), &json!(false)));

    let exec = logged.server.request("/api/v1/namespaces/n/pods/p/exec").header(header::CONNECTION, "upgrade");
    let exec = exec.header(header::UPGRADE, "spdy/3.1").body(Empty::new()).unwrap();
    let mut response = logged.server.http1().await.send_request(exec).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let upgraded = hyper::upgrade::on(&mut response).await.unwrap();
    logged.lines(1).await;
    drop(upgraded);
    let line = logged.lines(2).await.remove(1);
    assert_eq!((&line["status"], &line["resource"]), (&json!(101), &json!("pods/exec")));
}

#[tokio::test]
async fn changed_access_log_mode_applies_to_later_requests() {
    let logged = Logged::start().await;
    logged.get("/api/v1/namespaces/n/pods/one").await;
    logged.lines(1).await;
    let merged = Some(AccessLogSetting::default());
    logged.file.log.set_modes(LoggingModes { merged, ..LoggingModes::default() });
    logged.get("/api/v1/namespaces/n/pods/two").await;
    logged.get("/clusters/eu/api/v1/namespaces/n/pods/three").await;
    logged.get("/api/v1/namespaces/n/pods/fails").await;
    let names: Vec<_> = logged.lines(3).await.iter().map(|line| line["name"].clone()).collect();
    assert_eq!(names, ["one", "three", "fails"]);
}
