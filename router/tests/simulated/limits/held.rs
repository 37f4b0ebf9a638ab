//! Limits of requests in flight, of bodies in memory, and of the requests that one client causes to members.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{join, join_all, select};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::json;
use tributary_apimachinery::body::Body;
use tributary_router::{Limits, Policies, RequestContext, User};
use tributary_simulator::{RequestKind, WriteAnswers};

use crate::harness::{Answer, CONFIG_MAPS, Fixture, allow, cluster, config, config_map_in, in_time, items, until};
use crate::reads::worst::{Worst, others_are_answered};

fn peer(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn endless(bytes: usize) -> Body {
    let begin = futures::stream::iter([Ok(Frame::data(Bytes::from(vec![b' '; bytes])))]);
    StreamBody::new(futures::StreamExt::chain(begin, futures::stream::pending())).boxed_unsync()
}

async fn call(fixture: &Fixture, from: SocketAddr, method: &str, path: &str, body: Body) -> Answer {
    send(fixture, from, method, path, "application/json", body).await
}

async fn send(fixture: &Fixture, from: SocketAddr, method: &str, path: &str, content_type: &str, body: Body) -> Answer {
    let request = Request::builder().method(method).uri(path).header("content-type", content_type);
    answered(fixture, Some(from), request.body(body).unwrap()).await
}

async fn answered(fixture: &Fixture, peer: Option<SocketAddr>, request: Request<Body>) -> Answer {
    let mut context = RequestContext::for_user(&User::named("test", "tester"), &request);
    context.arrival.peer = peer;
    let response: Response<Body> = fixture.router.handle(request, &context).await.response;
    let (head, body) = response.into_parts();
    Answer { code: head.status.as_u16(), headers: head.headers, body: body.collect().await.unwrap().to_bytes() }
}

async fn get(fixture: &Fixture, from: SocketAddr, path: &str) -> Answer {
    call(fixture, from, "GET", path, tributary_apimachinery::body::empty()).await
}

/// Checks that the response is a 429 whose message names the limit, with Retry-After of 1 s.
#[track_caller]
fn refused_for_now(answer: &Answer, bound: &str) {
    let message = answer.refused(429);
    assert!(message.contains(bound), "{message}");
    assert_eq!(answer.headers["retry-after"], "1", "{message}");
}

#[tokio::test]
async fn endless_request_body_gets_a_504_with_the_timeout() {
    let limits = Limits { request_timeout: Duration::from_millis(200), ..Limits::default() };
    let fixture = Fixture::within(limits, [config("a")], allow()).await;
    for path in [CONFIG_MAPS, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/clusters/a/api/v1/namespaces"]
    {
        let answer = call(&fixture, peer(1), "POST", path, endless(10)).await;
        let message = answer.refused(504);
        assert!(message.contains("--request-timeout: 200ms"), "{path}: {message}");
        assert!(!answer.headers.contains_key("retry-after"), "{path}: it may have been carried out");
    }
    let asked = get(&fixture, peer(1), &format!("{CONFIG_MAPS}?timeout=1ns")).await;
    assert!(asked.refused(504).contains("parameter timeout"));
}

#[tokio::test]
async fn request_bodies_of_one_client_do_not_exhaust_the_memory() {
    let limits = Limits { held_bytes: 1 << 20, ..Limits::default() };
    let fixture = Fixture::within(limits, [config("a")], allow()).await;
    let floods = (0..20).map(|_| call(&fixture, peer(1), "POST", CONFIG_MAPS, endless(100 << 10)));
    let mut floods: futures::stream::FuturesUnordered<_> = floods.map(Box::pin).collect();
    // One client may use three eighths of a megabyte, which is enough for three bodies. The router refuses all further
    // bodies immediately.
    for _ in 0..17 {
        let answer = futures::StreamExt::next(&mut floods).await.unwrap();
        refused_for_now(&answer, "buffered bytes of bodies (--max-held-bytes)");
    }
    let exposition = fixture.router.metrics().expose();
    assert!(exposition.contains(r#"tributary_limit_used{limit="held_bytes"} 307200"#), "{exposition}");
    assert!(exposition.contains(r#"tributary_limit_refused_total{limit="held_bytes"} 17"#), "{exposition}");
    // The limit includes the request body and the response body of this create.
    let body = tributary_apimachinery::body::full(config_map_in("a", "x", &"y".repeat(100 << 10)).to_string());
    let made = call(&fixture, peer(2), "POST", CONFIG_MAPS, body).await.ok();
    assert_eq!(cluster(&made), "a");
    drop(floods);
    let exposition = fixture.router.metrics().expose();
    assert!(exposition.contains(r#"tributary_limit_used{limit="held_bytes"} 0"#), "who goes away holds nothing");
}

/// A JSON patch that doubles the size of an object.
const DOUBLE: &str = r#"[{"op": "copy", "from": "/data/v", "path": "/data/copy"}]"#;

/// A JSON patch that adds a few bytes to an object.
const SMALL: &str = r#"[{"op": "add", "path": "/data/more", "value": "z"}]"#;

async fn patch(fixture: &Fixture, from: SocketAddr, path: &str, text: &'static str) -> Answer {
    send(fixture, from, "PATCH", path, "application/json-patch+json", tributary_apimachinery::body::full(text)).await
}

#[tokio::test]
async fn memory_for_a_write_response_is_reserved_before_sending() {
    let limits = Limits { held_bytes: 1 << 20, ..Limits::default() };
    let fixture = Fixture::within(limits, [config("a")], allow()).await;
    fixture.put_and_see("a", "x", &"x".repeat(150 << 10)).await;
    let held = || held_now(&fixture);
    let control = fixture.member("a").control();
    let writes = || control.requests_of(RequestKind::Write, "configmaps");
    // For the response, the router reserves the size of the object and a small extra. The member never answers, so the
    // reservation lasts.
    let before = writes();
    control.answer_writes(WriteAnswers::SilentAfter(0));
    let path = format!("{CONFIG_MAPS}/x");
    let mut first = Box::pin(patch(&fixture, peer(1), &path, SMALL));
    let mut second = Box::pin(patch(&fixture, peer(1), &path, SMALL));
    let asked = async {
        until(|| async { writes() == before + 2 && held() > 300 << 10 }).await;
        refused_for_now(&patch(&fixture, peer(1), &path, SMALL).await, "buffered bytes of bodies (--max-held-bytes)");
        assert_eq!(writes(), before + 2, "the member never hears of it");
    };
    tokio::select! {
        () = asked => {}
        answer = &mut first => panic!("a silent member answered: {answer:?}"),
        answer = &mut second => panic!("a silent member answered: {answer:?}"),
    }
    drop((first, second));
    assert_eq!(held(), 0);
    control.answer_writes(WriteAnswers::Whole);
    // If memory is free, the router accepts a response that is larger than its reservation.
    let made = patch(&fixture, peer(1), &path, DOUBLE).await.ok();
    assert_eq!(made["data"]["copy"].as_str().map(str::len), Some(150 << 10));
    assert_eq!(held(), 0);
}

/// If memory is exhausted, the listener ends a request body with an error. The router must then not send the incomplete
/// body to the member.
#[tokio::test]
async fn write_with_an_incomplete_body_is_not_executed() {
    let fixture = Fixture::start(["a"]).await;
    fixture.put_and_see("a", "x", "1").await;
    let control = fixture.member("a").control();
    let writes = || control.requests_of(RequestKind::Write, "configmaps");
    let before = writes();
    let json = "application/json";
    for (method, path, content_type, text) in [
        ("PATCH", format!("{CONFIG_MAPS}/x"), "application/json-patch+json", SMALL),
        ("PATCH", format!("/clusters/a{CONFIG_MAPS}/x"), "application/json-patch+json", SMALL),
        ("POST", CONFIG_MAPS.to_owned(), json, r#"{"metadata": {"name": "new"}}"#),
        ("POST", format!("/clusters/a{CONFIG_MAPS}"), json, r#"{"metadata": {"name": "new"}}"#),
        ("DELETE", format!("{CONFIG_MAPS}/x"), json, "{}"),
        ("DELETE", CONFIG_MAPS.to_owned(), json, "{}"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(), json, "{}"),
    ] {
        let frames = [Ok(Frame::data(Bytes::from_static(text.as_bytes()))), Err("no room".into())];
        let request = Request::builder().method(method).uri(&path).header("content-type", content_type);
        let body = StreamBody::new(futures::stream::iter(frames)).boxed_unsync();
        let answer = answered(&fixture, None, request.body(body).unwrap()).await;
        assert!(answer.code >= 400, "{method} {path}: {}", answer.code);
        assert_eq!(writes(), before, "{method} {path}: the member never hears of it");
    }
}

#[tokio::test]
async fn upload_at_a_clusters_path_has_no_size_limit() {
    let fixture = Fixture::start(["a"]).await;
    let path = format!("/clusters/a{CONFIG_MAPS}");
    let upload = || tributary_apimachinery::body::full(vec![b' '; 9 << 20]);
    send(&fixture, peer(1), "POST", &path, "application/json", upload()).await.refused(413);
    let is_heard = || fixture.member("a").control().request_log().iter().any(|line| line.starts_with("POST"));
    assert!(!is_heard(), "an object of that size is refused here");
    // A larger body is forwarded if it is no Kubernetes object, for example the source of a build.
    let answer = send(&fixture, peer(1), "POST", &path, "application/octet-stream", upload()).await;
    assert!(is_heard(), "{}: the member judges", answer.code);
}

#[tokio::test]
async fn executed_write_whose_response_exceeds_free_memory_gets_a_502() {
    let limits = Limits { held_bytes: 1 << 20, ..Limits::default() };
    let fixture = Fixture::within(limits, [config("a")], allow()).await;
    fixture.put_and_see("a", "x", &"x".repeat(250 << 10)).await;
    // The patch doubles the object to 500 KiB, more than the three eighths of a megabyte that one client may use.
    let answer = patch(&fixture, peer(1), &format!("{CONFIG_MAPS}/x"), DOUBLE).await;
    let message = answer.refused(502);
    assert!(message.contains("--max-held-bytes") && message.contains("may have been carried out"), "{message}");
    assert!(!answer.headers.contains_key("retry-after"), "{message}");
    assert!(fixture.config_maps_of_members().values().all(|data| data["copy"].is_string()), "it was carried out");
    // The path of a single cluster streams the response, so the limit does not apply.
    let own = format!("/clusters/a{CONFIG_MAPS}/x");
    let made = patch(&fixture, peer(1), &own, SMALL).await.ok();
    assert_eq!(made["data"]["more"], "z");
}

#[tokio::test]
async fn list_after_a_collection_delete_is_empty() {
    // One client may use enough memory for the responses of two of the four clusters at a time.
    let limits = Limits { held_bytes: 2 << 20, ..Limits::default() };
    let names = ["a", "b", "c", "d"];
    let fixture = Fixture::within(limits, names.map(config), allow()).await;
    for name in names {
        fixture.put_and_see(name, &format!("of-{name}"), &name.repeat(300 << 10)).await;
        fixture.member(name).control().lag_watches(Duration::from_secs(1));
    }
    call(&fixture, peer(1), "DELETE", CONFIG_MAPS, tributary_apimachinery::body::empty()).await.ok();
    let list = in_time(|| get(&fixture, peer(1), CONFIG_MAPS)).await.ok();
    assert_eq!(items(&list), Vec::<String>::new());
    // While a different request of the client uses the memory, the router deletes nothing.
    let hog = call(&fixture, peer(1), "POST", CONFIG_MAPS, endless(500 << 10));
    fixture.put_and_see("a", "x", "").await;
    let refused = async {
        let held = || fixture.router.metrics().expose().contains(r#"limit="held_bytes"} 512000"#);
        until(|| async { held() }).await;
        let answer = call(&fixture, peer(1), "DELETE", CONFIG_MAPS, tributary_apimachinery::body::empty()).await;
        refused_for_now(&answer, "buffered bytes of bodies (--max-held-bytes)");
    };
    tokio::select! {
        () = refused => {}
        answer = hog => panic!("a body that never ends was answered: {answer:?}"),
    }
    assert_eq!(fixture.config_maps_of_members().len(), 1);
}

#[tokio::test]
async fn requests_in_flight_of_one_client_do_not_exhaust_the_limit() {
    let limits = Limits { requests_in_flight: 8, ..Limits::default() };
    let fixture = Fixture::within(limits, [config("a"), config("b")], allow()).await;
    get(&fixture, peer(1), CONFIG_MAPS).await.ok();
    fixture.member("a").control().half_open(true);
    // The client sends six requests, and may use three of the eight permits.
    let frozen = (0..6).map(|_| get(&fixture, peer(1), "/clusters/a/api/v1/namespaces/default/configmaps"));
    let mut frozen: futures::stream::FuturesUnordered<_> = frozen.map(Box::pin).collect();
    for _ in 0..3 {
        let answer = futures::StreamExt::next(&mut frozen).await.unwrap();
        refused_for_now(&answer, "requests in flight (--max-requests-inflight)");
    }
    // Health checks and long-running requests need no permit.
    let asked = async {
        assert_eq!(get(&fixture, peer(1), "/livez").await.code, 200);
        assert_eq!(get(&fixture, peer(1), "/readyz").await.code, 200);
        let watch = format!("{CONFIG_MAPS}?watch=1&resourceVersion=0&timeoutSeconds=1");
        assert_eq!(get(&fixture, peer(1), &watch).await.code, 200);
        refused_for_now(&get(&fixture, peer(1), CONFIG_MAPS).await, "other clients use 0 and this client uses 3");
        get(&fixture, peer(2), &format!("{CONFIG_MAPS}?resourceVersion=0")).await.ok();
    };
    let flooding = async { futures::StreamExt::next(&mut frozen).await };
    tokio::select! {
        () = asked => {}
        answer = flooding => panic!("a frozen member answered: {answer:?}"),
    }
    drop(frozen);
    get(&fixture, peer(1), &format!("{CONFIG_MAPS}?resourceVersion=0")).await.ok();
}

#[tokio::test]
async fn oversized_reviews_and_delete_options_are_refused() {
    let fixture = Fixture::start(["a", "b"]).await;
    let padding = |bytes: usize| "x".repeat(bytes);
    let review = |bytes| {
        json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {"labels": {"x": padding(bytes)}},
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}})
    };
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    fixture.write("POST", path, &review(60 << 10)).await.ok();
    let message = fixture.write("POST", path, &review(64 << 10)).await.refused(413);
    assert!(message.contains("65536"), "{message}");
    let options = |bytes| json!({"kind": "DeleteOptions", "apiVersion": "v1", "orphaned": padding(bytes)});
    let message = fixture.write("DELETE", CONFIG_MAPS, &options(256 << 10)).await.refused(413);
    assert!(message.contains("262144"), "{message}");
    fixture.write("DELETE", CONFIG_MAPS, &options(1 << 10)).await.ok();
}

/// A member's response to a request of the router itself may never end. The router stops reading at a limit.
#[tokio::test]
async fn endless_member_responses_to_tributarys_requests_are_limited() {
    let only_pods = Policies { registered: Some(vec!["pods".parse().unwrap()]), ..allow() };
    let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
        "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let nothing = format!("{CONFIG_MAPS}/nothing");
    for (held_bytes, code, object, rights) in [
        (64 << 20, 503, "larger than 8388608 bytes", "larger than 1048576 bytes"),
        (1 << 20, 429, "buffered bytes of bodies (--max-held-bytes)", "buffered bytes of bodies (--max-held-bytes)"),
    ] {
        let limits = Limits { held_bytes, ..Limits::default() };
        let fixture = Fixture::within(limits, [config("a"), config("b")], only_pods.clone()).await;
        let control = fixture.member("b").control();
        control.answer_endlessly(Some(RequestKind::Get));
        let message = fixture.client().send("DELETE", &nothing, &[], "").await.refused(code);
        assert!(message.contains(object), "{message}");
        assert!(
            message.contains("cannot be queried now: b (the answer cannot be read: ")
                || message.contains("cluster b: "),
            "{message}"
        );
        control.answer_endlessly(Some(RequestKind::Write));
        let answer = fixture.write("POST", reviews, &review).await.ok();
        let message = answer["status"]["evaluationError"].as_str().unwrap_or_default();
        assert!(message.contains(rights) && message.contains("b ("), "{message}");
        assert_eq!(held_now(&fixture), 0);
    }
}

fn held_now(fixture: &Fixture) -> u64 {
    let exposition = fixture.router.metrics().expose();
    let text = exposition.lines().find_map(|line| line.strip_prefix(r#"tributary_limit_used{limit="held_bytes"} "#));
    text.and_then(|text| text.parse().ok()).expect("a number")
}

#[tokio::test]
async fn requests_for_a_missing_name_cause_few_lookups_per_second() {
    let fixture = Fixture::start(["a", "b", "c"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    let begun = tokio::time::Instant::now();
    let client = fixture.client();
    let path = format!("{CONFIG_MAPS}/nothing");
    let clients = (0..20).map(|_| async {
        for _ in 0..3 {
            client.send("DELETE", &path, &[], "").await.refused(404);
        }
    });
    join_all(clients).await;
    let asked = fixture.member("a").control().requests_of(RequestKind::Get, "configmaps");
    let allowed = 2 + begun.elapsed().as_millis() / 250;
    assert!(u128::from(asked) <= allowed, "60 deletions asked {asked} times, {allowed} are allowed");
}

/// Requests that arrive during a lookup of a name share the next lookup, even if some clients disconnect early.
#[tokio::test]
async fn concurrent_requests_for_one_name_share_a_lookup() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    let control = fixture.member("a").control();
    let path = format!("{CONFIG_MAPS}/nothing");
    let asked = || control.requests_of(RequestKind::Get, "configmaps");
    let ask = || Box::pin(call(&fixture, peer(1), "DELETE", &path, tributary_apimachinery::body::empty()));

    // The member does not answer, so each request waits for a lookup.
    control.half_open(true);
    let mut asking: Vec<_> = (0..10).map(|_| ask()).collect();
    for request in &mut asking {
        assert!(request.now_or_never().is_none());
    }
    let before = asked();
    control.half_open(false);
    for answer in join_all(asking).await {
        answer.refused(404);
    }
    assert_eq!(asked() - before, 2, "the first one's, and that of the nine others");

    // The first client disconnects during its lookup. The second client disconnects, too, and the other clients still
    // get the result of their shared lookup.
    control.half_open(true);
    let mut asking: Vec<_> = (0..10).map(|_| ask()).collect();
    for request in &mut asking {
        assert!(request.now_or_never().is_none());
    }
    let before = asked();
    asking.drain(..2);
    control.half_open(false);
    for answer in join_all(asking).await {
        answer.refused(404);
    }
    assert!((1..=2).contains(&(asked() - before)), "the first one's may have got there");

    // All clients disconnect. The router then sends no lookup for them, and the next client does not wait for one.
    control.half_open(true);
    let mut asking: Vec<_> = (0..10).map(|_| ask()).collect();
    for request in &mut asking {
        assert!(request.now_or_never().is_none());
    }
    let before = asked();
    drop(asking);
    control.half_open(false);
    ask().await.refused(404);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!((1..=2).contains(&(asked() - before)), "its own, and the first one's may have got there");
}

#[tokio::test]
async fn invented_names_of_one_client_do_not_block_other_lookups() {
    let fixture = Fixture::start(["a"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    // The member does not answer, so each lookup takes its maximum time.
    fixture.member("a").control().half_open(true);
    let fixture = &fixture;
    let in_flight = || {
        let exposition = fixture.router.metrics().expose();
        let line = r#"tributary_limit_used{limit="requests_in_flight"} "#;
        exposition.lines().find_map(|text| text.strip_prefix(line)?.parse::<usize>().ok()).unwrap_or_default()
    };
    let delete = |from, name: String| {
        let path = format!("{CONFIG_MAPS}/{name}");
        async move { call(fixture, from, "DELETE", &path, tributary_apimachinery::body::empty()).await }
    };
    let made_up = join_all((0..200).map(|client| async move {
        for number in 0.. {
            delete(peer(1), format!("made-up-{client}-{number}")).await;
        }
    }));
    // The busy client also sends deletions of an object that exists.
    let known = join_all((0..4).map(|_| async {
        loop {
            delete(peer(1), "known".to_owned()).await;
        }
    }));
    let flood = select(made_up, known);
    let asked = async {
        // First, 200 requests of the busy client are in flight.
        until(|| async { in_flight() >= 200 }).await;
        // If a cluster does not answer a lookup, the router uses its objects in memory, which gives a 404. A 429 would
        // mean that the router could not send the lookup.
        let (own, known) = join(delete(peer(2), "nothing".to_owned()), delete(peer(2), "known".to_owned())).await;
        own.refused(404);
        known.refused(404);
    };
    tokio::select! {
        () = asked => {}
        _ = flood => unreachable!(),
    }
}

#[tokio::test]
async fn object_created_by_another_replica_is_found() {
    for policies in [allow(), Policies { registered: Some(vec!["pods".parse().unwrap()]), ..allow() }] {
        let fixture = Fixture::with([config("a"), config("b")], policies).await;
        for round in 0..5 {
            let path = format!("{CONFIG_MAPS}/x{round}");
            fixture.client().send("DELETE", &path, &[], "").await.refused(404);
            // Another replica creates the object. A client that uses both replicas must be able to delete it here
            // immediately.
            fixture.put("b", &format!("x{round}"), "1");
            fixture.client().send("DELETE", &path, &[], "").await.ok();
        }
        // The object is created during the lookup for another client. A client whose request arrives in this time must
        // also be able to delete it.
        for round in 0..20 {
            let path = format!("{CONFIG_MAPS}/y{round}");
            let made = async {
                tokio::task::yield_now().await;
                fixture.put("a", &format!("y{round}"), "1");
                fixture.client().send("DELETE", &path, &[], "").await.ok()
            };
            join(fixture.get(&path), made).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_clients_are_served_during_expensive_lookups() {
    let fixture = Fixture::start(["a", "b", "c"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    let owners = format!(r#"{{"metadata":{{"ownerReferences":[{}]}}}}"#, vec!["{}"; 300_000].join(","));
    for worst in [
        Worst::write("a name that is nowhere", "DELETE", format!("{CONFIG_MAPS}/nothing"), String::new()),
        Worst::write("a body of nothing but owners", "POST", CONFIG_MAPS, owners),
    ] {
        others_are_answered(&fixture, worst).await;
    }
}
