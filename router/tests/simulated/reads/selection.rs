//! Tests of selectors with the label key `tributary.dev/cluster`, which select clusters. No object has this label.
//! Members never receive this key in a selector.

use std::time::Duration;

use serde_json::json;
use tributary_apimachinery::Partial;
use tributary_router::{Policies, ResourcePolicy};

use crate::harness::{
    CONFIG_MAPS, Fixture, SOON, allow, brief, cluster, config, config_map, items, until, vector, version,
};

/// A query that excludes the ConfigMap which Kubernetes creates in each namespace.
const OWN: &str = "fieldSelector=metadata.name!=kube-root-ca.crt";

/// Returns the path of the ConfigMaps with a label selector and further parameters.
fn of(selector: &str, query: &str) -> String {
    format!("{CONFIG_MAPS}?labelSelector={selector}&{OWN}{query}")
}

const A: &str = "tributary.dev/cluster%3Da";

#[tokio::test]
async fn every_label_selector_operator_selects_clusters() {
    let fixture = Fixture::start(["a", "b", "c"]).await;
    for member in ["a", "b", "c"] {
        let mut object = config_map(&format!("x-{member}"), "");
        object["metadata"]["labels"] = json!({"app": if member == "b" { "other" } else { "web" }});
        fixture.member(member).apply(object).unwrap();
    }
    // This list waits for all clusters. A list of a single cluster would not wait for the others, so its version could
    // lack a cluster in an unknown state.
    fixture.get(&of("tributary.dev/cluster", "")).await.ok();
    let cases = [
        (A, "a"),
        ("tributary.dev/cluster%3D%3Da", "a"),
        ("tributary.dev/cluster!%3Da", "b c"),
        ("tributary.dev/cluster+in+(a,c,nowhere)", "a c"),
        ("tributary.dev/cluster+notin+(a,c)", "b"),
        ("tributary.dev/cluster", "a b c"),
        ("!tributary.dev/cluster", ""),
        ("tributary.dev/cluster%3Dnowhere", ""),
        ("tributary.dev/cluster+in+(a,b),app%3Dweb", "a"),
        ("tributary.dev/cluster+in+(a,b),tributary.dev/cluster!%3Da", "b"),
    ];
    for (selector, expected) in cases {
        let list = fixture.get(&of(selector, "")).await.ok();
        let listed: Vec<_> = items(&list);
        let expected: Vec<_> = expected.split_whitespace().map(|cluster| format!("{cluster}/x-{cluster}")).collect();
        assert_eq!(listed, expected, "{selector}");
        assert_eq!(vector(&version(&list)).as_object().unwrap().len(), 3, "a version is of all clusters: {selector}");
        let mut events = fixture.watch(&of(selector, "&watch=1")).await;
        for object in &expected {
            assert_eq!(events.brief().await, format!("ADDED {object}"), "{selector}");
        }
        events.nothing().await;
    }
    let message = fixture.get(&of("tributary.dev/cluster%3E1", "")).await.refused(400);
    assert!(message.contains("clusters have no order"), "{message}");
}

#[tokio::test]
async fn pages_and_events_are_limited_to_the_selected_clusters() {
    let fixture = Fixture::start(["a", "b"]).await;
    for number in 0..5 {
        fixture.put("a", &format!("a{number}"), "");
        fixture.put("b", &format!("b{number}"), "");
    }
    let mut path = of("tributary.dev/cluster%3Db", "&limit=2");
    let first = fixture.get(&path).await.ok();
    let mut shown = items(&first);
    let mut page = first.clone();
    while let Some(token) = page["metadata"]["continue"].as_str() {
        assert_eq!(page["metadata"]["remainingItemCount"], json!(null), "a count beside a selector");
        path = of("tributary.dev/cluster%3Db", &format!("&limit=2&continue={token}"));
        page = fixture.get(&path).await.ok();
        assert_eq!(version(&page), version(&first));
        shown.extend(items(&page));
    }
    assert_eq!(shown, ["b/b0", "b/b1", "b/b2", "b/b3", "b/b4"]);
    let from = version(&first);
    let mut events = fixture.watch(&of("tributary.dev/cluster%3Db", &format!("&watch=1&resourceVersion={from}"))).await;
    fixture.put_and_see("a", "new-a", "").await;
    fixture.put("b", "new-b", "");
    let event = events.soon().await;
    assert_eq!(brief(&event), "ADDED b/new-b");
    // A client resumes from this event with a different selector. The event's version may or may not cover the earlier
    // event of `a`, so the watch may first send that event.
    let resumed = version(&event["object"]);
    let mut all = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={resumed}")).await;
    fixture.put("a", "newer-a", "");
    let mut told = all.brief().await;
    if told == "ADDED a/new-a" {
        told = all.brief().await;
    }
    assert_eq!(told, "ADDED a/newer-a");
}

#[tokio::test]
async fn selected_list_does_not_wait_for_other_clusters() {
    let deny = Policies {
        default: ResourcePolicy { partial: Partial::Deny, ..ResourcePolicy::default() },
        ..Policies::default()
    };
    let fixture = Fixture::with(["a", "b"].map(config), deny).await;
    fixture.put("a", "x", "");
    fixture.member("b").control().stop_listening().await;
    let list = tokio::time::timeout(SOON, fixture.get(&of(A, ""))).await.expect("it waits for the other cluster");
    assert_eq!((items(&list.ok()), list.warnings()), (vec!["a/x".to_owned()], vec![]));
    let mut events = tokio::time::timeout(SOON, fixture.watch(&of(A, "&watch=1"))).await.expect("it waits");
    assert_eq!(events.brief().await, "ADDED a/x");
    // With partial responses, the list of `b` succeeds with a Warning, because the state of `b` is unknown.
    fixture.router.set_policies(allow());
    let other = fixture.get(&of("tributary.dev/cluster%3Db", "")).await;
    assert!(other.warnings()[0].contains("cluster b: configmaps are missing"), "{:?}", other.warnings());
}

#[tokio::test]
async fn selected_watch_continues_after_another_cluster_is_restored() {
    let fixture = Fixture::start(["a", "b"]).await;
    for number in 0..3 {
        fixture.put_and_see("a", &format!("a{number}"), "").await;
        fixture.put_and_see("b", &format!("b{number}"), "").await;
    }
    let list = fixture.get(&of(A, "&limit=2")).await.ok();
    let (from, token) = (version(&list), list["metadata"]["continue"].as_str().unwrap().to_owned());
    let known = vector(&from)["b"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(fixture.member("b").control().restore(known - 2));
    until(|| async {
        let now = fixture.get(CONFIG_MAPS).await.ok();
        vector(&version(&now))["b"].as_str().unwrap().parse::<u64>().unwrap() < known
    })
    .await;
    let mut all = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(all.soon().await["object"]["code"], 410);
    fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={from}&resourceVersionMatch=Exact")).await.refused(410);

    let exact = fixture.get(&of(A, &format!("&resourceVersion={from}&resourceVersionMatch=Exact"))).await.ok();
    assert_eq!((items(&exact).len(), version(&exact)), (3, from.clone()));
    let rest = fixture.get(&of(A, &format!("&limit=2&continue={token}"))).await.ok();
    assert_eq!((items(&rest), version(&rest)), (vec!["a/a2".to_owned()], from.clone()));
    let newer = fixture.get(&of(A, &format!("&resourceVersion={from}&resourceVersionMatch=NotOlderThan"))).await.ok();
    assert_eq!(vector(&version(&newer))["b"], vector(&from)["b"], "a version does not go back");
    let mut events = fixture.watch(&of(A, &format!("&watch=1&resourceVersion={from}"))).await;
    events.nothing().await;
    fixture.put("a", "later", "");
    let event = events.soon().await;
    assert_eq!(brief(&event), "ADDED a/later");
    assert_eq!(vector(&version(&event["object"]))["b"], vector(&from)["b"], "a version does not go back");
}

#[tokio::test]
async fn cluster_selector_is_not_sent_to_members() {
    let only_pods = Policies { registered: Some(vec!["pods".parse().unwrap()]), ..allow() };
    let fixture = Fixture::with(["a", "b"].map(config), only_pods).await;
    for (member, name) in [("a", "x"), ("b", "y")] {
        let mut object = config_map(name, "");
        object["metadata"]["labels"] = json!({"app": "web"});
        fixture.member(member).apply(object).unwrap();
    }
    let selector = "app%3Dweb,tributary.dev/cluster%3Db";
    let list = fixture.get(&of(selector, "")).await.ok();
    assert_eq!((items(&list), cluster(&list["items"][0])), (vec!["b/y".to_owned()], "b".to_owned()));
    fixture.get(&of("tributary.dev/cluster%3E1", "")).await.refused(400);
    fixture.client().send("DELETE", &format!("{CONFIG_MAPS}?labelSelector={selector}"), &[], "").await.ok();
    fixture.client().send("DELETE", &format!("{CONFIG_MAPS}?labelSelector=a%20in"), &[], "").await.refused(400);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(items(&fixture.get(&of("app%3Dweb", "")).await.ok()), ["a/x"]);
    let asked = fixture.member("b").control().request_log();
    assert!(asked.iter().any(|line| line.contains("labelSelector=app")), "{asked:?}");
    for member in &fixture.members {
        let log = member.control().request_log();
        assert!(!log.iter().any(|line| line.contains("tributary.dev")), "{log:?}");
    }
}

#[tokio::test]
async fn selector_with_an_unknown_cluster_gets_a_warning() {
    let fixture = Fixture::start(["a", "b"]).await;
    let text = "the label selector names clusters that do not exist: euu; the clusters are: a, b";
    let live = "/apis/metrics.k8s.io/v1beta1/pods?labelSelector=tributary.dev/cluster%3Deuu".to_owned();
    for (method, path) in [
        ("GET", of("tributary.dev/cluster%3Deuu", "")),
        ("GET", of("tributary.dev/cluster+in+(a,euu)", "")),
        ("GET", of("tributary.dev/cluster!%3Deuu", "&limit=1")),
        ("GET", format!("/api/v1/namespaces/default/configmaps?labelSelector=tributary.dev/cluster%3Deuu&{OWN}")),
        ("GET", of("tributary.dev/cluster%3Deuu", "&watch=1&timeoutSeconds=1")),
        ("DELETE", "/api/v1/namespaces/default/configmaps?labelSelector=tributary.dev/cluster%3Deuu".to_owned()),
        ("GET", live),
    ] {
        let answer = fixture.client().send(method, &path, &[], "").await;
        if answer.code == 404 {
            continue;
        }
        assert_eq!((answer.code, answer.warnings()), (200, vec![format!("299 - \"{text}\"")]), "{method} {path}");
    }
    for selector in [A, "tributary.dev/cluster", "app%3Deuu", "tributary.dev/cluster+notin+(a,b)"] {
        assert!(fixture.get(&of(selector, "")).await.warnings().is_empty(), "{selector}");
    }
}
