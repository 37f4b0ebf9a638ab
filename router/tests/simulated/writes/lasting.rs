//! Tests of long-running requests to one cluster. They leave connections for other clients and for the router's own
//! watches.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use tributary_apimachinery::body::{self, Body};
use tributary_router::{RequestContext, User};
use tributary_simulator::SimulatorConfig;

use crate::harness::{Answer, CONFIG_MAPS, Events, Fixture, allow, config, name, until};

async fn call(fixture: &Fixture, port: u16, path: &str) -> Response<Body> {
    call_by(fixture, port, Request::get(path)).await
}

async fn call_by(fixture: &Fixture, port: u16, request: http::request::Builder) -> Response<Body> {
    let request = request.body(body::empty()).unwrap();
    let mut context = RequestContext::for_user(&User::named("test", "tester"), &request);
    context.arrival.peer = Some(SocketAddr::from(([127, 0, 0, 1], port)));
    fixture.router.handle(request, &context).await.response
}

/// Opens up to `most` watches at the path of a cluster, until the router refuses one. Returns the watches, and the
/// refusal if there was one.
async fn greedy(fixture: &Fixture, port: u16, most: usize) -> (Vec<Response<Body>>, Option<Answer>) {
    let mut watches = Vec::new();
    while watches.len() < most {
        let path =
            format!("/clusters/a{CONFIG_MAPS}?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan");
        let response = call(fixture, port, &path).await;
        if response.status() != 200 {
            let (head, body) = response.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            return (watches, Some(Answer { code: head.status.as_u16(), headers: head.headers, body }));
        }
        watches.push(response);
    }
    (watches, None)
}

#[tokio::test]
async fn watches_of_one_client_do_not_exhaust_a_members_connections() {
    let fixture = Fixture::with([SimulatorConfig { http2: false, ..config("a") }], allow()).await;
    fixture.put_and_see("a", "before", "").await;
    let (watches, refusal) = greedy(&fixture, 1, 300).await;
    let refusal = refusal.expect("a refusal");
    let message = refusal.refused(429);
    for part in [
        "cluster a: too many long-running requests: of the limit 128",
        "end some of these requests",
        "without /clusters/a",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!((watches.len(), &refusal.headers["retry-after"]), (48, &"1".parse().unwrap()));
    let exposition = fixture.router.metrics().expose();
    assert!(exposition.contains(r#"tributary_limit_used{limit="long_running_to_member"} 48"#), "{exposition}");
    assert!(exposition.contains(r#"tributary_limit_refused_total{limit="long_running_to_member"} 1"#), "{exposition}");
    for line in [
        "limit{cluster=\"a\",limit=\"long_running_to_member\"} 128",
        "limit_used{cluster=\"a\",limit=\"long_running_to_member\"} 48",
    ] {
        assert!(exposition.contains(&format!("tributary_member_{line}\n")), "{line}: {exposition}");
    }
    // Without `connection: upgrade`, an Upgrade header is ignored. So the request needs a connection for long-running
    // requests, and none is free.
    let request = Request::get(format!("/clusters/a{CONFIG_MAPS}?watch=1")).header("upgrade", "x");
    assert_eq!(call_by(&fixture, 1, request).await.status(), 429);

    // A second client can still open a watch and receive events.
    let (mut others, _) = greedy(&fixture, 2, 1).await;
    let mut other = Events::of(others.pop().expect("a watch of another client"));
    let hog = 2..100;
    let mut held = Vec::new();
    for port in hog {
        held.push(greedy(&fixture, port, 300).await.0);
    }
    fixture.put("a", "x", "");
    assert_eq!(name(&other.soon().await["object"]), "x");

    // The member cuts all streams. The clients do not read their streams, so these still occupy connections. Then many
    // clients open new watches. The cacher's watch must still get a connection.
    fixture.member("a").control().cut_streams();
    let mut again = Vec::new();
    for port in 100..120 {
        again.push(greedy(&fixture, port, 300).await.0);
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    fixture.put("a", "after", "");
    until(|| async {
        let list = fixture.get(&format!("{CONFIG_MAPS}?resourceVersion=0")).await.ok();
        list["items"].as_array().unwrap().iter().any(|item| name(item) == "after")
    })
    .await;
    drop((watches, held, other, again));
}
