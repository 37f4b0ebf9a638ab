//! The shared mode: what one user does keeps no other waiting (T8).

use serde_json::json;
use tributary_router::{Limits, SharedMode};
use tributary_simulator::SimulatorConfig;

use crate::harness::{Answer, Client, Fixture, allow, config, config_map_in, items, until};
use crate::rights::{binding, listed, role};

const SHOP: &str = "/api/v1/namespaces/shop/configmaps";

/// Members of these names, where these users may do everything.
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

/// Eve writes all the time where a member's watches lag: who reads her writes waits, which is she herself.
#[tokio::test]
async fn nobody_waits_for_what_others_wrote() {
    let fixture = fixture(["a", "b"], &[("ann", "a"), ("ann", "b"), ("eve", "a")], Limits::default()).await;
    let (ann, eve) = (fixture.user("ann", &[]), fixture.user("eve", &[]));
    create(&ann, "b", "of-ann").await.ok();
    until(async || items(&ann.get(SHOP).await.ok()).contains(&"b/of-ann".to_owned())).await;
    fixture.member("a").control().slow(Some(10));
    create(&eve, "a", "of-eve").await.ok();
    let of_eve = eve.get(&format!("{SHOP}/of-eve")).await;
    assert!(of_eve.refused(504).contains("Too large resource version"), "{of_eve:?}");
    eve.get(SHOP).await.refused(504);
    // Of what Eve did Ann sees what has come.
    assert!(items(&ann.get(SHOP).await.ok()).contains(&"b/of-ann".to_owned()));
    ann.get(&format!("{SHOP}/of-ann")).await.ok();
    ann.get(&format!("{SHOP}/of-eve")).await.refused(404);
    // Ann's own writes are hers to wait for, and where a write goes nobody decides without having seen all.
    create(&ann, "b", "second").await.ok();
    ann.get(&format!("{SHOP}/second")).await.ok();
    let refused = ann.send("DELETE", &format!("{SHOP}/of-eve"), &[], "").await;
    assert!(refused.refused(504).contains("Too large resource version"), "{refused:?}");
}

/// What Eve writes where Ann may see nothing is nothing to Ann, by whatever name: no wait, and no word of the cluster.
#[tokio::test]
async fn writes_in_a_hidden_cluster_are_nothing_to_wait_for() {
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

/// A hundred connections of one user are one share of what users share.
#[tokio::test]
async fn a_user_has_one_share_however_many_connections() {
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
        assert!(answer.refused(429).contains("this one holds"), "{answer:?}");
    }
    let answers = async {
        // By a connection that Eve uses as well: a front proxy's.
        ann.clone().by_port(1).get(&format!("{SHOP}?resourceVersion=0")).await.ok();
        let message = eve.clone().by_port(7).get(&format!("{SHOP}?resourceVersion=0")).await.refused(429);
        assert!(message.contains("other clients hold 0 and this one holds 3"), "{message}");
    };
    tokio::select! {
        () = answers => {}
        answer = async { futures::StreamExt::next(&mut frozen).await } => panic!("a frozen member answered: {answer:?}"),
    }
}
