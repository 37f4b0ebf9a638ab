//! Tests of `itemResourceVersions: Integer`: the resourceVersion of each object is an integer, which contains the
//! object's revision and the cluster's index. Clients can use the integer everywhere in place of a composite version.
//!
//! Member `a` has index 0 and `b` has index 1. So an object of `b` at revision 7 has the resourceVersion `70001`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use tributary_apimachinery::{GroupVersionResource, ItemResourceVersions};
use tributary_router::limits::NAMESPACE_UNUSED_AFTER;
use tributary_router::{Limits, Policies, ResourcePolicy, Router, RouterConfig};

use tributary_simulator::{Rejection, RequestKind, SimulatorConfig};

use crate::harness::{
    ANNOTATION, CONFIG_MAPS, Events, Fixture, SOON, allow, brief, cluster, composite, config, config_map,
    config_map_in, items, name, pass, setup, until, vector, version,
};
use crate::reads::namespaces::forbid;

/// A query that excludes objects which the members create themselves.
const OWN: &str = "fieldSelector=metadata.name!=kube-root-ca.crt";

fn policies() -> Policies {
    let Policies { default, .. } = allow();
    Policies {
        default: ResourcePolicy { item_resource_versions: ItemResourceVersions::Integer, ..default },
        ..Policies::default()
    }
}

async fn start() -> Fixture {
    Fixture::with(["a", "b"].map(config), policies()).await
}

fn integer(member: &str, revision: u64) -> String {
    (revision * 10_000 + if member == "a" { 0 } else { 1 }).to_string()
}

/// Returns the events before the next bookmark, and the bookmark's decoded composite version.
async fn up_to_bookmark(events: &mut Events) -> (Vec<Value>, Value) {
    let mut before = Vec::new();
    loop {
        let event = events.soon().await;
        if event["type"] == "BOOKMARK" {
            return (before, vector(&version(&event["object"])));
        }
        before.push(event);
    }
}

#[tokio::test]
async fn object_has_one_integer_version_in_all_responses() {
    let fixture = start().await;
    let list = fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok();
    assert_eq!(vector(&version(&list)).as_object().unwrap().len(), 2, "a list stays composite");
    let path = format!("{CONFIG_MAPS}?watch=1&{OWN}&resourceVersion={}", version(&list));
    let mut events = fixture.watch(&path).await;
    let created = fixture.write("POST", CONFIG_MAPS, &config_map_in("b", "x", "1")).await.ok();
    let revision = version(&fixture.member("b").get("configmaps", "default", "x").unwrap()).parse().unwrap();
    assert_eq!(version(&created), integer("b", revision));
    let x = format!("{CONFIG_MAPS}/x");
    let seen = |list: &Value| version(&list["items"][0]);
    assert_eq!(version(&events.soon().await["object"]), version(&created));
    assert_eq!(version(&fixture.get(&x).await.ok()), version(&created));
    assert_eq!(seen(&fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok()), version(&created));
    let table = [("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")];
    let table = fixture.client().send("GET", &format!("{CONFIG_MAPS}?{OWN}"), &table, "").await.ok();
    assert_eq!(version(&table["rows"][0]["object"]), version(&created));
    let mut initial = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&{OWN}&resourceVersion=0")).await;
    assert_eq!(version(&initial.soon().await["object"]), version(&created), "the last initial event, too");
    let mut object = created.clone();
    object["data"]["v"] = "2".into();
    let updated = fixture.write("PUT", &x, &object).await.ok();
    let patched = fixture.patch(&x, "merge-patch+json", &json!({"data": {"v": "3"}})).await.ok();
    for written in [updated, patched] {
        let event = events.soon().await;
        assert_eq!((brief(&event).as_str(), version(&event["object"])), ("MODIFIED b/x", version(&written)));
    }
    fixture.client().send("DELETE", &x, &[], "").await.ok();
    let deleted = events.soon().await;
    let deletion: u64 = version(&deleted["object"]).parse().unwrap();
    assert_eq!((brief(&deleted).as_str(), deletion % 10_000), ("DELETED b/x", 1));
    assert!(deletion > version(&created).parse().unwrap(), "a DELETED carries the deletion's version");
}

#[tokio::test]
async fn subresources_and_uncached_objects_have_integer_versions() {
    let fixture = start().await;
    let deployment = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let revision = fixture.member("b").apply(deployment).unwrap();
    let path = "/apis/apps/v1/namespaces/default/deployments/web/scale";
    let mut scale = fixture.get(path).await.ok();
    assert_eq!(version(&scale), integer("b", revision));
    scale["spec"]["replicas"] = 0.into();
    fixture.write("PUT", path, &scale).await.ok();
    fixture.write("PUT", path, &scale).await.refused(409);
    let unregistered = Policies { registered: Some(vec!["pods".parse().unwrap()]), ..policies() };
    fixture.router.set_policies(unregistered);
    fixture.put("b", "x", "");
    let list = fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok();
    let item = version(&list["items"][0]);
    assert_eq!(item, version(&fixture.get(&format!("{CONFIG_MAPS}/x")).await.ok()));
    assert_eq!(item.parse::<u64>().unwrap() % 10_000, 1);
}

#[tokio::test]
async fn read_at_an_integer_version_waits_only_for_the_versions_cluster() {
    let fixture = start().await;
    fixture.get(CONFIG_MAPS).await.ok();
    for round in 0..20 {
        // The write does not pass the router, so the router may have to wait for the event of this write.
        let number = integer("b", fixture.put("b", "x", &round.to_string()));
        let path = if round % 2 == 0 {
            format!("{CONFIG_MAPS}/x?resourceVersion={number}")
        } else {
            format!("{CONFIG_MAPS}?{OWN}&resourceVersion={number}")
        };
        let answer = fixture.get(&path).await.ok();
        let object = if round % 2 == 0 { &answer } else { &answer["items"][0] };
        assert_eq!((&object["data"]["v"], version(object)), (&json!(round.to_string()), number), "{path}");
    }
    fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={}", integer("b", 1 << 40))).await.refused(410);
    fixture.get(&format!("{CONFIG_MAPS}/x?resourceVersion={}", integer("b", 1 << 40))).await.refused(504);
    for foreign in ["70009", "5"] {
        let message = fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={foreign}")).await.refused(410);
        assert!(message.contains("no configured cluster"), "{message}");
        fixture.get(&format!("{CONFIG_MAPS}/x?resourceVersion={foreign}")).await.refused(400);
        let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={foreign}")).await;
        assert_eq!(events.soon().await["object"]["code"], 410);
        assert!(events.next().await.is_none());
    }
}

#[tokio::test]
async fn exact_list_at_an_integer_version_shows_its_clusters_past_state() {
    let fixture = start().await;
    fixture.get(CONFIG_MAPS).await.ok();
    let old = fixture.put_and_see("a", "x", "old").await;
    fixture.put_and_see("a", "x", "new").await;
    fixture.put_and_see("b", "y", "").await;
    for query in ["resourceVersionMatch=Exact", "limit=500"] {
        let path = format!("{CONFIG_MAPS}?{OWN}&resourceVersion={}&{query}", integer("a", old));
        let list = fixture.get(&path).await.ok();
        assert_eq!(
            (&list["items"][0]["data"]["v"], name(&list["items"][1])),
            (&json!("old"), "y".to_owned()),
            "{query}"
        );
        assert_eq!(vector(&version(&list))["a"], old.to_string());
    }
}

#[tokio::test]
async fn watch_resumes_from_the_integer_version_of_any_event() {
    let fixture = start().await;
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&list))).await;
    fixture.resumes_after_each(&mut events).await;
    // The router has not received this event, so the watch must wait for it.
    let revision = fixture.put("b", "x7", "");
    let mut resumed = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", integer("b", revision))).await;
    fixture.put("a", "x8", "");
    assert_eq!(resumed.brief().await, "ADDED a/x8");
}

#[tokio::test]
async fn watch_from_an_unknown_integer_version_gets_a_410() {
    let fixture = start().await;
    // This write is older than the router's log, so no watch can resume from its integer.
    let early = fixture.put("a", "x", "");
    fixture.get(CONFIG_MAPS).await.ok();
    for from in [integer("a", early), integer("a", 1 << 40)] {
        let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
        let error = events.soon().await;
        assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)), "{error}");
        assert!(events.next().await.is_none());
    }
    // A watch with initial events can begin at any version, so it needs no event with this integer.
    let path = format!(
        "{CONFIG_MAPS}?watch=1&{OWN}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion={}",
        integer("a", early)
    );
    assert_eq!(fixture.watch(&path).await.brief().await, "ADDED a/x");
}

#[tokio::test]
async fn watch_from_the_integer_version_of_a_deletion_found_by_relist_gets_410() {
    let fixture = start().await;
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let path = format!("{CONFIG_MAPS}?watch=1&{OWN}&resourceVersion={}", version(&list));
    let mut events = fixture.watch(&path).await;
    let added = fixture.put("a", "x", "");
    assert_eq!(events.brief().await, "ADDED a/x");
    let other = fixture.put("b", "y", "");
    assert_eq!(events.brief().await, "ADDED b/y");
    let control = fixture.member("a").control();
    control.stop_listening().await;
    fixture.member("a").delete("configmaps", "default", "x");
    control.compact();
    control.start_listening().await;
    let deleted = events.soon().await;
    assert_eq!(brief(&deleted), "DELETED a/x");
    // A DELETED event has the version before the relist, which does not cover other changes that the relist discovered.
    assert_eq!(version(&deleted["object"]), integer("a", added));
    // The ADDED event of `x` had the same integer, and the stream sent `y` of `b` only later. So a client with this
    // integer may lack `y`, and the router must refuse the integer.
    let from = |version: &str| format!("{CONFIG_MAPS}?watch=1&{OWN}&resourceVersion={version}");
    let error = fixture.watch(&from(&version(&deleted["object"]))).await.soon().await;
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)), "{error}");
    assert_eq!(fixture.watch(&from(&integer("b", other))).await.brief().await, "DELETED a/x");
}

#[tokio::test]
async fn integer_version_resumes_at_another_process_only_with_one_cluster() {
    let fixture = start().await;
    let other = Router::new(RouterConfig { policies: policies(), ..RouterConfig::default() });
    let fixture = Fixture { router: Arc::clone(&other), ..fixture };
    // After a change of the clusters, the router refuses integers, because the client may have missed the removal of a
    // cluster.
    for (clusters, expected) in [(&["a"][..], "ADDED"), (&["a", "b"], "ERROR"), (&["a"], "ERROR")] {
        fixture.set_clusters(clusters).await;
        other.asked_once(SOON).await;
        until(|| async {
            let list = fixture.get(CONFIG_MAPS).await.ok();
            vector(&version(&list)).as_object().unwrap().len() == clusters.len()
        })
        .await;
        let revision = fixture.put_and_see("a", "x", "").await;
        fixture.put_and_see("a", "y", "").await;
        let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", integer("a", revision));
        let event = fixture.watch(&path).await.soon().await;
        assert_eq!(event["type"], expected, "{event}");
    }
}

#[tokio::test]
async fn bookmark_follows_each_burst_of_events_with_integer_versions() {
    let fixture = start().await;
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let query = format!("watch=1&{OWN}&resourceVersion={}", version(&list));
    let mut taken = fixture.watch(&format!("{CONFIG_MAPS}?{query}&allowWatchBookmarks=true")).await;
    let mut refused = fixture.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    let mut last = Value::Null;
    for round in 0..3 {
        for number in 0..4 {
            let revision = fixture.put("a", &format!("x{round}{number}"), "");
            fixture.put("b", &format!("y{round}{number}"), "");
            last = revision.to_string().into();
        }
        let mut told = 0;
        let vector = loop {
            let (before, vector) = up_to_bookmark(&mut taken).await;
            told += before.len();
            if told == 8 {
                break vector;
            }
        };
        assert_eq!(vector["a"], last);
        taken.nothing().await;
    }
    for _ in 0..24 {
        assert_eq!(refused.soon().await["type"], "ADDED");
    }
    refused.nothing().await;
    // The bookmark's composite version covers this event.
    let revision = fixture.put("b", "z", "");
    let (events, vector) = up_to_bookmark(&mut taken).await;
    assert_eq!(events.iter().map(brief).collect::<Vec<_>>(), ["ADDED b/z"]);
    assert_eq!(vector["b"], revision.to_string());
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", composite(&vector));
    fixture.watch(&path).await.nothing().await;
}

#[tokio::test]
async fn bookmark_follows_a_repeated_object_immediately() {
    let fixture = start().await;
    let old = fixture.put_and_see("b", "x", "").await;
    fixture.put_and_see("a", "x", "").await;
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let query = format!("watch=1&{OWN}&allowWatchBookmarks=true&resourceVersion={}", version(&list));
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    let deleted = fixture.member("a").delete("configmaps", "default", "x").unwrap();
    assert_eq!(events.brief().await, "DELETED a/x");
    let again = events.soon().await;
    assert_eq!(brief(&again), "ADDED b/x");
    assert_eq!(version(&again["object"]), integer("b", old), "the object is the one that it was");
    // The object was sent again, so a bookmark follows immediately, before this next event.
    let added = fixture.put("b", "y", "");
    let (between, vector) = up_to_bookmark(&mut events).await;
    assert!(between.is_empty(), "{between:?}");
    assert_eq!(vector["a"], format!("{deleted}-1"));
    let (news, vector) = up_to_bookmark(&mut events).await;
    assert_eq!(news.iter().map(brief).collect::<Vec<_>>(), ["ADDED b/y"]);
    assert_eq!(vector["b"], added.to_string());
    events.nothing().await;
}

#[tokio::test]
async fn watch_with_composite_versions_gets_no_extra_bookmarks() {
    let fixture = Fixture::start(["a", "b"]).await;
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let query = format!("watch=1&allowWatchBookmarks=true&resourceVersion={}", version(&list));
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    fixture.put("a", "x", "");
    assert_eq!(events.brief().await, "ADDED a/x");
    if let Ok(event) = tokio::time::timeout(Duration::from_millis(500), events.next()).await {
        panic!("{event:?}");
    }
}

#[tokio::test]
async fn preconditions_of_every_kind_accept_integer_versions() {
    let fixture = start().await;
    let x = format!("{CONFIG_MAPS}/x");
    let options = |version: &str| json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": version}});
    let patch = |version: &str| {
        json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"w": version},
            "metadata": {"name": "x", "namespace": "default", "resourceVersion": version, "annotations": {ANNOTATION: "a"}}})
    };
    let test = |version: &str| {
        json!([{"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/data/w", "value": version}])
    };
    let send = async |how: &str, version: &str| match how {
        "PUT" => fixture.write("PUT", &x, &patch(version)).await,
        "body" => fixture.write("DELETE", &x, &options(version)).await,
        "query" => fixture.client().send("DELETE", &format!("{x}?resourceVersion={version}"), &[], "").await,
        "json-patch+json" => fixture.patch(&x, how, &test(version)).await,
        kind => fixture.patch(&format!("{x}?fieldManager=t"), kind, &patch(version)).await,
    };
    for how in [
        "PUT",
        "merge-patch+json",
        "strategic-merge-patch+json",
        "apply-patch+yaml",
        "json-patch+json",
        "body",
        "query",
    ] {
        let stale = fixture.put("a", "x", "1");
        fixture.put("b", "other", "");
        let fresh = fixture.put_and_see("a", "x", "2").await;
        let item = version(&fixture.get(&x).await.ok());
        assert_eq!(item, integer("a", fresh));
        for refused in [integer("b", fresh), fresh.to_string(), format!("{fresh}0009"), "garbage".to_owned()] {
            send(how, &refused).await.refused(409);
        }
        // The member itself refuses an outdated version: with 422 if a `test` operation of a JSON patch fails, or else
        // with 409.
        let code = if how == "json-patch+json" { 422 } else { 409 };
        send(how, &integer("a", stale)).await.refused(code);
        send(how, &composite(&json!({"a": stale.to_string()}))).await.refused(code);
        send(how, &item).await.ok();
    }
    // Memory may be older than the integer, for example if it is from a different process.
    for round in 0..20 {
        let fresh = fixture.put("a", "x", &round.to_string());
        send("PUT", &integer("a", fresh)).await.ok();
    }
}

#[tokio::test]
async fn event_object_reference_gets_the_members_version() {
    let fixture = start().await;
    let revision = fixture.put_and_see("b", "x", "").await;
    let x = fixture.get(&format!("{CONFIG_MAPS}/x")).await.ok();
    let event = |version: &str| {
        json!({"kind": "Event", "apiVersion": "v1", "metadata": {"generateName": "e", "namespace": "default"},
            "involvedObject": {"kind": "ConfigMap", "apiVersion": "v1", "namespace": "default", "name": "x",
                "uid": x["metadata"]["uid"], "resourceVersion": version},
            "reason": "r", "message": "m", "type": "Normal"})
    };
    for (given, expected) in
        [(version(&x), Some(revision.to_string())), (integer("a", revision), None), ("garbage".to_owned(), None)]
    {
        let written = fixture.write("POST", "/api/v1/namespaces/default/events", &event(&given)).await.ok();
        assert_eq!(cluster(&written), "b");
        let stored = fixture.member("b").get("events", "default", &name(&written)).unwrap();
        let kept = stored["involvedObject"]["resourceVersion"].as_str().filter(|kept| !kept.is_empty());
        assert_eq!(kept.map(str::to_owned), expected, "{given}");
    }
}

#[tokio::test]
async fn collection_delete_rejects_an_integer_version_of_another_cluster() {
    let fixture = start().await;
    fixture.put("a", "x", "");
    let revision = fixture.put("b", "y", "");
    let options = json!({"preconditions": {"resourceVersion": integer("b", revision)}});
    let message = fixture.write("DELETE", &format!("{CONFIG_MAPS}?{OWN}"), &options).await.refused(409);
    assert!(message.contains("not in: a: "), "{message}");
    assert!(
        fixture.member("a").get("configmaps", "default", "x").is_some(),
        "another cluster's number deletes nothing"
    );
}

#[tokio::test]
async fn removed_cluster_sends_deletions_with_integer_versions() {
    let fixture = start().await;
    let revision = fixture.put_and_see("b", "x", "").await;
    let list = fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok();
    let path = format!("{CONFIG_MAPS}?watch=1&{OWN}&resourceVersion={}", version(&list));
    let mut events = fixture.watch(&path).await;
    fixture.set_clusters(&["a"]).await;
    let gone = events.soon().await;
    assert_eq!((brief(&gone).as_str(), version(&gone["object"])), ("DELETED b/x", integer("b", 1)));
    // After the removal of a cluster, the router refuses the integer of the DELETED event and the object's own integer.
    // The client must list again, even if the cluster has returned.
    for clusters in [&["a"][..], &["a", "b"]] {
        fixture.set_clusters(clusters).await;
        for revision in [1, revision] {
            let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", integer("b", revision));
            let refused = async || fixture.watch(&path).await.soon().await["object"]["code"] == 410;
            until(refused).await;
        }
    }
}

#[tokio::test]
async fn integer_version_before_a_cluster_removal_resumes_only_at_its_router() {
    let fixture = start().await;
    let other = Router::new(RouterConfig { policies: policies(), ..RouterConfig::default() });
    let several = Fixture { router: Arc::clone(&other), ..start().await };
    for (fixture, expected) in [(&fixture, "DELETED b/x"), (&several, "ERROR /")] {
        fixture.set_clusters(&["a", "b"]).await;
        fixture.router.asked_once(SOON).await;
        fixture.put_and_see("b", "x", "").await;
        let revision = fixture.put_and_see("a", "y", "").await;
        fixture.set_clusters(&["a"]).await;
        fixture.put_and_see("a", "z", "").await;
        let path = format!("{CONFIG_MAPS}?watch=1&{OWN}&resourceVersion={}", integer("a", revision));
        assert_eq!(fixture.watch(&path).await.brief().await, expected);
    }
}

#[tokio::test]
async fn bookmark_is_sent_after_a_restore_although_its_version_repeats() {
    let fixture = start().await;
    fixture.put_and_see("b", "own", "").await;
    let before = fixture.put_and_see("a", "x", "").await;
    fixture.put_and_see("a", "y", "").await;
    let query = "watch=1&fieldSelector=metadata.name=own&resourceVersion=0&allowWatchBookmarks=true";
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    let (_, told) = up_to_bookmark(&mut events).await;
    assert!(fixture.member("a").control().restore(before));
    let before = before.to_string();
    until(|| async { vector(&version(&fixture.get(CONFIG_MAPS).await.ok()))["a"] == before }).await;
    fixture.put("a", "own", "");
    // A bookmark may already be due before the event. The loop skips such bookmarks.
    let (events, again) = loop {
        let told = up_to_bookmark(&mut events).await;
        if !told.0.is_empty() {
            break told;
        }
    };
    assert_eq!((events.len(), again), (1, told), "the event's own number is not enough to go on from");
}

#[tokio::test]
async fn registry_selects_integer_versions_for_its_resources() {
    let default = allow().default;
    let rule = ResourcePolicy { item_resource_versions: ItemResourceVersions::Integer, ..default.clone() };
    let policies =
        Policies { default, rules: vec![(vec!["configmaps".parse().unwrap()], rule)], ..Policies::default() };
    assert!(policies.any_integer());
    let pods = GroupVersionResource::new("", "v1", "pods");
    assert_eq!(policies.policy_for(&pods).item_resource_versions, ItemResourceVersions::Composite);
    let fixture = Fixture::with(["a", "b"].map(config), policies).await;
    let revision = fixture.put_and_see("b", "x", "").await;
    assert_eq!(version(&fixture.get(&format!("{CONFIG_MAPS}/x")).await.ok()), integer("b", revision));
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let revision = fixture.member("b").apply(pod).unwrap();
    let read = fixture.get("/api/v1/namespaces/default/pods/x").await.ok();
    assert_eq!(vector(&version(&read)), json!({"b": revision.to_string()}));
    fixture.get(&format!("/api/v1/pods?resourceVersion={}", integer("b", revision))).await.refused(410);
    // The configuration may change the form of resourceVersions. An open watch keeps its form.
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let mut open = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&list))).await;
    fixture.router.set_policies(allow());
    let mut opened = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&list))).await;
    let revision = fixture.put("b", "y", "");
    assert_eq!(version(&open.soon().await["object"]), integer("b", revision));
    assert_eq!(vector(&version(&opened.soon().await["object"]))["b"], revision.to_string());
}

#[tokio::test]
async fn changed_cluster_index_expires_earlier_integer_versions() {
    let fixture = start().await;
    let revision = fixture.put_and_see("b", "x", "").await;
    let mut setups = Vec::new();
    for (name, index) in [("a", 0), ("b", 5)] {
        let mut setup = setup(fixture.member(name), name).await;
        setup.index = Some(index);
        setups.push(setup);
    }
    fixture.router.set_clusters(setups);
    fixture.router.asked_once(SOON).await;
    until(|| async { version(&fixture.get(&format!("{CONFIG_MAPS}/x")).await.json()) == format!("{revision}0005") })
        .await;
    fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={}", integer("b", revision))).await.refused(410);
}

#[tokio::test]
async fn write_whose_version_exceeds_the_integer_range_is_refused() {
    let high = |name| SimulatorConfig { first_revision: 922_337_203_685_000, ..config(name) };
    let fixture = Fixture::with([config("a"), high("b")], policies()).await;
    fixture.put("b", "there", "1");
    until(|| async { items(&fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok()) == ["b/there"] }).await;
    let created = fixture.write("POST", CONFIG_MAPS, &config_map_in("b", "new", "1")).await;
    assert!(created.refused(400).contains("above 922336203685476 and have no integer form"), "{created:?}");
    assert!(fixture.member("b").get("configmaps", "default", "new").is_none(), "the write was not carried out");
    let there = format!("{CONFIG_MAPS}/there");
    let patched = fixture.patch(&there, "merge-patch+json", &json!({"data": {"v": "2"}})).await;
    assert!(patched.refused(400).contains("/clusters/b/api/v1/namespaces/default/configmaps/there"), "{patched:?}");
    fixture.write("DELETE", &there, &json!({})).await.refused(400);
    let stored = fixture.member("b").get("configmaps", "default", "there").unwrap();
    assert_eq!(stored["data"]["v"], "1");
    fixture.patch(&format!("/clusters/b{there}"), "merge-patch+json", &json!({"data": {"v": "2"}})).await.ok();
    fixture.write("POST", CONFIG_MAPS, &config_map_in("a", "new", "1")).await.ok();
}

/// Opens a watch of the namespace `default` from an integer resourceVersion.
async fn from(fixture: &Fixture, number: &str) -> Events {
    fixture.watch(&format!("{CONFIG_MAPS}?watch=1&{OWN}&resourceVersion={number}")).await
}

/// Returns `true` if a resumed watch ends with 410, and `false` if it sends the object `last`.
async fn is_expired(events: &mut Events, last: &str) -> bool {
    let event = events.soon().await;
    match event["type"].as_str() {
        Some("ERROR") => {
            assert_eq!(event["object"]["code"], 410, "{event}");
            true
        }
        _ => {
            assert_eq!(brief(&event), last);
            false
        }
    }
}

/// The view of one namespace has objects of `b`, and the view of all namespaces does not. If a client with an integer
/// from the first view resumed at the second, it would keep these objects forever.
#[tokio::test]
async fn integer_version_of_a_namespace_view_resumes_only_in_this_view() {
    let fixture = start().await;
    forbid(&fixture, "b", &["configmaps"]);
    fixture.put("a", "x", "");
    fixture.put("b", "y", "");
    let list = || async { fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok() };
    until(|| async { items(&list().await) == ["a/x", "b/y"] }).await;
    let mut events = from(&fixture, &version(&list().await)).await;
    let number = integer("a", fixture.put("a", "z", ""));
    assert_eq!(events.brief().await, "ADDED a/z");
    fixture.put("a", "z2", "");
    assert_eq!(events.brief().await, "ADDED a/z2");
    assert!(!is_expired(&mut from(&fixture, &number).await, "ADDED a/z2").await, "the same view");
    // With 401 in place of 403, the view of all namespaces serves the request, without the objects of `b`.
    fixture.member("b").control().reject(Some(Rejection {
        kinds: vec![RequestKind::List, RequestKind::Watch],
        resources: vec!["configmaps".to_owned()],
        ..Rejection::all(401)
    }));
    pass(Duration::from_secs(60)).await;
    until(|| async { items(&list().await) == ["a/x", "a/z", "a/z2"] }).await;
    assert!(is_expired(&mut from(&fixture, &number).await, "ADDED a/z2").await, "the client has b's y");
    let everywhere = format!("/api/v1/configmaps?watch=1&{OWN}&resourceVersion={number}");
    let mut everywhere = fixture.watch(&everywhere).await;
    assert!(!is_expired(&mut everywhere, "ADDED a/z2").await, "all namespaces have one view");
    // The view of the namespace is gone now. The router still refuses its integers, and accepts integers of later
    // events, which only one view has sent.
    drop(events);
    pass(NAMESPACE_UNUSED_AFTER + Duration::from_secs(20)).await;
    assert!(is_expired(&mut from(&fixture, &number).await, "ADDED a/z2").await, "nor later");
    let number = integer("a", fixture.put_and_see("a", "v", "").await);
    fixture.put("a", "w", "");
    assert!(!is_expired(&mut from(&fixture, &number).await, "ADDED a/w").await, "b may be gone for long");
}

/// The integer is from the view of all namespaces, and the watch would resume at the view of one namespace.
#[tokio::test]
async fn integer_version_of_the_cluster_wide_view_expires_in_a_namespace_view() {
    let fixture = start().await;
    forbid(&fixture, "b", &["configmaps"]);
    fixture.put("b", "y", "");
    let list = || async { fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok() };
    until(|| async { items(&list().await) == ["b/y"] }).await;
    let mut kept = from(&fixture, &version(&list().await)).await;
    fixture.member("b").control().reject(None);
    pass(Duration::from_secs(60)).await;
    until(|| async { fixture.get("/api/v1/configmaps").await.warnings().is_empty() }).await;
    let mut events = from(&fixture, &version(&list().await)).await;
    let number = integer("a", fixture.put("a", "x", ""));
    assert_eq!([events.brief().await, kept.brief().await], ["ADDED a/x", "ADDED a/x"]);
    fixture.put("a", "x2", "");
    assert_eq!([events.brief().await, kept.brief().await], ["ADDED a/x2", "ADDED a/x2"]);
    forbid(&fixture, "b", &["configmaps"]);
    fixture.member("b").control().cut_streams();
    assert!(events.next().await.is_none(), "the namespace's own view goes on with it");
    assert!(is_expired(&mut from(&fixture, &number).await, "ADDED a/x2").await, "another view told it");
    let number = integer("a", fixture.put_and_see("a", "v", "").await);
    fixture.put("a", "w", "");
    assert!(!is_expired(&mut from(&fixture, &number).await, "ADDED a/w").await, "it is the only one again");
}

/// The router has no capacity for a view of this namespace, so the view of all namespaces serves the watch. It may
/// contain objects of `b` that a later view of the namespace lacks.
#[tokio::test]
async fn integer_version_of_a_substitute_view_expires_in_a_namespace_view() {
    let limits = Limits { namespace_views: 1, ..Limits::default() };
    let fixture = Fixture::within(limits, ["a", "b"].map(config), policies()).await;
    let public = "/api/v1/namespaces/kube-public/configmaps?watch=1";
    let mut object = config_map("there", "");
    object["metadata"]["namespace"] = "kube-public".into();
    fixture.member("a").apply(object).unwrap();
    fixture.put("b", "x", "");
    let list = || async { fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok() };
    until(|| async { items(&list().await) == ["b/x"] }).await;
    let of_all = fixture.watch(public).await;
    forbid(&fixture, "b", &["configmaps"]);
    fixture.member("b").control().cut_streams();
    timeout(SOON, of_all.types()).await.expect("it ends where the namespace gets a view of its own");
    let only = fixture.watch(public).await;
    let mut events = from(&fixture, &version(&list().await)).await;
    fixture.member("b").delete("configmaps", "default", "x");
    drop(only);
    until(|| async { items(&list().await) == [""; 0] }).await;
    let _kept = from(&fixture, &version(&list().await)).await;
    let number = integer("a", fixture.put("a", "y", ""));
    assert_eq!(events.brief().await, "ADDED a/y");
    fixture.put("a", "y2", "");
    assert_eq!(events.brief().await, "ADDED a/y2");
    assert!(is_expired(&mut from(&fixture, &number).await, "ADDED a/y2").await, "the client has b's x");
    drop(events);
    assert!(is_expired(&mut from(&fixture, &number).await, "ADDED a/y2").await, "nor later");
    let number = integer("a", fixture.put_and_see("a", "v", "").await);
    fixture.put("a", "w", "");
    assert!(!is_expired(&mut from(&fixture, &number).await, "ADDED a/w").await, "it is the only one again");
}

/// When the router drains, a watch must send no more events. The client resumes at the next process, which may have
/// older objects of other clusters at the same event.
#[tokio::test]
async fn watch_ended_by_a_drain_sends_no_further_events() {
    let fixture = start().await;
    let list = fixture.get(&format!("{CONFIG_MAPS}?{OWN}")).await.ok();
    let query = format!("{CONFIG_MAPS}?watch=1&{OWN}&resourceVersion={}", version(&list));
    let mut without = fixture.watch(&query).await;
    let mut with = fixture.watch(&format!("{query}&allowWatchBookmarks=true")).await;
    let before = fixture.put("a", "x", "");
    assert_eq!([without.brief().await, with.brief().await], ["ADDED a/x", "ADDED a/x"]);
    assert_eq!(with.soon().await["type"], "BOOKMARK");
    without.nothing().await;
    fixture.router.drain();
    fixture.put_and_see("a", "y", "").await;
    assert_eq!(without.next().await, None);
    if let Some(last) = with.next().await {
        assert_eq!(
            (&last["type"], &vector(&version(&last["object"]))["a"]),
            (&json!("BOOKMARK"), &json!(before.to_string()))
        );
        assert_eq!(with.next().await, None);
    }
}

/// The integer names its cluster by an index. Without a cluster of this index, the integer is meaningless.
#[tokio::test]
async fn apply_with_the_integer_version_of_a_removed_cluster_is_refused() {
    let mut policies = policies();
    policies.default = ResourcePolicy { placement: Some("a".parse().unwrap()), ..policies.default };
    let fixture = Fixture::with(["a", "b"].map(config), policies).await;
    let seen = fixture.write("POST", CONFIG_MAPS, &config_map_in("b", "x", "1")).await.ok();
    fixture.set_clusters(&["a"]).await;
    let path = format!("{CONFIG_MAPS}/x");
    until(|| async { fixture.get(&path).await.code == 404 }).await;
    let mut again = config_map("x", "2");
    for (resource_version, code) in [(version(&seen), 409), ("garbage".to_owned(), 409), ("0".to_owned(), 201)] {
        again["metadata"]["resourceVersion"] = resource_version.as_str().into();
        let applied = fixture.patch(&format!("{path}?fieldManager=t"), "apply-patch+yaml", &again).await;
        assert_eq!(applied.code, code, "{resource_version}: {applied:?}");
        assert!(code == 201 || applied.refused(409).contains("known to this server"), "{applied:?}");
    }
}
