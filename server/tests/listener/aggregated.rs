//! Tests of the aggregated entry: its own documents, and the merged view and the clusters below its mounts.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use http::{Request, Response, header};
use http_body_util::Empty;
use serde_json::{Value, json};
use tributary_apimachinery::ForeignSystem;
use tributary_apimachinery::body::{Body, full};
use tributary_records::audit::AuditMode;
use tributary_router::{Answer, Policies, RequestContext, Router, RouterConfig};
use tributary_server::front::OpenDoors;
use tributary_server::handler::Handler;

use crate::audit::{auditor, ended, events};
use crate::door_table::{MEMBERS, MERGED_VIEWS};
use crate::doors::members;
use crate::fixture::{
    SOON, Server, default_handler_methods, router_over, start, start_aggregated, start_with_doors, text,
};
use crate::slow_readers::{Talker, get as get_request, reluctant, settled, until};

const GROUP: &str = "/apis/aggregation.tributary.dev/v1alpha1";
pub(crate) const ALL: &str = "/apis/aggregation.tributary.dev/v1alpha1/views/all/proxy";
const EU: &str = "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu/proxy";

/// Sends a GET with the token. Returns the status, the headers and the text.
async fn get(server: &Server, path: &str, headers: &[(&str, &str)]) -> (u16, http::HeaderMap, String) {
    let mut request = server.request(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = server.http2().await.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    (status, headers, text(answer).await)
}

async fn json_of(server: &Server, path: &str) -> Value {
    let (status, _, text) = get(server, path, &[]).await;
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// A kube-apiserver cannot finish the deletion of a namespace while the discovery of an APIService fails. So the
/// entry's discovery documents must not depend on clusters.
#[tokio::test]
async fn aggregated_entry_serves_its_documents_before_the_first_configuration() {
    const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let server = start_aggregated(Router::new(RouterConfig::default()), None).await;
    for path in ["/apis", "/apis/aggregation.tributary.dev", GROUP, "/openapi/v2", "/openapi/v3", "/livez", "/healthz"]
    {
        assert_eq!(get(&server, path, &[]).await.0, 200, "{path}");
    }
    let (status, headers, first) = get(&server, "/apis", &[("accept", V2)]).await;
    assert_eq!((status, headers[header::CONTENT_TYPE].to_str().unwrap()), (200, V2), "{first}");
    let tag = headers[header::ETAG].to_str().unwrap();
    let (status, _, again) = get(&server, "/apis", &[("accept", V2), ("if-none-match", tag)]).await;
    assert_eq!((status, again.as_str()), (304, ""));
    assert_eq!(json_of(&server, &format!("{GROUP}/views")).await["items"][0]["metadata"]["name"], "all");

    let unconfigured =
        [format!("{ALL}/api/v1/pods"), format!("{EU}/api"), format!("{GROUP}/clusters"), "/readyz".to_owned()];
    for path in &unconfigured {
        let (status, headers, text) = get(&server, path, &[]).await;
        assert_eq!((status, headers[header::RETRY_AFTER].to_str().unwrap()), (503, "1"), "{path}: {text}");
    }
    server.entry.serve_clusters();
    for path in &unconfigured {
        let (_, headers, text) = get(&server, path, &[]).await;
        assert!(!headers.contains_key(header::RETRY_AFTER) && !text.contains("just started"), "{path}: {text}");
    }
}

#[tokio::test]
async fn aggregated_entry_authenticates_requests_for_its_documents() {
    let server = start_aggregated(Router::new(RouterConfig::default()), None).await;
    for (path, expected) in [("/apis", 401), (GROUP, 401), ("/metrics", 401), ("/livez", 200), ("/readyz?verbose", 401)]
    {
        // Each request needs a new connection, because the listener closes a connection whose requests are all refused.
        let answer = server.http1().await.send_request(server.bare(path).body(Empty::new()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), expected, "{path}");
        text(answer).await;
    }
    for path in ["/", "/metrics", "/tributary/status", "/api/v1/pods", "/clusters/eu/api", "/version", "/apis/apps/v1"]
    {
        assert_eq!(get(&server, path, &[]).await.0, 404, "{path}");
    }
}

#[tokio::test]
async fn mounts_serve_the_merged_view_and_the_cluster() {
    let (_member, router) = router_over("eu").await;
    let server = start_aggregated(router, None).await;
    server.entry.serve_clusters();
    let merged = json_of(&server, &format!("{ALL}/api/v1/nodes")).await;
    assert_eq!(merged["items"][0]["metadata"]["annotations"]["tributary.dev/cluster"], "eu");
    let native = json_of(&server, &format!("{EU}/api/v1/nodes")).await;
    assert_eq!(native["items"][0]["metadata"]["annotations"].get("tributary.dev/cluster"), None);
    assert_eq!(json_of(&server, ALL).await["paths"], json_of(&server, &format!("{ALL}/")).await["paths"]);
    // The URLs in the index omit the prefix of the mount: client-go itself adds the prefix of its server
    // (kubernetes/kubernetes#117463).
    let index = json_of(&server, &format!("{ALL}/openapi/v3")).await;
    let url = index["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap();
    assert!(url.starts_with("/openapi/v3/api/v1"), "{url}");
    assert_eq!(get(&server, &format!("{ALL}{url}"), &[]).await.0, 200);

    for path in [&format!("{GROUP}/clusters/us/proxy/api"), &format!("{GROUP}/clusters/US/proxy/api")] {
        let (status, _, text) = get(&server, path, &[]).await;
        assert!(status == 404 && text.contains("clusters"), "{path}: {text}");
    }
    let (status, _, text) = get(&server, &format!("{GROUP}/views/other/proxy/api"), &[]).await;
    assert!(status == 404 && text.contains("views.aggregation.tributary.dev \\\"other\\\" not found"), "{text}");
}

#[tokio::test]
async fn paths_below_a_mount_have_the_same_answers_as_without_a_mount() {
    let (_member, router) = router_over("eu").await;
    let (direct, aggregated) = (start(router.clone()).await, start_aggregated(router, None).await);
    aggregated.entry.serve_clusters();
    for (path, expected) in [
        ("/api/v1/namespaces/n%2Fx/pods", 404),
        ("/api/v1/namespaces/n/pods/%2E%2E", 404),
        ("/api/v1/namespaces/n/pods/a%5C..%5Cb", 404),
        ("/api/v1/namespaces/n/pods/%zz", 400),
        ("/api/v1/namespaces/n/pods/%00", 400),
        ("//api/v1/pods", 404),
        ("/api//v1/pods", 404),
        ("/api/v1/../v1/pods", 404),
        ("/api/v1/pods;x", 404),
        ("/clusters/eu;x/api", 404),
        ("/unknown", 404),
        ("/api/v1/namespaces/n/pods/p/exec?command=a%3Bb&command=c", 404),
    ] {
        // At the direct entry, a path that begins with `/clusters` selects a cluster. Such a path cannot be compared
        // with the merged view, so this check skips it.
        if !path.starts_with("/clusters") {
            assert_eq!(get(&direct, path, &[]).await.0, expected, "{path}");
        }
        assert_eq!(get(&aggregated, &format!("{ALL}{path}"), &[]).await.0, expected, "{path} in the view");
        let of_cluster = get(&direct, &format!("/clusters/eu{path}"), &[]).await.0;
        assert_eq!(get(&aggregated, &format!("{EU}{path}"), &[]).await.0, of_cluster, "{path} in the cluster");
    }
    // Below a mount, the prefix of a mount has no special meaning, and the target does not serve such a path.
    for inner in [EU, ALL, "/clusters/eu/api", "/metrics", "/tributary/status", &format!("{GROUP}/views")] {
        for mount in [ALL, EU] {
            assert_eq!(get(&aggregated, &format!("{mount}{inner}"), &[]).await.0, 404, "{mount}{inner}");
        }
    }
}

#[tokio::test]
async fn stale_openapi_hash_below_a_mount_gets_the_current_document() {
    let (_member, router) = router_over("eu").await;
    let (direct, aggregated) = (start(router.clone()).await, start_aggregated(router, None).await);
    aggregated.entry.serve_clusters();
    const STALE: &str = "/openapi/v3/api/v1?hash=00";
    for (at_direct, mount) in [("", ALL), ("/clusters/eu", EU)] {
        let (status, headers, _) = get(&direct, &format!("{at_direct}{STALE}"), &[]).await;
        let place = headers[header::LOCATION].to_str().unwrap();
        assert!(status == 301 && place.starts_with(&format!("{at_direct}/openapi/v3/api/v1?hash=")), "{place}");
        let (status, headers, document) = get(&aggregated, &format!("{mount}{STALE}"), &[]).await;
        assert!(status == 200 && document.contains("\"openapi\""), "{mount}: {status} {document}");
        assert!(!headers.contains_key(header::LOCATION), "{mount}");
    }
}

#[tokio::test]
async fn messages_at_the_aggregated_entry_name_paths_below_the_api_group() {
    let (_member, router) = router_over("eu").await;
    router.set_policies(Policies { registered: Some(vec!["pods".parse().unwrap()]), ..Policies::default() });
    let (direct, aggregated) = (start(router.clone()).await, start_aggregated(router, None).await);
    aggregated.entry.serve_clusters();
    let watch = "/api/v1/configmaps?watch=1";
    let (status, _, text) = get(&direct, watch, &[]).await;
    assert!(status == 405 && text.contains("kubectl --context <name>"), "{text}");
    let (status, _, text) = get(&aggregated, &format!("{ALL}{watch}"), &[]).await;
    assert!(status == 405 && !text.contains("--context"), "{text}");
    let hint = format!("kubectl --server https://HUB{GROUP}/clusters/<name>/proxy, or the path {GROUP}/clusters/");
    assert!(text.contains(&hint), "{text}");
}

/// A handler that answers with the status in the request's header `status`, and with a `Location`.
struct Redirecting;

impl Handler for Redirecting {
    async fn handle(&self, request: Request<Body>, _context: &RequestContext) -> Answer {
        let status: u16 = request.headers()["status"].to_str().unwrap().parse().unwrap();
        let answer = Response::builder().status(status).header(header::LOCATION, "https://elsewhere/?token=secret");
        answer.body(full("secret")).unwrap().into()
    }

    default_handler_methods!();
}

/// Checks every redirect status at each kind of path: the entry's own, all doors, unknown and unreadable paths.
#[tokio::test]
async fn no_answer_at_the_aggregated_entry_is_a_redirect() {
    let doors = Arc::new(OpenDoors::new(ForeignSystem::ALL));
    doors.set_members(&ForeignSystem::ALL.into_iter().flat_map(|system| members(system, &["a"])).collect());
    let (direct, aggregated) = (start(Redirecting).await, start_with_doors(Redirecting, doors).await);
    aggregated.entry.serve_clusters();
    let mut paths: Vec<String> =
        ["/", "/apis", "/apis/", GROUP, "/openapi/v2", "/openapi/v3?hash=00", "/readyz", "/metrics", "/%zz", "//"]
            .map(str::to_owned)
            .into();
    paths.push(format!("/openapi/v3{GROUP}?hash=00"));
    paths.extend(["/views", "/views/all", "/clusters", "/clusters/eu", "/x"].map(|path| format!("{GROUP}{path}")));
    for inner in
        ["", "/", "/api/v1/pods", "/openapi/v3/api/v1?hash=00", "/api/v1/namespaces/n/services/s/proxy/", "/.."]
    {
        let rows = MERGED_VIEWS.iter().chain(MEMBERS).filter(|row| row.prefix.starts_with("/apis/"));
        paths.extend(rows.map(|row| format!("{}{inner}", row.prefix)));
    }
    for status in 300..=308 {
        let given = status.to_string();
        for path in &paths {
            let (status, headers, text) = get(&aggregated, path, &[("status", &given)]).await;
            assert!(!(300..400).contains(&status) || status == 304, "{path}: {status}");
            assert!(status == 304 || !headers.contains_key(header::LOCATION), "{path}: {headers:?}");
            assert!(status == 304 || !text.contains("secret"), "{path}: {text}");
        }
        assert_eq!(get(&direct, "/api/v1/pods", &[("status", &given)]).await.0, status);
    }
    let (status, _, text) = get(&aggregated, &format!("{EU}/api"), &[("status", "302")]).await;
    assert!(status == 502 && text.contains("a redirect (302)"), "{text}");
}

#[tokio::test]
async fn audit_log_has_the_outer_path_and_the_inner_resource() {
    let (_member, router) = router_over("eu").await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.log");
    let audit = auditor(folder.path(), log.clone(), AuditMode::Blocking).await;
    let server = start_aggregated(router, audit).await;
    server.entry.serve_clusters();
    let mut client = server.http2().await;
    for (id, path, expected) in [
        ("list", format!("{ALL}/api/v1/namespaces/n/pods?limit=1"), json!(["list", "pods", "n"])),
        ("get", format!("{EU}/api/v1/nodes/x"), json!(["get", "nodes", null])),
        ("own", GROUP.to_owned(), json!(["get", null, null])),
    ] {
        text(client.send_request(ended(server.request(&path), id)).await.unwrap()).await;
        let is_end = |event: &Value| event["auditID"] == id && event["stage"] == "ResponseComplete";
        let event = events(&log).into_iter().find(is_end).unwrap();
        let object = &event["objectRef"];
        assert_eq!(json!([event["verb"], object["resource"], object["namespace"]]), expected, "{path}");
        assert_eq!(event["requestURI"], path);
    }
}

#[tokio::test]
async fn drain_ends_readiness_of_the_aggregated_entry_before_its_discovery() {
    let router = Router::new(RouterConfig::default());
    let server = start_aggregated(router.clone(), None).await;
    server.entry.serve_clusters();
    assert_eq!(get(&server, "/readyz", &[]).await.0, 200);
    router.leave();
    assert_eq!(get(&server, "/readyz", &[]).await.0, 500);
    for path in ["/livez", "/apis", GROUP] {
        assert_eq!(get(&server, path, &[]).await.0, 200, "{path}");
    }
    server.stop.cancel();
    assert_eq!(server.serving.await.unwrap().cut, 0);
}

/// The kube-apiserver of the hub sends the requests of all users over one connection, and its probe of the APIService
/// has a timeout of 5 s.
#[tokio::test]
async fn unread_lists_of_a_connection_do_not_delay_the_documents_of_the_entry() {
    const STREAMS: usize = 400;
    const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
    let talker = Talker::default();
    let server = start_aggregated(talker.clone(), None).await;
    server.entry.serve_clusters();
    let (mut client, endless) = (reluctant(&server).await, format!("{ALL}/endless"));
    let stalled: Vec<_> = (0..STREAMS).map(|_| client.send_request(get_request(&server, &endless))).collect();
    let _stalled = tokio::spawn(join_all(stalled));
    until(|| talker.bytes() > 0).await;
    settled(|| talker.bytes()).await;
    let mut send = |path: &str| tokio::time::timeout(PROBE_TIMEOUT, client.send_request(get_request(&server, path)));
    for path in ["/apis", GROUP, "/openapi/v2", &format!("/openapi/v3{GROUP}"), "/livez", "/readyz"] {
        let answer = send(path).await.unwrap_or_else(|_| panic!("{path} waits for unread lists")).unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        let read = tokio::time::timeout(SOON, text(answer)).await.expect("its body is not delayed");
        assert!(!read.is_empty(), "{path}");
    }
    for path in [&format!("{ALL}/other"), &format!("{GROUP}/clusters")] {
        assert!(send(path).await.is_err(), "{path} waits");
    }
}
