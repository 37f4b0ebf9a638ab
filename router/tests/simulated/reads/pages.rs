//! Tests of pages of one list while the members change, and of exact lists of past states.

use serde_json::json;
use tributary_router::{Limits, Router, RouterConfig};

use crate::harness::{CONFIG_MAPS, Fixture, allow, config, items, until, vector, version};

const FILTER: &str = "fieldSelector=metadata.name!=kube-root-ca.crt";

/// More changes than a history of 16 KiB can contain.
const MANY: usize = 250;

/// Starts two members, `a` with two ConfigMaps and `b` with six, behind a router with a short history.
async fn forgetful() -> Fixture {
    let fixture = Fixture::with(["a", "b"].map(config), allow()).await;
    let limits = Limits { history_bytes: 16 << 10, ..Limits::default() };
    let router = Router::new(RouterConfig { policies: allow(), limits, alone: true, ..RouterConfig::default() });
    let fixture = Fixture { members: fixture.members, router };
    fixture.set_clusters(&["a", "b"]).await;
    for name in ["x0", "x1"] {
        fixture.put("a", name, "old");
    }
    for number in 0..6 {
        fixture.put("b", &format!("y{number}"), "old");
    }
    until(|| async { items(&fixture.get(&format!("{CONFIG_MAPS}?{FILTER}")).await.ok()).len() == 8 }).await;
    fixture
}

/// Changes an object so often that the history loses the earlier states of its member.
async fn storm(fixture: &Fixture, member: &str, name: &str) {
    let mut last = 0;
    for number in 0..MANY {
        last = fixture.put(member, name, &number.to_string());
    }
    fixture.see(member, last).await;
}

#[tokio::test]
async fn next_page_ignores_clusters_without_further_objects() {
    let fixture = forgetful().await;
    let first = fixture.get(&format!("{CONFIG_MAPS}?{FILTER}&limit=3")).await.ok();
    assert_eq!(items(&first), ["a/x0", "a/x1", "b/y0"]);
    storm(&fixture, "a", "x0").await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = fixture.get(&format!("{CONFIG_MAPS}?{FILTER}&limit=3&continue={token}")).await.ok();
    assert_eq!(items(&second), ["b/y1", "b/y2", "b/y3"], "what became of a is of no interest");
    assert_eq!(version(&second), version(&first), "all pages are of one state");
}

#[tokio::test]
async fn next_page_shows_the_stored_state_of_the_first_page() {
    let fixture = forgetful().await;
    let first = fixture.get(&format!("{CONFIG_MAPS}?{FILTER}&limit=3")).await.ok();
    fixture.put_and_see("b", "y4", "new").await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = fixture.get(&format!("{CONFIG_MAPS}?{FILTER}&limit=2&continue={token}")).await.ok();
    assert_eq!(items(&second), ["b/y1", "b/y2"]);
    storm(&fixture, "b", "y5").await;
    // The history has lost the state of `b`. The router keeps this state for the remaining pages of the list.
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = fixture.get(&format!("{CONFIG_MAPS}?{FILTER}&limit=9&continue={token}")).await.ok();
    assert_eq!(items(&third), ["b/y3", "b/y4", "b/y5"]);
    let values: Vec<_> = third["items"].as_array().unwrap().iter().map(|item| item["data"]["v"].clone()).collect();
    assert_eq!(values, [json!("old"), json!("old"), json!("old")]);
    let other = format!("{CONFIG_MAPS}?{FILTER}&resourceVersion={}&resourceVersionMatch=Exact", version(&first));
    assert_eq!(fixture.get(&other).await.code, 410, "of a nothing was remembered, and the log has forgotten b");
}

#[tokio::test]
async fn continue_token_from_before_a_restore_expires() {
    let fixture = Fixture::start(["a", "b"]).await;
    for name in ["y0", "y1", "y2"] {
        fixture.put_and_see("b", name, "old").await;
    }
    let before = fixture.member("b").control().revision();
    fixture.put_and_see("b", "y2", "undone").await;
    let first = fixture.get(&format!("{CONFIG_MAPS}?{FILTER}&limit=1")).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let next = format!("{CONFIG_MAPS}?{FILTER}&limit=1&continue={token}");
    assert_eq!(items(&fixture.get(&next).await.ok()), ["b/y1"]);
    assert!(fixture.member("b").control().restore(before));
    until(|| async {
        let list = fixture.get(&format!("{CONFIG_MAPS}?{FILTER}")).await.ok();
        list["items"][2]["data"]["v"] == "old"
    })
    .await;
    fixture.get(&next).await.refused(410);
}

#[tokio::test]
async fn exact_list_at_an_objects_version_includes_the_other_clusters() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("a", "x", "1").await;
    fixture.put_and_see("b", "y", "1").await;
    let own = version(&fixture.get(&format!("{CONFIG_MAPS}/x")).await.ok());
    let of_a = vector(&own)["a"].clone();
    assert_eq!(vector(&own), json!({ "a": of_a }), "an object carries its own cluster's component alone");
    fixture.put_and_see("a", "x", "2").await;
    for exact in ["resourceVersionMatch=Exact", "limit=500"] {
        let list = fixture.get(&format!("{CONFIG_MAPS}?{FILTER}&resourceVersion={own}&{exact}")).await.ok();
        assert_eq!(items(&list), ["a/x", "b/y"], "{exact}");
        assert_eq!(list["items"][0]["data"]["v"], "1", "a as it was: {exact}");
        let shown = vector(&version(&list));
        assert_eq!(shown["a"], of_a, "{exact}");
        assert_eq!(shown["b"], vector(&version(&list["items"][1]))["b"], "{exact}");
        // The pages of a list at an exact version have the version of the first page.
        let first = fixture.get(&format!("{CONFIG_MAPS}?{FILTER}&resourceVersion={own}&limit=1")).await.ok();
        fixture.put_and_see("b", "y", &format!("after {exact}")).await;
        let token = first["metadata"]["continue"].as_str().unwrap();
        let second = fixture.get(&format!("{CONFIG_MAPS}?{FILTER}&limit=1&continue={token}")).await.ok();
        assert_eq!((items(&second), version(&second)), (vec!["b/y".to_owned()], version(&first)), "{exact}");
        assert_ne!(second["items"][0]["data"]["v"], format!("after {exact}"), "{exact}");
    }
}
