//! Tests with a client that does not read the responses that the router streams from a cluster. The router must still
//! serve other clients.

use std::net::SocketAddr;

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use serde_json::{Value, json};
use tributary_apimachinery::body::{self, Body};
use tributary_proxy::{ClientTuning, PermitPool, Windows};
use tributary_router::{ClientUpgrade, ClusterSetup, Limits, Policies, RequestContext, ResourcePolicy, User};
use tributary_simulator::SimulatorConfig;

use crate::harness::{
    Answer, CONFIG_MAPS, Events, Fixture, QUIET, SOON, allow, cluster, config, config_map, setup, setup_through,
};

async fn call(fixture: &Fixture, port: u16, request: http::request::Builder, body: Body) -> Response<Body> {
    let mut request = request.body(body).unwrap();
    let mut context = RequestContext::for_user(&User::named("test", "tester"), &request);
    context.arrival.peer = Some(SocketAddr::from(([127, 0, 0, 1], port)));
    context.arrival.upgrade = request.extensions_mut().remove::<OnUpgrade>().map(ClientUpgrade::new);
    fixture.router.handle(request, &context).await.response
}

/// Sends a patch over a client connection with this port, and reads the response.
async fn patch(fixture: &Fixture, port: u16, path: &str, kind: &str, object: &Value) -> Answer {
    let request = Request::patch(path).header("content-type", format!("application/{kind}"));
    let (head, body) = call(fixture, port, request, body::full(object.to_string())).await.into_parts();
    Answer { code: head.status.as_u16(), headers: head.headers, body: body.collect().await.unwrap().to_bytes() }
}

async fn with_few_connections() -> Fixture {
    let allow = allow();
    let policies = Policies {
        default: ResourcePolicy { placement: Some("b".parse().unwrap()), ..allow.default.clone() },
        ..allow
    };
    let fixture = Fixture::with([SimulatorConfig { http2: false, ..config("a") }, config("b")], policies).await;
    let member = fixture.member("a");
    // The router uses half of the twelve connections for clients' requests.
    let tuning = ClientTuning { max_http1_requests: 12, ..ClientTuning::default() };
    let few = setup_through(member, "a", &[member.url().parse().unwrap()], tuning).await;
    let few = ClusterSetup { client_generation: 1, ..few };
    fixture.router.set_clusters(vec![few, setup(fixture.member("b"), "b").await]);
    fixture.router.asked_once(SOON).await;
    fixture.put_and_see("a", "x", "").await;
    fixture
}

#[tokio::test]
async fn unread_responses_of_one_client_do_not_block_other_clients() {
    let fixture = with_few_connections().await;
    let own = format!("/clusters/a{CONFIG_MAPS}");
    let mut unread = Vec::new();
    for _ in 0..20 {
        unread.push(call(&fixture, 1, Request::get(&own), body::empty()).await);
    }
    let patched = patch(&fixture, 2, &format!("{own}/x"), "merge-patch+json", &json!({"data": {"v": "2"}})).await;
    assert_eq!(patched.ok()["data"]["v"], "2");
    let path = format!("{CONFIG_MAPS}/new?fieldManager=t");
    let made = patch(&fixture, 2, &path, "apply-patch+yaml", &config_map("new", "")).await;
    assert_eq!(cluster(&made.ok()), "b");

    // Clients' requests now use all their connections. The router has other connections for lookups, so it still finds
    // the cluster of an object.
    for port in 3..20 {
        unread.push(call(&fixture, port, Request::get(&own), body::empty()).await);
    }
    let path = format!("{CONFIG_MAPS}/another?fieldManager=t");
    let made = patch(&fixture, 2, &path, "apply-patch+yaml", &config_map("another", "")).await;
    assert_eq!(cluster(&made.ok()), "b");

    // The error message tells the client to read its responses.
    let (given, mut refused): (Vec<_>, Vec<_>) = unread.into_iter().partition(|answer| answer.status() == 200);
    assert_eq!(given.len(), 6, "one client has two of them");
    let (head, body) = refused.pop().expect("a refusal").into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let refusal = Answer { code: head.status.as_u16(), headers: head.headers, body };
    let message = refusal.refused(429);
    for part in ["cluster a: too many short requests: of the limit 6", "read the answers"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(refusal.headers["retry-after"], "1");

    // A connection is free again when the client has read its response.
    for answer in given {
        answer.into_body().collect().await.unwrap();
    }
    assert_eq!(call(&fixture, 1, Request::get(&own), body::empty()).await.status(), 200);
}

fn switching(method: &str, path: &str) -> http::request::Builder {
    let request = Request::builder().method(method).uri(path).header("connection", "Upgrade");
    request.header("upgrade", "websocket").extension(hyper::upgrade::on(Request::new(())))
}

/// If the target does not switch protocols, the response to an upgrade request uses a connection like any other
/// response.
#[tokio::test]
async fn upgrade_request_without_a_protocol_switch_occupies_a_connection() {
    let fixture = with_few_connections().await;
    // The member answers 404, because no aggregated API server serves the path.
    let own = "/clusters/a/apis/example.com/v1/namespaces/default/widgets/w";
    let ask = async |port| call(&fixture, port, switching("GET", own), body::empty()).await;
    let mut unread = Vec::new();
    for _ in 0..20 {
        unread.push(ask(1).await);
    }
    let given = unread.iter().filter(|answer| answer.status() == 404).count();
    assert_eq!(given, 2, "of six one client has two");
    assert!(unread.iter().all(|answer| [404, 429].contains(&answer.status().as_u16())));
    drop(unread);
    assert_eq!(ask(1).await.status(), 404, "what is dropped gives its place back");
}

/// An upgrade needs its own connection to the member. At a path that has no upgrades, the router ignores the header,
/// like a kube-apiserver.
#[tokio::test]
async fn upgrade_header_is_ignored_for_paths_without_upgrades() {
    let fixture = Fixture::start(["a"]).await;
    let member = fixture.member("a");
    // No connections for upgrades are permitted. So the request fails if the router treats it as an upgrade.
    let tuning = ClientTuning { tunnel_permits: PermitPool::new(0), ..ClientTuning::default() };
    let without = setup_through(member, "a", &[member.url().parse().unwrap()], tuning).await;
    fixture.router.set_clusters(vec![ClusterSetup { client_generation: 1, ..without }]);
    fixture.router.asked_once(SOON).await;
    fixture.put_and_see("a", "x", "").await;
    let (object, watch) = (format!("{CONFIG_MAPS}/x"), format!("{CONFIG_MAPS}?watch=1"));
    let new = config_map("new", "").to_string();
    for (method, path, text, code) in [
        ("GET", "/version", "", 200),
        ("GET", "/apis", "", 200),
        ("GET", CONFIG_MAPS, "", 200),
        ("GET", object.as_str(), "", 200),
        ("GET", "/apis/apps/v1/deployments", "", 200),
        ("POST", CONFIG_MAPS, new.as_str(), 201),
        ("GET", watch.as_str(), "", 429),
        ("GET", "/api/v1/namespaces/default/pods/p/exec?command=ls", "", 429),
        ("GET", "/api/v1/namespaces/default/pods/p/log", "", 429),
        ("GET", "/api/v1/namespaces/default/services/s/proxy/", "", 429),
        ("GET", "/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/console", "", 429),
    ] {
        let request = switching(method, &format!("/clusters/a{path}")).header("content-type", "application/json");
        let text = if text.is_empty() { body::empty() } else { body::full(text.to_owned()) };
        let answer = call(&fixture, 1, request, text).await;
        assert_eq!(answer.status(), code, "{method} {path}");
    }
    // The merged view ignores the Upgrade header.
    assert_eq!(call(&fixture, 1, switching("GET", CONFIG_MAPS), body::empty()).await.status(), 200);
}

/// Over HTTP/2, all responses of a connection share a flow-control window, which opens again only when the client
/// reads. Unread responses must not use up the window for other clients or for the router's own requests.
#[tokio::test]
async fn unread_http2_responses_do_not_block_other_clients() {
    let own = format!("/clusters/a{CONFIG_MAPS}");
    for unread_path in [own.clone(), format!("{own}?watch=1")] {
        let fixture = Fixture::with([config("a")], allow()).await;
        let member = fixture.member("a");
        let client_windows = Windows { stream: 64 << 10, connection: 256 << 10 };
        let tuning = ClientTuning { client_windows, ..ClientTuning::default() };
        let small = setup_through(member, "a", &[member.url().parse().unwrap()], tuning).await;
        fixture.router.set_clusters(vec![ClusterSetup { client_generation: 1, ..small }]);
        fixture.router.asked_once(SOON).await;
        for number in 0..20 {
            fixture.put("a", &format!("large-{number}"), &"x".repeat(10 << 10));
        }
        fixture.put_and_see("a", "x", "").await;

        let mut unread = Vec::new();
        for number in 0..30 {
            let answer = call(&fixture, 1, Request::get(&unread_path), body::empty()).await;
            assert_eq!(answer.status(), 200, "{unread_path}: answer {number}");
            unread.push(answer);
        }
        // In this time, the member sends until the flow-control windows are full.
        tokio::time::sleep(QUIET).await;

        let changes = format!("{own}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
        let changes = tokio::time::timeout(SOON, call(&fixture, 2, Request::get(changes), body::empty()));
        let mut changes = Events::of(changes.await.expect("another client's watch begins"));
        let (path, change) = (format!("{own}/x"), json!({"data": {"v": "2"}}));
        let patched = tokio::time::timeout(SOON, patch(&fixture, 2, &path, "merge-patch+json", &change));
        assert_eq!(patched.await.expect("an answer to a write").ok()["data"]["v"], "2");
        assert_eq!(changes.soon().await["object"]["data"]["v"], "2");
        let whole = tokio::time::timeout(
            SOON,
            call(&fixture, 2, Request::get(&own), body::empty()).await.into_body().collect(),
        );
        whole.await.expect("another client's list in time").unwrap();

        // Reads from memory still succeed.
        fixture.put_and_see("a", "later", "").await;
        assert_eq!(unread.len(), 30);
    }
}

/// Returns the number of bytes that are reserved for unread responses of clusters, from the metrics.
fn unread_bytes(fixture: &Fixture) -> Option<String> {
    let text = fixture.router.metrics().expose();
    let value =
        text.lines().find_map(|line| line.strip_prefix(r#"tributary_limit_used{limit="member_unread_bytes"} "#));
    value.map(str::to_owned)
}

/// Sends a request with the first connection. Returns the message of the 429.
async fn refused(fixture: &Fixture, path: &str) -> String {
    let (head, body) = call(fixture, 1, Request::get(path), body::empty()).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    Answer { code: head.status.as_u16(), headers: head.headers, body }.refused(429)
}

/// Each connection to a cluster can buffer unread data, and in a large fleet the sum would exceed the memory. So one
/// limit applies to all clusters. Here the unread responses are logs, so the message must not suggest a watch of the
/// merged view instead.
#[tokio::test]
async fn unread_logs_of_all_clusters_have_one_limit() {
    for http2 in [false, true] {
        have_one_bound(http2).await;
    }
}

async fn have_one_bound(http2: bool) {
    // The limit allows 32 unread responses, and one client may have three eighths of them: 12.
    let limits = Limits { member_unread_bytes: 8 << 20, ..Limits::default() };
    let members = ["a", "b"].map(|name| SimulatorConfig { http2, pods: 1, ..config(name) });
    let fixture = Fixture::within(limits, members, allow()).await;
    let paths = ["a", "b"].map(|name| {
        let pod = fixture.member(name).list("pods").swap_remove(0);
        let [namespace, pod] = ["namespace", "name"].map(|field| pod["metadata"][field].as_str().unwrap().to_owned());
        format!("/clusters/{name}/api/v1/namespaces/{namespace}/pods/{pod}/log?follow=true")
    });
    let mut logs = Vec::new();
    for number in 0..12 {
        let log = call(&fixture, 1, Request::get(&paths[number % 2]), body::empty()).await;
        assert_eq!(log.status(), 200, "log {number}");
        logs.push(log);
    }
    assert_eq!(unread_bytes(&fixture).as_deref(), Some("3145728"));
    for (name, path) in ["a", "b"].into_iter().zip(&paths) {
        let message = refused(&fixture, path).await;
        let bound = "too many unread bytes of long-running answers from clusters (--max-member-unread-bytes): of the \
                     limit 8388608";
        for part in [
            format!("cluster {name}: {bound}").as_str(),
            "this client uses 3145728",
            "end some logs and watches of any cluster, or raise the limit",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        assert!(!message.contains("watch without"), "{message}");
    }
    // Other clients still get responses. The limit applies only to long-running requests.
    assert_eq!(call(&fixture, 2, Request::get(&paths[0]), body::empty()).await.status(), 200);
    let short = format!("/clusters/b{CONFIG_MAPS}");
    let unread = call(&fixture, 1, Request::get(&short), body::empty()).await;
    assert_eq!(unread.status(), 200);
    logs.pop();
    assert_eq!(call(&fixture, 1, Request::get(&paths[1]), body::empty()).await.status(), 200);
}

/// Watches at the path of a single cluster use HTTP/2 connections with a smaller flow-control window for each stream.
/// The limit counts this window.
#[tokio::test]
async fn http2_watch_is_counted_with_its_stream_window() {
    let fixture = Fixture::start(["a"]).await;
    assert_eq!(unread_bytes(&fixture).as_deref(), Some("0"));
    let path = format!("/clusters/a{CONFIG_MAPS}?watch=1");
    let watch = call(&fixture, 1, Request::get(&path), body::empty()).await;
    assert_eq!(watch.status(), 200);
    assert_eq!(unread_bytes(&fixture).as_deref(), Some("65536"));
}
