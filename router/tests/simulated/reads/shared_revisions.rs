//! Tests of several deletions at one revision, as when Events with a shared lease expire.

use serde_json::{Value, json};
use tributary_simulator::{Control, RequestKind};

use crate::harness::{CONFIG_MAPS, Events, Fixture, allow, at_once, brief, composite, items, until, vector, version};
use crate::reads::namespaces::forbid;

const EVENTS: &str = "/api/v1/namespaces/default/events";

/// A query that excludes the ConfigMap which Kubernetes creates in each namespace.
const OWN: &str = "fieldSelector=metadata.name!=kube-root-ca.crt";

fn event(name: &str) -> Value {
    json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"}, "reason": "Test",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}})
}

/// Opens a watch of the ConfigMaps from the version of a new list. Returns the watch and this version.
async fn watch_from_now(fixture: &Fixture) -> (Events, String) {
    let list = fixture.get(CONFIG_MAPS).await.ok();
    (resume(fixture, &version(&list)).await, version(&list))
}

async fn resume(fixture: &Fixture, version: &str) -> Events {
    fixture.watch(&format!("{CONFIG_MAPS}?watch=1&{OWN}&resourceVersion={version}")).await
}

/// Cuts all streams of the member, and limits each later stream to this number of bytes. Returns when the router has
/// opened its watches again.
async fn cut_each_after(control: &Control, bytes: u64) {
    let before = control.requests_of(RequestKind::Watch, "configmaps");
    let open = control.open_watches();
    control.cut_streams_after(Some(bytes));
    control.cut_streams();
    let is_back = || control.requests_of(RequestKind::Watch, "configmaps") > before && control.open_watches() >= open;
    until(|| async { is_back() }).await;
}

#[tokio::test]
async fn watch_receives_all_deletions_of_one_revision() {
    let fixture = Fixture::start(["a", "b"]).await;
    let names: Vec<_> = (10..30).map(|number| format!("e{number}")).collect();
    for name in &names {
        fixture.member("a").apply(event(name)).unwrap();
    }
    until(|| async { items(&fixture.get(EVENTS).await.ok()).len() == names.len() }).await;
    let list = fixture.get(EVENTS).await.ok();
    let mut events = fixture.watch(&format!("{EVENTS}?watch=1&resourceVersion={}", version(&list))).await;
    let chosen: Vec<_> = names.iter().map(|name| ("default", name.as_str())).collect();
    let revision = fixture.member("a").expire("events", &chosen).unwrap();
    let mut count = 0;
    for name in &names {
        let told = events.soon().await;
        assert_eq!(brief(&told), format!("DELETED a/{name}"));
        let vector = crate::harness::vector(&version(&told["object"]));
        count += 1;
        assert_eq!(vector["a"], format!("{revision}-{count}"), "nobody knows whether this was all");
    }
    assert!(items(&fixture.get(EVENTS).await.ok()).is_empty());
    fixture.member("a").apply(event("later")).unwrap();
    let told = events.soon().await;
    assert_eq!(brief(&told), "ADDED a/later");
    let vector = crate::harness::vector(&version(&told["object"]));
    assert_eq!(vector["a"], (revision + 1).to_string());
}

#[tokio::test]
async fn stream_cut_between_two_deletions_loses_none() {
    let fixture = Fixture::start(["a"]).await;
    for name in ["x1", "x2", "x3"] {
        fixture.put_and_see("a", name, "").await;
    }
    let (mut events, _) = watch_from_now(&fixture).await;
    let member = fixture.member("a");
    let frame = member.get("configmaps", "default", "x1").unwrap().to_string().len() as u64;
    // The watch receives the complete first event, and a part of the second.
    cut_each_after(member.control(), frame + frame / 2).await;
    member.expire("configmaps", &[("default", "x1"), ("default", "x2"), ("default", "x3")]).unwrap();
    assert_eq!(events.brief().await, "DELETED a/x1");
    member.control().cut_streams_after(None);
    assert_eq!(events.brief().await, "DELETED a/x2");
    assert_eq!(events.brief().await, "DELETED a/x3");
    events.nothing().await;
    assert_eq!(fixture.config_maps_of_members().len(), items(&fixture.get(CONFIG_MAPS).await.ok()).len());
}

#[tokio::test]
async fn watch_resumes_at_any_replica_after_a_cut_between_two_deletions() {
    let fixture = Fixture::start(["a", "b"]).await;
    let other = fixture.restarted(allow()).await;
    for name in ["x1", "x2"] {
        fixture.put_and_see("a", name, "").await;
    }
    other.get(CONFIG_MAPS).await.ok();
    let (mut events, _) = watch_from_now(&fixture).await;
    let revision = fixture.member("a").expire("configmaps", &[("default", "x1"), ("default", "x2")]).unwrap();
    let first = events.soon().await;
    assert_eq!(brief(&first), "DELETED a/x1");
    drop(events);
    let cut = version(&first["object"]);
    for replica in [&fixture, &other] {
        until(|| async { !items(&replica.get(CONFIG_MAPS).await.ok()).iter().any(|item| item.contains("/x")) }).await;
        let mut told = Vec::new();
        let mut events = resume(replica, &cut).await;
        while told.last().map(String::as_str) != Some("DELETED a/x2") {
            told.push(events.brief().await);
            assert!(told.len() < 5, "{told:?}");
        }
    }
    // The late replica knows this revision only from a list, so it may lack the second deletion. A watch from the
    // middle of the revision must get 410.
    let late = fixture.restarted(allow()).await;
    let list = late.get(CONFIG_MAPS).await.ok();
    assert_eq!(crate::harness::vector(&version(&list))["a"], revision.to_string());
    assert_eq!(resume(&late, &cut).await.soon().await["object"]["code"], 410);
}

/// A revision contains deletions in two namespaces, and one namespace has its own view. The client's version is in the
/// middle of this revision, after the deletion in the other namespace. The watch must still send the deletion in the
/// client's namespace.
#[tokio::test]
async fn version_from_another_namespaces_deletion_skips_no_deletion() {
    let fixture = Fixture::start(["a", "b"]).await;
    forbid(&fixture, "b", &["configmaps"]);
    let (a, list) = (fixture.member("a"), format!("{CONFIG_MAPS}?{OWN}"));
    a.apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "aaa"}})).unwrap();
    let elsewhere = |name: &str| json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "namespace": "aaa"}, "data": {"k": "v"}});
    for name in ["m1", "m2"] {
        a.apply(elsewhere(name)).unwrap();
    }
    fixture.put("a", "z", "");
    let other = fixture.restarted(allow()).await;
    for replica in [&fixture, &other] {
        until(|| async { items(&replica.get(&list).await.ok()) == ["a/z"] }).await;
    }
    let frame = a.get("configmaps", "aaa", "m1").unwrap().to_string().len() as u64;
    cut_each_after(a.control(), frame + frame / 2).await;
    let revision = a.expire("configmaps", &[("aaa", "m1"), ("aaa", "m2"), ("default", "z")]).unwrap();
    let first = composite(&json!({ "a": format!("{revision}-1") }));
    let query = format!("{list}&resourceVersionMatch=NotOlderThan&resourceVersion={first}");
    until(|| async { fixture.get(&query).await.code == 200 }).await;
    let listed = fixture.get(&query).await.ok();
    assert_eq!(
        (items(&listed), &vector(&version(&listed))["a"]),
        (vec!["a/z".to_owned()], &json!(format!("{revision}-1")))
    );
    a.control().cut_streams_after(None);
    for replica in [&other, &fixture] {
        until(|| async { items(&replica.get(&list).await.ok()).is_empty() }).await;
        assert_eq!(resume(replica, &version(&listed)).await.brief().await, "DELETED a/z");
    }
}

/// Without bookmarks, the router cannot know whether the collection has reached a version. So for a client with a later
/// version, it relists the collection.
#[tokio::test]
async fn watch_from_a_newer_version_opens_in_a_collection_without_bookmarks() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.member("b").apply(event("e")).unwrap();
    fixture.get(EVENTS).await.ok();
    fixture.put("a", "elsewhere", "");
    let late = fixture.restarted(allow()).await;
    let list = late.get(EVENTS).await.ok();
    let ahead = crate::harness::vector(&version(&list))["a"].clone();
    let behind = fixture.get(&format!("{EVENTS}?resourceVersion=0")).await.ok();
    assert_ne!(crate::harness::vector(&version(&behind))["a"], ahead);
    let mut events = fixture.watch(&format!("{EVENTS}?watch=1&resourceVersion={}", version(&list))).await;
    fixture.member("b").delete("events", "default", "e").unwrap();
    assert_eq!(events.brief().await, "DELETED b/e", "a deletion waits until all clusters are where the client is");
}

/// The client's version covers two deletions of `b`, and this process has received only the first. The second may be of
/// an object with the name `x`. So the process sends the deletion of `a/x` only after it has received the second.
#[tokio::test]
async fn deletion_waits_until_the_other_cluster_has_sent_its_whole_revision() {
    let fixture = Fixture::start(["a", "b"]).await;
    for (cluster, name) in [("a", "x"), ("a", "y"), ("b", "w"), ("b", "x"), ("b", "y"), ("b", "z")] {
        fixture.put_and_see(cluster, name, "").await;
    }
    let (a, b) = (fixture.member("a"), fixture.member("b"));
    let at = vector(&version(&fixture.get(CONFIG_MAPS).await.ok()))["a"].clone();
    let frame = b.get("configmaps", "default", "w").unwrap().to_string().len() as u64;
    cut_each_after(b.control(), frame + frame / 2).await;
    let revision = b.expire("configmaps", &[("default", "w"), ("default", "x")]).unwrap();
    until(|| async { vector(&version(&fixture.get(CONFIG_MAPS).await.ok()))["b"] == format!("{revision}-1") }).await;
    let mut events = resume(&fixture, &composite(&json!({"a": at, "b": revision.to_string()}))).await;
    a.delete("configmaps", "default", "x").unwrap();
    events.nothing().await;
    b.control().cut_streams_after(None);
    assert_eq!(events.brief().await, "DELETED a/x");
    events.nothing().await;
    // No other change has this revision, but the router cannot know that from the event.
    let revision = b.expire("configmaps", &[("default", "z")]).unwrap();
    until(|| async { vector(&version(&fixture.get(CONFIG_MAPS).await.ok()))["b"] == format!("{revision}-1") }).await;
    let at = vector(&version(&fixture.get(CONFIG_MAPS).await.ok()))["a"].clone();
    let mut events = resume(&fixture, &composite(&json!({"a": at, "b": revision.to_string()}))).await;
    a.delete("configmaps", "default", "y").unwrap();
    assert_eq!([events.brief().await, events.brief().await], ["DELETED a/y", "ADDED b/y"]);
}

#[tokio::test]
async fn single_deletion_is_not_sent_again_after_a_resume() {
    let fixture = Fixture::start(["a", "b"]).await;
    for name in ["x", "y"] {
        fixture.put_and_see("a", name, "").await;
    }
    let (mut events, _) = watch_from_now(&fixture).await;
    fixture.member("a").delete("configmaps", "default", "x").unwrap();
    let deleted = events.soon().await;
    assert_eq!(brief(&deleted), "DELETED a/x");
    resume(&fixture, &version(&deleted["object"])).await.nothing().await;
    let (mut listed, _) = watch_from_now(&fixture).await;
    listed.nothing().await;
    // A get does not wait for the end of the revision.
    let written = fixture.write("DELETE", &format!("{CONFIG_MAPS}/y"), &Value::Null).await;
    assert_eq!(written.code, 200, "{written:?}");
    assert_eq!(at_once(fixture.get(&format!("{CONFIG_MAPS}/y"))).await.code, 404);
    for events in [&mut events, &mut listed] {
        assert_eq!(events.brief().await, "DELETED a/y");
    }
}
