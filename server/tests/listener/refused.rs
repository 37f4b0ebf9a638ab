//! Tests of requests that the listener refuses before authentication. These requests appear in the metrics and the
//! access log, but have no audit event.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::body::Body as _;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::ClusterName;
use tributary_hosts::{HostTable, Hosts};
use tributary_listener::ListenerRefusal;
use tributary_records::audit::AuditMode;
use tributary_router::{DispatchSettings, EntryPointPolicies};
use tributary_server::authentication::Authenticator;
use tributary_server::credentials::BearerToken;
use tributary_server::front::{Client, Entry, Front};
use tributary_sources::data_directory::DataDirectory;

use crate::StandIn;
use crate::access_log::LogFile;
use crate::audit::auditor;
use crate::fixture::{Server, router_over, start, start_observed, start_with_front, text};

/// Returns a request with more headers than the listener allows.
fn laden(builder: http::request::Builder) -> Request<Empty<Bytes>> {
    let laden = (0..=1000).fold(builder, |builder, group| builder.header("impersonate-group", group.to_string()));
    laden.body(Empty::new()).unwrap()
}

/// Sends bytes over HTTP/1.1, and returns all bytes that arrive until the server closes the connection.
async fn answer_to(server: &Server, sent: &[u8]) -> String {
    let mut stream = server.connect(&rustls::version::TLS13, "http/1.1").await;
    stream.write_all(sent).await.unwrap();
    let mut answer = Vec::new();
    let _it_may_be_cut = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn request_with_too_many_headers_is_counted_and_logged() {
    let file = LogFile::open();
    let server = start_observed(StandIn::default(), file.observers()).await;
    let path = "/clusters/eu/api/v1/namespaces/n/pods/p";
    let request = laden(server.bare(&format!("{path}?secret=canary")).header("user-agent", "kubectl/v1"));
    let answer = server.http2().await.send_request(request).await.unwrap();
    assert_eq!(answer.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    let line = file.lines(1).await.remove(0);
    for (field, expected) in [
        ("status", json!(431)),
        ("path", json!(path)),
        ("verb", json!("get")),
        ("cluster", json!("eu")),
        ("name", json!("p")),
        ("decision", json!("refused")),
        ("client", json!("kubectl")),
        ("sourceIps", json!(["127.0.0.1"])),
        ("bytes", json!(text(answer).await.len())),
    ] {
        assert_eq!(line[field], expected, "{field} in {line}");
    }
    assert_eq!(line.get("user"), None);
    assert_eq!(server.refused(ListenerRefusal::TooManyHeaders), 1);
}

#[tokio::test]
async fn unauthenticated_request_above_the_limit_is_logged_as_limited() {
    let (file, folder) = (LogFile::open(), tempfile::tempdir().unwrap());
    let token = BearerToken::open(&DataDirectory::open(folder.path().to_owned()).unwrap()).unwrap();
    let handler = Arc::new(StandIn::default());
    let front = Front::new(handler, CancellationToken::new()).observed(file.observers());
    let entry = Arc::new(Entry::for_hosts(Authenticator::Personal(token.digest()), Arc::default()));
    let address: SocketAddr = ([192, 0, 2, 1], 1).into();
    let client = Client { entry, address, chain: Arc::default(), server_name: None, actor: Arc::default() };
    let request = Request::get("/api/v1/pods").body(()).unwrap();
    let answer = front.refuse(request, &client, ListenerRefusal::TooManyUnknown);
    assert!(answer.status() == StatusCode::TOO_MANY_REQUESTS && answer.body().size_hint().exact() > Some(0));
    let line = file.lines(1).await.remove(0);
    let told = ["status", "decision", "verb", "resource", "sourceIps"].map(|field| line[field].clone());
    assert_eq!(told, [json!(429), json!("limited"), json!("list"), json!("pods"), json!(["192.0.2.1"])], "{line}");
    let reason = ListenerRefusal::TooManyUnknown.as_str();
    let labels = tributary_listener::RefusalLabels { reason };
    assert_eq!(front.own_metrics().listener.refused.get_or_create(&labels).get(), 1);
}

#[tokio::test]
async fn malformed_and_oversized_heads_are_counted_in_the_metrics() {
    let server = start(StandIn::default()).await;
    let answer = answer_to(&server, b"GET /api HTTP/1.1\r\nno header\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let mut large = b"GET /api HTTP/1.1\r\nhost: x\r\nlarge: ".to_vec();
    large.resize(2 << 20, b'x');
    let answer = answer_to(&server, &large).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    let counted = async {
        while [ListenerRefusal::Malformed, ListenerRefusal::HeadTooLarge].map(|why| server.refused(why)) != [1, 1] {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let in_time = tokio::time::timeout(crate::fixture::SOON, counted).await;
    assert!(in_time.is_ok(), "{:?}", ListenerRefusal::ALL.map(|why| (why, server.refused(why))));
}

/// kube-apiserver also writes no audit event for requests that it refuses before authentication (`docs/audit.md`).
#[tokio::test]
async fn request_refused_before_authentication_has_no_audit_event() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().join("audit.log"), LogFile::open());
    let audit = auditor(folder.path(), path.clone(), AuditMode::Blocking).await;
    let (_member, router) = router_over("eu").await;
    let frozen = EntryPointPolicies { denies_all: true, ..EntryPointPolicies::default() };
    let clusters = [(ClusterName::new("eu").unwrap(), frozen)].into();
    router.set_dispatch(DispatchSettings { clusters, ..DispatchSettings::default() });
    let hosts = Arc::<Hosts>::default();
    let merged = ["all.test".parse().unwrap()];
    hosts.replace(HostTable::new(&merged, Vec::new(), [], &HostTable::default()).unwrap());
    let observers = file.observers();
    let server = start_with_front(hosts, router, |front| front.audited(audit).observed(observers)).await;
    let get = |path: &str| Request::get(format!("https://all.test{path}"));
    let empty = |builder: http::request::Builder| builder.body(Empty::<Bytes>::new()).unwrap();
    for (request, expected) in [
        (empty(get("/clusters/eu/api/v1/pods")), 429),
        (empty(Request::get("https://other.test/api/v1/pods")), 503),
        (laden(get("/api/v1/pods")), 431),
        // This request fails authentication. Its audit event proves that the audit log is written.
        (empty(get("/api/v1/pods")), 401),
    ] {
        let answer = server.http2().await.send_request(request).await.unwrap();
        assert_eq!(answer.status().as_u16(), expected);
    }
    let logged: Vec<_> = file.lines(4).await.iter().map(|line| line["status"].clone()).collect();
    assert_eq!(logged, [429, 503, 431, 401]);
    let audited = std::fs::read_to_string(path).unwrap();
    let audited: Vec<serde_json::Value> = audited.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let codes: Vec<_> = audited.iter().map(|event| &event["responseStatus"]["code"]).collect();
    assert_eq!(codes, [401], "{audited:?}");
}
