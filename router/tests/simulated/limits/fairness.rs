//! Tests of fairness in the shared mode: the requests of one user do not delay the requests of another user.

use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::json;
use tributary_router::{Limits, SharedMode};
use tributary_simulator::SimulatorConfig;

use crate::access::rights::{binding, listed, role};
use crate::harness::{Answer, Client, Fixture, allow, config, config_map_in, items, until};

const SHOP: &str = "/api/v1/namespaces/shop/configmaps";

/// Starts members with these names. Each pair in `users` is a user and the member in which the user may do everything.
async fn fixture<const N: usize>(names: [&str; N], users: &[(&str, &str)], limits: Limits) -> Fixture {
    let configs = names.map(|name| SimulatorConfig { rbac: true, ..config(name) });
    let router = tributary_router::RouterConfig {
        policies: allow(),
        shared: Some(SharedMode::default()),
        alone: true,
        limits,
        ..tributary_router::RouterConfig::default()
    };
    let fixture = Fixture::of(configs, router).await;
    for member in &fixture.members {
        member.apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "shop"}})).unwrap();
        member.apply(role("", "all", [&["*"], &["*"], &["*"], &[]])).unwrap();
    }
    for (user, cluster) in users {
        let member = fixture.member(cluster);
        member.apply(binding("", &format!("{user}-all"), ("ClusterRole", "all"), user)).unwrap();
        listed(&fixture, cluster, user, "all").await;
    }
    fixture
}

async fn create(client: &Client, cluster: &str, name: &str) -> Answer {
    let object = config_map_in(cluster, name, "1").to_string().replace("\"default\"", "\"shop\"");
    client.send("POST", SHOP, &[("content-type", "application/json")], &object).await
}

/// Eve writes constantly, and the watches of a member are delayed. Reads of other users must not wait for her writes.
#[tokio::test]
async fn reads_wait_only_for_writes_of_their_own_user() {
    let fixture = fixture(["a", "b"], &[("ann", "a"), ("ann", "b"), ("eve", "a")], Limits::default()).await;
    let (ann, eve) = (fixture.user("ann", &[]), fixture.user("eve", &[]));
    create(&ann, "b", "of-ann").await.ok();
    until(async || items(&ann.get(SHOP).await.ok()).contains(&"b/of-ann".to_owned())).await;
    fixture.member("a").control().slow(Some(10));
    create(&eve, "a", "of-eve").await.ok();
    let of_eve = eve.get(&format!("{SHOP}/of-eve")).await;
    assert!(of_eve.refused(504).contains("Too large resource version"), "{of_eve:?}");
    eve.get(SHOP).await.refused(504);
    // Ann sees only those writes of Eve that have reached the router.
    assert!(items(&ann.get(SHOP).await.ok()).contains(&"b/of-ann".to_owned()));
    ann.get(&format!("{SHOP}/of-ann")).await.ok();
    ann.get(&format!("{SHOP}/of-eve")).await.refused(404);
    // Ann's reads wait for her own writes. To find the cluster of a named object, a write waits for the writes of all
    // users.
    create(&ann, "b", "second").await.ok();
    ann.get(&format!("{SHOP}/second")).await.ok();
    let refused = ann.send("DELETE", &format!("{SHOP}/of-eve"), &[], "").await;
    assert!(refused.refused(504).contains("Too large resource version"), "{refused:?}");
}

/// Eve writes in a cluster in which Ann has no rights. Her writes must neither delay Ann's reads nor reveal the
/// cluster, even if both clusters have an object with the same name.
#[tokio::test]
async fn reads_do_not_wait_for_writes_in_a_hidden_cluster() {
    let fixture = fixture(["a", "b"], &[("ann", "b"), ("eve", "a")], Limits::default()).await;
    let (ann, eve) = (fixture.user("ann", &[]), fixture.user("eve", &[]));
    create(&ann, "b", "same").await.ok();
    until(async || ann.get(&format!("{SHOP}/same")).await.code == 200).await;
    fixture.member("a").control().slow(Some(10));
    create(&eve, "a", "same").await.ok();
    ann.get(&format!("{SHOP}/same")).await.ok();
    let patch = [("content-type", "application/merge-patch+json")];
    ann.send("PATCH", &format!("{SHOP}/same"), &patch, r#"{"data":{"v":"2"}}"#).await.ok();
    ann.send("DELETE", &format!("{SHOP}/same"), &[], "").await.ok();
}

#[tokio::test]
async fn request_limit_of_a_user_covers_all_connections_of_the_user() {
    let limits = Limits { requests_in_flight: 8, ..Limits::default() };
    let fixture = fixture(["a"], &[("ann", "a"), ("eve", "a")], limits).await;
    let (ann, eve) = (fixture.user("ann", &[]), fixture.user("eve", &[]));
    eve.get(SHOP).await.ok();
    fixture.member("a").control().half_open(true);
    let path = format!("/clusters/a{SHOP}");
    let frozen = (1..=6).map(|port| eve.clone().by_port(port)).map(|eve| {
        let path = path.clone();
        async move { eve.get(&path).await }
    });
    let mut frozen: futures::stream::FuturesUnordered<_> = frozen.map(Box::pin).collect();
    for _ in 0..3 {
        let answer = futures::StreamExt::next(&mut frozen).await.unwrap();
        assert!(answer.refused(429).contains("this client uses"), "{answer:?}");
    }
    let answers = async {
        // Ann and Eve share a connection, as behind a front proxy. The limit is for each user, so Ann's request
        // succeeds.
        ann.clone().by_port(1).get(&format!("{SHOP}?resourceVersion=0")).await.ok();
        let message = eve.clone().by_port(7).get(&format!("{SHOP}?resourceVersion=0")).await.refused(429);
        assert!(message.contains("other clients use 0 and this client uses 3"), "{message}");
    };
    tokio::select! {
        () = answers => {}
        answer = async { futures::StreamExt::next(&mut frozen).await } => panic!("a frozen member answered: {answer:?}"),
    }
}

/// A user has one limit of long-running requests for all connections and clusters.
#[tokio::test]
async fn watches_of_one_user_do_not_exhaust_the_limit() {
    let limits = Limits { long_running_requests: 16, ..Limits::default() };
    let everybody = [("ann", "a"), ("ann", "b"), ("eve", "a"), ("eve", "b")];
    let fixture = fixture(["a", "b"], &everybody, limits).await;
    let (ann, eve) = (fixture.user("ann", &[]), fixture.user("eve", &[]));
    let news = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan";
    let paths = ["", "/clusters/a", "/clusters/b"].map(|cluster| format!("{cluster}{SHOP}?{news}"));
    let mut open = Vec::new();
    for port in 1..=6 {
        let eve = eve.clone().by_port(port);
        let response = eve.call("GET", &paths[usize::from(port) % 3], &[], "").await;
        assert_eq!(response.status(), StatusCode::OK, "{port}");
        open.push(response);
    }
    for path in &paths {
        let refused = eve.clone().by_port(7).get(path).await;
        let message = refused.refused(429);
        let expected = "too many watches and other long-running requests (--max-long-running-requests): of the limit \
                        16, other clients use 0 and this client uses 6; a client may use at most half of the limit \
                        that other clients do not use";
        assert_eq!((&*message, &refused.headers["retry-after"]), (expected, &"1".parse().unwrap()));
    }
    // Ann and Eve share a connection, as behind a front proxy. The limit is for each user, so Ann's watch opens. Reads
    // have a different limit, so Eve can list.
    let of_ann = ann.clone().by_port(1).call("GET", &paths[0], &[], "").await;
    assert_eq!(of_ann.status(), StatusCode::OK);
    eve.get(SHOP).await.ok();
    let exposition = fixture.router.metrics().expose();
    assert!(exposition.contains(r#"tributary_limit_used{limit="long_running_requests"} 7"#), "{exposition}");
    assert!(exposition.contains(r#"tributary_limit_refused_total{limit="long_running_requests"} 3"#), "{exposition}");
    // A watch keeps its query in memory, so a watch with a long query needs several permits. This watch needs five, and
    // only four are free.
    let long = format!("{}&fieldSelector=metadata.name%21%3D{}", paths[0], "x".repeat(40_000));
    let refused = ann.clone().by_port(2).call("GET", &long, &[], "").await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let message = String::from_utf8(refused.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(message.contains("other clients use 6 and this client uses 1"), "{message}");
    // Permits return when the client closes a stream. A request that fails without a stream also returns its permit.
    drop((open, of_ann));
    for _ in 0..20 {
        ann.get("/clusters/a/api/v1/namespaces/shop/pods/none/log").await.refused(404);
    }
    let report = fixture.router.report().await;
    let own = report.limits.iter().find(|own| own.limit == "long_running_requests").unwrap();
    assert_eq!((own.used, own.max, own.refused), (0, 16, Some(4)));
}

#[tokio::test]
async fn personal_mode_does_not_limit_watches() {
    let limits = Limits { long_running_requests: 2, ..Limits::default() };
    let router =
        tributary_router::RouterConfig { policies: allow(), limits, ..tributary_router::RouterConfig::default() };
    let fixture = Fixture::of([config("a")], router).await;
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(fixture.watch("/api/v1/configmaps?watch=1").await);
    }
}
