//! Tests of requests to one member. The client gets the member's response unchanged. If the member sends no response or
//! only a part, the router sends its own.

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use tributary_proxy::ClientTuning;
use tributary_router::limits::WHOLE_ANSWER_TIMEOUT;
use tributary_router::{RequestContext, User};
use tributary_simulator::{RequestKind, WriteAnswers};

use crate::harness::{
    Answer, CONFIG_MAPS, Fixture, SOON, allow, at_once, config, config_map, config_map_in, in_time, name, pass,
    quiet_without_time, router, setup_through, until,
};

/// Sends a write like client-go: while the response is 429 or 5xx with Retry-After, the write is repeated, ten times at
/// most (`checkWait` in `rest/with_retry.go`). Returns the last response.
async fn as_client_go(fixture: &Fixture, method: &str, path: &str, body: &Value) -> Answer {
    let mut answer = fixture.write(method, path, body).await;
    for _ in 0..10 {
        if !(answer.code == 429 || answer.code >= 500) || !answer.headers.contains_key("retry-after") {
            break;
        }
        answer = fixture.write(method, path, body).await;
    }
    answer
}

fn generated() -> Value {
    let mut object = config_map_in("a", "", "1");
    object["metadata"]["name"] = Value::Null;
    object["metadata"]["generateName"] = "made-".into();
    object
}

fn made(fixture: &Fixture) -> usize {
    fixture.member("a").list("configmaps").iter().filter(|object| name(object).starts_with("made-")).count()
}

#[tokio::test]
async fn read_sees_a_write_that_had_an_ineffective_upgrade_header() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("a", "x", "1").await;
    fixture.member("a").control().lag_watches(Duration::from_secs(1));
    let path = format!("/clusters/a{CONFIG_MAPS}/x");
    let headers = [("content-type", "application/json"), ("upgrade", "x")];
    fixture.client().send("PUT", &path, &headers, &config_map("x", "2").to_string()).await.ok();
    let list = in_time(|| fixture.get(CONFIG_MAPS)).await.ok();
    assert_eq!(list["items"][0]["data"]["v"], "2");
}

#[tokio::test]
async fn write_with_a_broken_response_is_not_sent_again() {
    let fixture = Fixture::start(["a", "b"]).await;
    let below = format!("/clusters/a{CONFIG_MAPS}");
    fixture.put_and_see("a", "x", "1").await;
    let control = fixture.member("a").control();
    for (number, path) in [CONFIG_MAPS, &below].into_iter().enumerate() {
        for bytes in [0, 20] {
            control.answer_writes(WriteAnswers::BrokenAfter(bytes));
            let before = made(&fixture);
            let told = as_client_go(&fixture, "POST", path, &generated()).await;
            assert!(!told.headers.contains_key("retry-after"), "{:?}", told.headers);
            let message = told.refused(502);
            assert!(message.contains("cluster \"a\"") && message.contains("may have been carried out"), "{message}");
            assert_eq!(made(&fixture), before + 1, "{path}: {message}");
        }
        let object = config_map("x", &number.to_string());
        for (method, body) in [("PUT", &object), ("DELETE", &json!({}))] {
            control.answer_writes(WriteAnswers::BrokenAfter(9));
            let told = fixture.write(method, &format!("{path}/x"), body).await;
            assert_eq!((told.code, told.headers.get("retry-after")), (502, None), "{method} {path}");
        }
        control.answer_writes(WriteAnswers::Whole);
        fixture.put_and_see("a", "x", "1").await;
    }
}

#[tokio::test]
async fn write_times_out_if_the_members_response_never_ends() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("a", "x", "1").await;
    fixture.member("a").control().answer_writes(WriteAnswers::SilentAfter(20));
    let user = User::named("test", "tester");
    let object = config_map_in("a", "y", "1").to_string();
    for (method, path, body, code) in [
        ("POST", CONFIG_MAPS.to_owned(), object, 502),
        ("POST", format!("/clusters/a{CONFIG_MAPS}"), config_map("z", "1").to_string(), 502),
        // For a collection, the router answers 200, because the deletion was executed. The list of the deleted objects
        // is lost.
        ("DELETE", format!("{CONFIG_MAPS}?labelSelector=a%3Db"), String::new(), 200),
    ] {
        let request = Request::builder().method(method).uri(&path).header("content-type", "application/json");
        let request = request.body(tributary_apimachinery::body::full(body)).unwrap();
        let before = fixture.member("a").control().requests(RequestKind::Write);
        let is_answered = std::cell::Cell::new(false);
        let answer = async {
            let context = RequestContext::for_user(&user, &request);
            let answer = fixture.router.handle(request, &context).await.response;
            is_answered.set(true);
            answer
        };
        let waited = async {
            until(|| async { fixture.member("a").control().requests(RequestKind::Write) > before }).await;
            // The head of the response has arrived, and the rest never arrives. The time limit for the rest begins at
            // the head.
            while !is_answered.get() {
                quiet_without_time().await;
                pass(WHOLE_ANSWER_TIMEOUT).await;
            }
        };
        let (answer, ()) = tokio::join!(answer, waited);
        assert_eq!((answer.status().as_u16(), answer.headers().get("retry-after")), (code, None), "{method} {path}");
    }
}

#[tokio::test]
async fn kubelet_401_is_forwarded_and_its_cluster_stays_healthy() {
    let fixture =
        Fixture::with([tributary_simulator::SimulatorConfig { pods: 1, ..config("a") }, config("b")], allow()).await;
    let pod = fixture.member("a").list("pods").swap_remove(0);
    let namespace = pod["metadata"]["namespace"].as_str().unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}/log", name(&pod));
    fixture.get(&path).await;
    let control = fixture.member("a").control();
    control.refuse_at_kubelets(true);
    let discovered = control.requests(RequestKind::Discovery);
    for path in [path.clone(), format!("/clusters/a{path}"), format!("{path}?follow=true")] {
        let message = fixture.get(&path).await.refused(401);
        let words = format!("the server has asked for the client to provide credentials ( pods/log {})", name(&pod));
        assert_eq!(message, words);
        assert_eq!(fixture.router.report().await.clusters.into_iter().find_map(|cluster| cluster.problem), None);
    }
    let asked = control.requests(RequestKind::Discovery) - discovered;
    assert!(asked <= 3, "a question for each at most, and no round of discovery: {asked}");
    control.refuse_at_kubelets(false);
    assert_eq!(fixture.get(&path).await.code, 200);
}

/// Returns a body whose bytes come from a channel. The body ends when the sender is dropped.
fn channel() -> (tokio::sync::mpsc::UnboundedSender<Bytes>, tributary_apimachinery::body::Body) {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
    let frames = futures::stream::unfold(receiver, |mut receiver| async move {
        let bytes = receiver.recv().await?;
        Some((Ok(http_body::Frame::data(bytes)), receiver))
    });
    (sender, StreamBody::new(frames.boxed()).boxed_unsync())
}

const WORKLOAD: &str = "/clusters/a/api/v1/namespaces/default/services/web:80/proxy/v1/chat";

#[tokio::test]
async fn bodies_to_and_from_a_workload_are_streamed() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.get("/api/v1/services").await.ok();
    let user = User::named("test", "tester");
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let (sender, body) = channel();
        let request = Request::builder().method(method).uri(WORKLOAD).header("content-type", "application/json");
        let request = request.body(body).unwrap();
        let context = RequestContext::for_user(&user, &request);
        let answer = fixture.router.handle(request, &context);
        // The workload answers before its client has sent the whole body.
        let first = r#"{"kind":"Service","metadata":{"resourceVersion":"999999999"},"#;
        sender.send(Bytes::from_static(first.as_bytes())).unwrap();
        let answer = tokio::time::timeout(SOON, answer).await.expect("the head comes with the first bytes").response;
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        let mut came = 0;
        while came < first.len() {
            let frame = tokio::time::timeout(SOON, body.frame()).await.expect("it streams").unwrap().unwrap();
            came += frame.into_data().unwrap().len();
        }
        // The body is larger than the router's buffer for responses to writes, so the router must stream it.
        let chunk = Bytes::from(vec![b' '; 1 << 20]);
        let rest = tokio::spawn(async move { body.collect().await.expect("to its end").to_bytes().len() });
        for _ in 0..9 {
            sender.send(chunk.clone()).unwrap();
        }
        sender.send(Bytes::from_static(b"\"x\":1}")).unwrap();
        drop(sender);
        assert_eq!(rest.await.unwrap(), (9 << 20) + 6, "{method}");
    }
    // The response was from a workload. The resourceVersion in it has no meaning, so no read waits for it.
    at_once(fixture.get("/api/v1/services")).await.ok();
}

#[tokio::test]
async fn watch_with_percent_escapes_is_a_long_running_request() {
    let mut fixture = Fixture::start(["a"]).await;
    fixture.router = router(allow());
    let member = fixture.member("a");
    let url = member.url().parse().unwrap();
    let setup = setup_through(member, "a", &[url], ClientTuning::default()).await;
    let client = setup.client.clone().unwrap();
    fixture.router.set_clusters(vec![setup]);
    fixture.router.asked_once(SOON).await;
    for (path, long, is_watch) in [
        ("/clusters/a/api/v1/configmaps?%77atch=1", 1, true),
        ("/clusters/a/api/v1/%77atch/configmaps", 1, true),
        ("/clusters/a/api/v1/configmaps?watch=0", 0, false),
    ] {
        let before = client.pool_statistics().long_streams;
        let answer = fixture.client().ask("GET", path, &[], "").await;
        assert_eq!(answer.response.status(), 200, "{path}");
        assert_eq!(client.pool_statistics().long_streams - before, long, "{path}");
        assert_eq!(answer.is_forwarded_watch, is_watch, "{path}");
        drop(answer);
        until(|| async { client.pool_statistics().long_streams == before }).await;
    }
}

#[tokio::test]
async fn invalid_impersonation_headers_refuse_the_request() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("a", "x", "1").await;
    let path = format!("{CONFIG_MAPS}/x");
    let below = format!("/clusters/a{path}");
    for given in [
        &[("impersonate-foo", "1")][..],
        &[("impersonate-user", "")],
        &[("impersonate_user", "bob")],
        &[("impersonate-group", "ops")],
        &[("impersonate-user", "bob"), ("impersonate-user", "eve")],
    ] {
        for (method, path) in [("DELETE", &path), ("DELETE", &below), ("GET", &path), ("GET", &below)] {
            let message = fixture.client().send(method, path, given, "").await.refused(400);
            assert!(message.contains("mpersonate"), "{given:?}: {message}");
        }
    }
    assert!(fixture.member("a").get("configmaps", "default", "x").is_some());
    fixture.client().send("GET", &path, &[("impersonate-user", "bob"), ("impersonate-group", "ops")], "").await.ok();
}

/// The response that the router must send if the member does not answer: a code, and words in the message. The response
/// must have no Retry-After.
struct Due {
    method: &'static str,
    path: String,
    code: u16,
    words: &'static [&'static str],
}

async fn check(fixture: &Fixture, cases: Vec<Due>) {
    for Due { method, path, code, words } in cases {
        let body = if method == "POST" { config_map_in("b", "new", "1") } else { json!({}) };
        let told = if method == "GET" { fixture.get(&path).await } else { fixture.write(method, &path, &body).await };
        let message = told.refused(code);
        for word in words {
            assert!(message.contains(word), "{method} {path}: {word:?} is not in: {message}");
        }
        assert!(!told.headers.contains_key("retry-after"), "{method} {path}: {message}");
    }
}

#[tokio::test]
async fn refusal_names_the_unreachable_cluster_with_reason_and_duration() {
    let fixture = Fixture::start(["a", "b"]).await;
    let path = |name: &str| format!("{CONFIG_MAPS}/{name}");
    let below = format!("/clusters/b{CONFIG_MAPS}");
    fixture.put_and_see("b", "x", "1").await;
    let other = Fixture { members: Vec::new(), router: router(allow()) };
    fixture.member("b").control().stop_listening().await;
    let mut setups = Vec::new();
    for member in &fixture.members {
        setups.push(crate::harness::setup(member, member.name()).await);
    }
    other.router.set_clusters(setups);
    other.router.asked_once(SOON).await;
    let due =
        |method, path: &str| Due { method, path: path.to_owned(), code: 503, words: &["b", "cannot be reached", " s"] };
    // The router did not send the request, but a retry would fail, too. With Retry-After, client-go would repeat the
    // request ten times before it shows the reason.
    check(&fixture, vec![due("POST", CONFIG_MAPS), due("GET", &below), due("PUT", &path("x"))]).await;
    // This router has never read `b`, so it does not know whether `b` has an object with this name.
    check(&other, vec![due("GET", &path("x")), due("DELETE", &path("x"))]).await;
}
