//! Tests of added, removed and drained endpoints. Requests in flight at a removed endpoint may end, and new requests go
//! to the remaining endpoints.

use futures::FutureExt;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tributary_proxy::{
    Address, ClientTuning, ClusterClient, EndpointStatus, EndpointSubset, ForwardError, LeftOutReason, RequestIdentity,
    Sent,
};

use crate::endpoints::{Gate, client};
use crate::member::{Body, Member, Options, Port, SOON, Seen, SendRequest, channel, eventually, full, get, read, text};

/// A member whose watches stay open. It answers any other request with the request's path.
async fn watchable() -> Member {
    Member::start(Options::default(), |seen, _| async move {
        if !seen.uri.query().is_some_and(|query| query.contains("watch")) {
            return text(StatusCode::OK, seen.uri.path().to_owned());
        }
        let (sender, body) = channel();
        sender.send("{}\n".into()).unwrap();
        tokio::spawn(async move { sender.closed().await });
        http::Response::new(body)
    })
    .await
}

/// Replaces the client's endpoints by the addresses of these gates to the member. Returns whether the client accepted
/// the addresses.
async fn move_to(client: &ClusterClient, member: &Member, gates: &[&Gate]) -> bool {
    let mut config = member.config();
    config.cluster_url = gates[0].url();
    let further: Vec<Address> = gates[1..].iter().map(|gate| gate.url().into()).collect();
    client.set_addresses(&config, &further).await.unwrap()
}

fn addresses(client: &ClusterClient) -> Vec<String> {
    client.endpoints().iter().map(|endpoint| format!("https://{}/", endpoint.address)).collect()
}

async fn two_watches(client: &ClusterClient) -> Vec<Body> {
    let mut watches = Vec::new();
    for _ in 0..2 {
        let watch = client.send_request(get("/api/v1/pods?watch=1"), RequestIdentity::Member).await.unwrap();
        let mut body = watch.into_body();
        body.frame().await.unwrap().unwrap();
        watches.push(body);
    }
    watches
}

#[tokio::test]
async fn removed_endpoint_finishes_its_requests_and_gets_no_new_requests() {
    let member = watchable().await;
    let gates = [Gate::to(&member).await, Gate::to(&member).await, Gate::to(&member).await];
    let client = client(&member, [&gates[0], &gates[1]]).await;
    let tended = client.clone();
    let tending = tokio::spawn(async move { tended.watch_over().await });
    let mut watches = two_watches(&client).await;
    let renewals = client.renewals();
    assert!(move_to(&client, &member, &[&gates[1], &gates[2]]).await);
    assert_eq!(addresses(&client), [gates[1].url().to_string(), gates[2].url().to_string()]);
    let leaving = client.leaving_endpoints();
    assert_eq!(leaving.len(), 1);
    assert_eq!(format!("https://{}/", leaving[0].address), gates[0].url().to_string());
    assert_eq!(leaving[0].left_out.as_ref().unwrap().reason, LeftOutReason::Drain);
    let sent_before = leaving[0].requests;
    for _ in 0..40 {
        assert_eq!(read(client.send_request(get("/api"), RequestIdentity::Member).await.unwrap()).await, "/api");
        let post = Request::post("/api").body(full("{}")).unwrap();
        assert_eq!(client.send_request(post, RequestIdentity::Member).await.unwrap().status(), StatusCode::OK);
    }
    // The new endpoint is in slow start (`slow_start.rs`), so it gets few requests.
    let is_at_new = |seen: &&Seen| seen.uri.path() == "/api" && seen.uri.authority() == gates[2].url().authority();
    let new = member.seen().iter().filter(is_at_new).count();
    assert!((1..=60).contains(&new), "{new} of 80");
    assert_eq!(client.leaving_endpoints()[0].requests, sent_before, "nothing new");
    // Both watches continue. The watch at the remaining endpoint keeps its connection.
    assert!(watches.iter_mut().all(|watch| watch.frame().now_or_never().is_none()));
    assert_eq!(client.renewals(), renewals);
    eventually("it is asked", || client.endpoints().iter().all(|endpoint| endpoint.latency.is_some())).await;
    drop(watches);
    eventually("the endpoint is left", || client.leaving_endpoints().is_empty()).await;
    tending.abort();
}

#[tokio::test]
async fn responses_of_a_removed_endpoint_do_not_make_the_member_reachable() {
    let (sender, released) = tokio::sync::watch::channel(0);
    let member = Member::start(Options::default(), move |seen, _| {
        let mut released = released.clone();
        async move {
            let so_many = seen.uri.path().len();
            released.wait_for(|many| *many >= so_many).await.unwrap();
            text(StatusCode::OK, String::new())
        }
    })
    .await;
    let mut gates = [Gate::to(&member).await, Gate::to(&member).await];
    gates[1].close().await;
    let client = client(&member, [&gates[0], &gates[1]]).await;
    let ask = |path| {
        let client = client.clone();
        tokio::spawn(async move { client.send_request(get(path), RequestIdentity::Member).await })
    };
    sender.send_replace(2);
    ask("/a").await.unwrap().unwrap();
    let last = ask("/abc");
    eventually("it is under way", || member.seen().len() == 2).await;
    // During these two requests, the client detects that the other endpoint is unreachable.
    for _ in 0..2 {
        ask("/a").await.unwrap().unwrap();
    }
    assert!(client.reachability().borrow().is_reachable());
    let further = [&gates[1]].map(|gate| Address::from(gate.url()));
    let (lost, mut config) = (Port::reserve(), member.config());
    config.cluster_url = format!("https://{}", lost.address()).parse().unwrap();
    assert!(client.set_addresses(&config, &further).await.unwrap());
    client.send_request(get("/a"), RequestIdentity::Member).await.unwrap_err();
    assert!(!client.reachability().borrow().is_reachable());
    sender.send_replace(4);
    assert_eq!(last.await.unwrap().unwrap().status(), StatusCode::OK);
    assert!(!client.reachability().borrow().is_reachable(), "nothing new can be asked of it");
}

#[tokio::test]
async fn waiting_request_avoids_an_endpoint_removed_during_the_wait() {
    let member = watchable().await;
    // A listener that accepts connections and sends nothing.
    let mute = Port::reserve();
    let _listener = mute.listen().await;
    let gates = [Gate::to(&member).await, Gate::to(&member).await];
    let name = tributary_apimachinery::ClusterName::new("c1").unwrap();
    let mut config = member.config();
    config.cluster_url = format!("https://{}", mute.address()).parse().unwrap();
    let at = |gate: &Gate| [Address::from(gate.url())];
    let tuning = ClientTuning::default();
    let client = ClusterClient::connect_to_all(name, config.clone(), &at(&gates[0]), tuning).await.unwrap();
    let asking = client.clone();
    let asking = tokio::spawn(async move {
        let post = Request::post("/api").body(full("{}")).unwrap();
        asking.send_request(post, RequestIdentity::Member).await
    });
    eventually("it waits for the first", || client.endpoints()[0].outstanding == 1).await;
    assert!(client.set_addresses(&config, &at(&gates[1])).await.unwrap());
    let answer = tokio::time::timeout(SOON, asking).await.unwrap().unwrap().unwrap();
    assert_eq!(read(answer).await, "/api");
    assert_eq!(member.seen().len(), 1);
    assert_eq!(member.last().uri.authority(), gates[1].url().authority(), "one that has left is sent nothing new");
    assert!(client.reachability().borrow().is_reachable());
}

#[tokio::test]
async fn added_endpoint_has_slow_start_and_a_removed_endpoint_gets_nothing() {
    let member = watchable().await;
    let gates = [Gate::to(&member).await, Gate::to(&member).await];
    let client = client(&member, [&gates[0], &gates[1]]).await;
    assert!(move_to(&client, &member, &[&gates[1]]).await);
    for _ in 0..5 {
        client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    }
    assert_eq!(client.endpoints()[0].requests, 5);
    assert!(move_to(&client, &member, &[&gates[0], &gates[1]]).await);
    // In slow start, the endpoint is a candidate for at least seven of seventy requests (`slow_start.rs`).
    for _ in 0..70 {
        client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    }
    let requests: Vec<_> = client.endpoints().iter().map(|endpoint| endpoint.requests).collect();
    assert!((1..=40).contains(&requests[0]) && requests[0] + requests[1] == 75, "{requests:?}");
    // The client refuses a list of addresses that has no address in common with the old list, because the new addresses
    // may belong to another cluster.
    let elsewhere = Gate::to(&member).await;
    assert!(!move_to(&client, &member, &[&elsewhere]).await);
    assert_eq!(client.endpoints().len(), 2);
    let name = tributary_apimachinery::ClusterName::new("c1").unwrap();
    let mut config = member.config();
    config.cluster_url = gates[0].url();
    let lone = ClusterClient::connect(name, config, ClientTuning::default()).await.unwrap();
    assert!(!move_to(&lone, &member, &[&gates[0], &gates[1]]).await);
}

fn drain(client: &ClusterClient, gates: &[&Gate]) {
    client.set_drained(&EndpointSubset::new(&gates.iter().map(|gate| gate.url().to_string()).collect::<Vec<_>>()));
}

fn is_drained(status: &EndpointStatus) -> bool {
    status.left_out.as_ref().is_some_and(|why| why.reason == LeftOutReason::Drain)
}

#[tokio::test]
async fn drained_endpoint_is_probed_but_gets_no_new_requests() {
    let member = watchable().await;
    let mut gates = [Gate::to(&member).await, Gate::to(&member).await];
    let client = client(&member, [&gates[0], &gates[1]]).await;
    let tended = client.clone();
    let tending = tokio::spawn(async move { tended.watch_over().await });
    let mut watches = two_watches(&client).await;
    eventually("both are asked", || client.endpoints().iter().all(|endpoint| endpoint.latency.is_some())).await;
    let renewals = client.renewals();
    drain(&client, &[&gates[0]]);
    let at_gate = |seen: &[crate::member::Seen], gate: &Gate, path: &str| {
        let authority = gate.url().authority().cloned();
        seen.iter().filter(|one| one.uri.authority() == authority.as_ref() && one.uri.path() == path).count()
    };
    let before = member.seen().len();
    for _ in 0..20 {
        assert_eq!(read(client.send_request(get("/api"), RequestIdentity::Member).await.unwrap()).await, "/api");
        let post = Request::post("/api").body(full("{}")).unwrap();
        assert_eq!(client.send_request(post, RequestIdentity::Member).await.unwrap().status(), StatusCode::OK);
    }
    let seen = member.seen().split_off(before);
    assert_eq!((at_gate(&seen, &gates[0], "/api"), at_gate(&seen, &gates[1], "/api")), (0, 40));
    let statuses = client.endpoints();
    assert!(is_drained(&statuses[0]) && !is_drained(&statuses[1]), "{statuses:?}");
    assert_eq!(statuses[0].outstanding, 1, "its watch is under way");
    assert!(watches.iter_mut().all(|watch| watch.frame().now_or_never().is_none()));
    assert_eq!(client.renewals(), renewals);
    let probes = || at_gate(&member.seen(), &gates[0], "/readyz");
    let before = probes();
    eventually("the drained one is asked", || probes() > before).await;
    assert!(client.reachability().borrow().is_reachable());

    gates[0].close().await;
    let cause = || client.endpoints()[0].left_out.as_ref().unwrap().cause.to_string();
    eventually("it is seen to be lost", || {
        cause().starts_with("the configuration drains the endpoint; the endpoint is unreachable")
    })
    .await;
    assert!(is_drained(&client.endpoints()[0]) && client.reachability().borrow().is_reachable());
    gates[0].open().await;
    eventually("it is seen to be back", || cause() == "the configuration drains the endpoint").await;
    drop(watches);
    eventually("nothing is under way there", || client.endpoints()[0].outstanding == 0).await;
    drain(&client, &[]);
    assert!(!client.endpoints().iter().any(is_drained));
    let before = member.seen().len();
    for _ in 0..70 {
        client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    }
    // The endpoint is in slow start (`slow_start.rs`), so it gets few requests.
    let part = at_gate(&member.seen().split_off(before), &gates[0], "/api");
    assert!((1..=40).contains(&part), "it has a part again: {part}");
    tending.abort();
}

#[tokio::test]
async fn request_is_refused_as_unsent_if_all_endpoints_are_drained() {
    let member = watchable().await;
    let gates = [Gate::to(&member).await, Gate::to(&member).await];
    let several = client(&member, [&gates[0], &gates[1]]).await;
    let name = tributary_apimachinery::ClusterName::new("c1").unwrap();
    let mut config = member.config();
    config.cluster_url = gates[0].url();
    let lone = ClusterClient::connect(name, config, ClientTuning::default()).await.unwrap();
    for (client, count) in [(&several, 2), (&lone, 1)] {
        client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
        drain(client, &[&gates[0], &gates[1]]);
        assert!(client.is_drained());
        for request in [get("/api"), Request::post("/api").body(full("{}")).unwrap()] {
            let error = client.send_request(request, RequestIdentity::Member).await.unwrap_err();
            let ForwardError::NoEndpoint { left_out, .. } = &error else { panic!("{error}") };
            assert!(left_out.iter().all(|(_, why)| why.reason == LeftOutReason::Drain), "{error}");
            assert_eq!(
                (left_out.len(), error.sent(), error.status_code()),
                (count, Sent::No, StatusCode::SERVICE_UNAVAILABLE)
            );
            assert!(error.to_string().contains("the configuration drains the endpoint (drain)"), "{error}");
        }
        assert!(client.reachability().borrow().is_reachable(), "nothing says that it is lost");
        drain(client, &[]);
        client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    }
}

#[tokio::test]
async fn drained_endpoint_does_not_replace_an_unreachable_endpoint() {
    let member = watchable().await;
    let mut gates = [Gate::to(&member).await, Gate::to(&member).await];
    let client = client(&member, [&gates[0], &gates[1]]).await;
    client.send_request(get("/api"), RequestIdentity::Member).await.unwrap();
    drain(&client, &[&gates[0]]);
    gates[1].close().await;
    let error = client.send_request(get("/api"), RequestIdentity::Member).await.unwrap_err();
    let ForwardError::NoEndpoint { left_out, .. } = &error else { panic!("{error}") };
    let mut reasons: Vec<_> = left_out.iter().map(|(_, why)| why.reason.as_str()).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["drain", "unreachable"], "{error}");
    eventually("the member is lost", || !client.reachability().borrow().is_reachable()).await;
    drain(&client, &[]);
    assert_eq!(read(client.send_request(get("/api"), RequestIdentity::Member).await.unwrap()).await, "/api");
    eventually("the member is back", || client.reachability().borrow().is_reachable()).await;
}

#[tokio::test]
async fn request_waiting_for_a_drained_endpoint_uses_another_endpoint() {
    let member = watchable().await;
    // A listener that accepts connections and sends nothing.
    let mute = Port::reserve();
    let _listener = mute.listen().await;
    let gate = Gate::to(&member).await;
    let name = tributary_apimachinery::ClusterName::new("c1").unwrap();
    let mut config = member.config();
    config.cluster_url = format!("https://{}", mute.address()).parse().unwrap();
    let drained = EndpointSubset::new(&[config.cluster_url.to_string()]);
    let further = [Address::from(gate.url())];
    let client = ClusterClient::connect_to_all(name, config, &further, ClientTuning::default()).await.unwrap();
    let asking = client.clone();
    let asking = tokio::spawn(async move {
        let post = Request::post("/api").body(full("{}")).unwrap();
        asking.send_request(post, RequestIdentity::Member).await
    });
    eventually("it waits for the first", || client.endpoints()[0].outstanding == 1).await;
    client.set_drained(&drained);
    let answer = tokio::time::timeout(SOON, asking).await.unwrap().unwrap().unwrap();
    assert_eq!(read(answer).await, "/api");
    assert_eq!(member.last().uri.authority(), gate.url().authority());
}

/// A graceful shutdown with two GOAWAY frames (RFC 9113 §6.8): new requests use another connection, and requests in
/// flight end on the old connection.
#[tokio::test]
async fn requests_in_flight_end_normally_after_goaway() {
    let (sender, release) = tokio::sync::watch::channel(false);
    let member = Member::start(Options::default(), move |seen, _| {
        let mut release = release.clone();
        async move {
            if seen.uri.path() == "/slow" {
                release.wait_for(|is| *is).await.unwrap();
            }
            text(StatusCode::OK, seen.uri.path().to_owned())
        }
    })
    .await;
    let client = member.client().await;
    let slow: Vec<_> = (0..10)
        .map(|_| {
            let client = client.clone();
            let post = Request::post("/slow").body(full("{}")).unwrap();
            tokio::spawn(async move { client.send_request(post, RequestIdentity::Member).await })
        })
        .collect();
    eventually("all are in flight", || member.seen().len() == 10).await;
    let before = member.connections();
    member.goaway();
    for _ in 0..10 {
        assert_eq!(client.send_request(get("/api"), RequestIdentity::Member).await.unwrap().status(), StatusCode::OK);
    }
    assert!(member.connections() > before);
    sender.send(true).unwrap();
    for slow in slow {
        let answered = tokio::time::timeout(SOON, slow).await.unwrap().unwrap();
        assert_eq!(answered.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(client.retries().retries, 0, "nothing was lost that had to be sent again");
}
