//! Tests of the faults that a simulated member simulates on command.

use std::io::Read;
use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::json;
use tributary_simulator::{Rejection, RequestKind, SimulatorConfig};

use crate::client::{End, Fixture, SOON, connect, until, version};

fn pod(name: &str) -> serde_json::Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"}})
}

#[tokio::test]
async fn streams_are_cut_immediately_or_after_a_byte_limit() {
    let fixture = Fixture::small().await;
    let control = fixture.member.control();
    let mut events =
        fixture.watch("/api/v1/pods?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan").await;
    assert!(events.quiet().await);
    assert_eq!(control.open_watches(), 1);
    control.cut_streams();
    assert_eq!(events.next().await, Err(End::Cut));
    until("no watch is open", || async { control.open_watches() == 0 }).await;

    control.cut_streams_after(Some(10_000));
    let response = fixture.send(fixture.request("GET", "/api/v1/pods", "", "")).await.unwrap();
    let (mut body, mut bytes) = (response.into_body(), 0);
    let end = loop {
        match body.frame().await {
            Some(Ok(frame)) => bytes += frame.data_ref().unwrap().len(),
            other => break other,
        }
    };
    assert!(matches!(end, Some(Err(_))));
    assert_eq!(bytes, 10_000);
    control.cut_streams_after(None);
    assert_eq!(fixture.get("/api/v1/pods").await.names().len(), 60);
}

#[tokio::test]
async fn request_timeout_cuts_lists_but_no_watches() {
    let fixture = Fixture::small().await;
    let control = fixture.member.control();
    let mut events =
        fixture.watch("/api/v1/pods?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan").await;
    control.slow(Some(10_000));
    control.request_timeout(Some(Duration::from_secs(1)));
    for path in ["/api/v1/pods", "/api/v1/pods?limit=50"] {
        let response = fixture.send(fixture.request("GET", path, "", "")).await.unwrap();
        let cut = response.into_body().collect().await;
        assert!(cut.is_err(), "{path}");
    }
    assert!(events.quiet().await);
    control.slow(None);
    control.request_timeout(Some(SOON));
    for path in ["/api/v1/pods", "/api/v1/pods?limit=60"] {
        assert_eq!(fixture.get(path).await.names().len(), 60, "{path} completes in time");
    }
}

#[tokio::test]
async fn expired_watches_end_with_a_410_error_event() {
    let fixture = Fixture::small().await;
    let from = fixture.member.control().revision();
    let mut events = fixture.watch(&format!("/api/v1/pods?watch=1&resourceVersion={from}")).await;
    assert!(events.quiet().await);
    fixture.member.control().expire_watches();
    assert_eq!(events.expect("ERROR").await["code"], 410);
    assert_eq!(events.next().await, Err(End::Eof));
}

#[tokio::test]
async fn configured_rejections_apply_by_request_kind_and_scope() {
    let fixture = Fixture::small().await;
    let control = fixture.member.control();
    control.reject(Some(Rejection {
        retry_after: Some(Duration::from_secs(7)),
        kinds: vec![RequestKind::List],
        ..Rejection::all(429)
    }));
    let refused = fixture.get("/api/v1/pods").await;
    assert_eq!((refused.code, refused.headers["retry-after"].to_str().unwrap()), (429, "7"));
    assert_eq!(refused.json()["reason"], "TooManyRequests");
    assert_eq!(fixture.get("/api/v1/namespaces/kube-system").await.code, 200);
    control.reject(Some(Rejection { cluster_wide_only: true, ..Rejection::all(403) }));
    assert_eq!(fixture.get("/api/v1/pods").await.code, 403);
    assert_eq!(fixture.get("/api/v1/namespaces/default/pods").await.code, 200);
    for code in [401, 500, 503] {
        control.reject(Some(Rejection::all(code)));
        assert_eq!(fixture.get("/version").await.code, code);
    }
    control.reject(None);
    assert_eq!(fixture.get("/version").await.code, 200);
}

#[tokio::test]
async fn slow_streams_respect_the_configured_byte_rate() {
    let fixture = Fixture::small().await;
    fixture.member.control().slow(Some(100_000));
    let started = tokio::time::Instant::now();
    let answer = fixture.get("/api/v1/pods").await;
    let expected = Duration::from_secs_f64(answer.body.len() as f64 / 100_000.0);
    assert!(started.elapsed() > expected.mul_f64(0.8), "{:?} for {} bytes", started.elapsed(), answer.body.len());
}

#[tokio::test]
async fn connection_of_a_silent_member_resumes_after_the_silence() {
    let fixture = Fixture::small().await;
    let control = fixture.member.control();
    let from = control.revision();
    let mut events = fixture.watch(&format!("/api/v1/pods?watch=1&resourceVersion={from}")).await;
    assert!(events.quiet().await);
    control.half_open(true);
    fixture.member.apply(pod("a")).unwrap();
    assert!(events.quiet().await);
    let mut dial = Box::pin(connect(&fixture.member));
    assert!(tokio::time::timeout(Duration::from_millis(300), &mut dial).await.is_err(), "accepted, but no handshake");
    control.half_open(false);
    events.expect("ADDED").await;
    dial.await.expect("the handshake continues");
}

#[tokio::test]
async fn simulated_member_keeps_its_state_while_its_port_is_closed() {
    let fixture = Fixture::small().await;
    let control = fixture.member.control();
    let mut events =
        fixture.watch("/api/v1/pods?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan").await;
    control.stop_listening().await;
    assert_eq!(events.next().await, Err(End::Cut));
    assert_eq!(connect(&fixture.member).await.err().map(|e| e.kind()), Some(std::io::ErrorKind::ConnectionRefused));
    fixture.member.apply(pod("a")).unwrap();
    control.start_listening().await;
    connect(&fixture.member).await.expect("accepted again");
    assert!(fixture.member.get("pods", "default", "a").is_some());
}

#[tokio::test]
async fn restored_member_assigns_later_revisions_again() {
    let fixture = Fixture::small().await;
    let control = fixture.member.control();
    let first = fixture.member.apply(pod("a")).unwrap();
    let second = fixture.member.apply(pod("b")).unwrap();
    let uid = fixture.member.get("namespaces", "", "kube-system").unwrap()["metadata"]["uid"].clone();
    assert!(control.restore(first));
    assert_eq!(control.revision(), first);
    assert!(
        fixture.member.get("pods", "default", "b").is_none() && fixture.member.get("pods", "default", "a").is_some()
    );
    assert_eq!(fixture.member.apply(pod("c")).unwrap(), second, "the revision is assigned again");
    assert!(!control.restore(second + 1000));
    assert_eq!(fixture.member.get("namespaces", "", "kube-system").unwrap()["metadata"]["uid"], uid);
    control.new_incarnation();
    assert_ne!(fixture.member.get("namespaces", "", "kube-system").unwrap()["metadata"]["uid"], uid);
}

#[tokio::test]
async fn replaced_member_has_another_uid_lower_revisions_and_no_written_object() {
    let fixture = Fixture::small().await;
    let control = fixture.member.control();
    let uid = || fixture.member.get("namespaces", "", "kube-system").unwrap()["metadata"]["uid"].clone();
    let (first, before) = (control.revision(), uid());
    let mut last = first;
    for number in 0..20 {
        last = fixture.member.apply(pod(&format!("p{number}"))).unwrap();
    }
    let mut events = fixture.watch(&format!("/api/v1/pods?watch=1&resourceVersion={last}")).await;
    control.replace(0);
    assert_eq!(events.next().await, Err(End::Cut));
    assert_ne!(uid(), before);
    assert!(control.revision() < last, "{} after {last}", control.revision());
    assert!((0..20).all(|number| fixture.member.get("pods", "default", &format!("p{number}")).is_none()));
}

#[tokio::test]
async fn watch_continues_after_an_injected_frame() {
    let fixture = Fixture::small().await;
    let from = fixture.member.control().revision();
    let mut events = fixture.watch(&format!("/api/v1/pods?watch=1&resourceVersion={from}")).await;
    assert!(fixture.member.control().inject("pods", "{\"type\":\"ADDED\",\"object\":{"));
    fixture.member.apply(pod("a")).unwrap();
    assert_eq!(events.line().await.unwrap(), "{\"type\":\"ADDED\",\"object\":{");
    events.expect("ADDED").await;
}

fn lines(mut from: impl Read) -> usize {
    let mut text = Vec::new();
    let _ = from.read_to_end(&mut text);
    text.iter().filter(|byte| **byte == b'\n').count()
}

#[tokio::test]
async fn gzip_watch_has_one_member_per_flush() {
    let fixture = Fixture::small().await;
    fixture.member.control().gzip_watches(true);
    let from = fixture.member.control().revision();
    let mut request = fixture.request("GET", &format!("/api/v1/pods?watch=1&resourceVersion={from}"), "", "");
    request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
    let response = fixture.send(request).await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let (mut body, mut bytes) = (response.into_body(), Vec::new());
    for (before, name) in ["a", "b"].into_iter().enumerate() {
        fixture.member.apply(pod(name)).unwrap();
        // The next event is created only after the member has flushed the previous event, so that each event has its
        // own gzip member.
        while lines(flate2::read::MultiGzDecoder::new(&bytes[..])) == before {
            let frame = tokio::time::timeout(SOON, body.frame()).await.expect("an event in time");
            bytes.extend_from_slice(frame.unwrap().unwrap().data_ref().unwrap());
        }
    }
    assert_eq!(lines(flate2::read::GzDecoder::new(&bytes[..])), 1, "the first member alone");
    assert_eq!(lines(flate2::read::MultiGzDecoder::new(&bytes[..])), 2);
}

#[tokio::test]
async fn member_shutdown_ends_streams_and_frees_the_port() {
    let fixture = Fixture::small().await;
    let mut events =
        fixture.watch("/api/v1/pods?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan").await;
    let port = fixture.member.address().port();
    let list = version(&fixture.get("/api/v1/pods").await.json());
    fixture.member.shutdown().await;
    assert_eq!(events.next().await, Err(End::Cut));
    let again = Fixture::start(SimulatorConfig { port, pods: 60, namespaces: 3, ..SimulatorConfig::default() }).await;
    assert_eq!(version(&again.get("/api/v1/pods").await.json()), list, "the same objects, the same versions");
}
