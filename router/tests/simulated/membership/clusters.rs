//! Tests of clusters that are added, removed, or have objects of equal names, while clients watch.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{CONFIG_MAPS, Fixture, brief, cluster, config_map, config_map_in, items, until, vector, version};

#[tokio::test]
async fn open_watch_receives_added_and_removed_clusters() {
    let fixture = Fixture::start(["a", "b"]).await;
    let filter = "fieldSelector=metadata.name!=kube-root-ca.crt";
    fixture.set_clusters(&["a"]).await;
    fixture.put("a", "x", "");
    fixture.put("b", "y", "");
    fixture.put("b", "z", "");
    until(|| async { items(&fixture.get(&format!("{CONFIG_MAPS}?{filter}")).await.ok()) == ["a/x"] }).await;
    let list = fixture.get(&format!("{CONFIG_MAPS}?{filter}")).await.ok();
    let path = format!("{CONFIG_MAPS}?watch=1&{filter}&resourceVersion={}", version(&list));
    let mut events = fixture.watch(&path).await;
    fixture.set_clusters(&["a", "b"]).await;
    assert_eq!([events.brief().await, events.brief().await], ["ADDED b/y", "ADDED b/z"]);
    fixture.set_clusters(&["a"]).await;
    let gone = [events.soon().await, events.soon().await];
    assert_eq!(gone.each_ref().map(brief), ["DELETED b/y", "DELETED b/z"]);
    assert_eq!(vector(&version(&gone[1]["object"])).get("b"), None, "with the last object the component goes");
    fixture.put("a", "x", "still");
    assert_eq!(events.brief().await, "MODIFIED a/x");
    events.nothing().await;
    // When the cluster is added again, the open watch receives its objects again.
    fixture.set_clusters(&["a", "b"]).await;
    assert_eq!([events.brief().await, events.brief().await], ["ADDED b/y", "ADDED b/z"]);
}

#[tokio::test]
async fn host_name_of_a_cluster_serves_the_clusters_own_view() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "of a");
    fixture.put("b", "y", "of b");
    let host = fixture.client().at_host_of("a");
    let one = format!("{CONFIG_MAPS}/x");
    for path in
        [CONFIG_MAPS, &one, "/api", "/apis", "/version", "/openapi/v3", "/healthz", "/nowhere", "/api/v1/pods/a/../b"]
    {
        let (own, below) = (host.get(path).await, fixture.get(&format!("/clusters/a{path}")).await);
        assert_eq!((own.code, &own.body), (below.code, &below.body), "{path}");
    }
    let object = host.get(&one).await.ok();
    assert!(object["metadata"]["annotations"].is_null() && version(&object).parse::<u64>().is_ok(), "{object}");
    // No path at the host of `a` reaches other clusters or the merged view.
    for path in ["/clusters/b/api/v1/namespaces", "/clusters/a/api/v1/namespaces", "/tributary/status"] {
        assert_eq!(host.get(path).await.code, 404, "{path}");
    }
    let url = fixture.get("/clusters/a/openapi/v3").await.ok()["paths"]["apis/apps/v1"]["serverRelativeURL"].clone();
    let moved = host.get("/openapi/v3/apis/apps/v1?hash=OLD").await;
    assert_eq!((moved.code, moved.headers["location"].to_str().ok()), (301, url.as_str()));
}

#[tokio::test]
async fn deletion_of_a_repeated_name_is_followed_by_the_remaining_object() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "twin", "of a");
    fixture.put("b", "twin", "of b");
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&list))).await;
    fixture.member("a").delete("configmaps", "default", "twin");
    assert_eq!([events.brief().await, events.brief().await], ["DELETED a/twin", "ADDED b/twin"]);
    let only = fixture.get(&format!("{CONFIG_MAPS}/twin")).await.ok();
    assert_eq!(cluster(&only), "b");
    fixture.member("b").delete("configmaps", "default", "twin");
    assert_eq!(events.brief().await, "DELETED b/twin");
    events.nothing().await;
}

#[tokio::test]
async fn metric_counts_object_names_that_several_clusters_have() {
    let fixture = Fixture::start(["a", "b"]).await;
    let metric = || {
        let exposition = fixture.router.metrics().expose();
        let mut lines = exposition.lines();
        let own = |line: &&str| line.starts_with("tributary_repeated_names{") && line.contains("=\"configmaps\"");
        lines.find(own).and_then(|line| line.rsplit(' ').next()?.parse::<usize>().ok())
    };
    for (member, is_repeated) in [("a", false), ("b", true)] {
        fixture.put_and_see(member, "twin", "").await;
        let list = fixture.get("/api/v1/configmaps").await.ok();
        let names: Vec<_> = list["items"].as_array().unwrap().iter().map(full_name).collect();
        assert_eq!(names.iter().filter(|name| *name == "default/twin").count() == 2, is_repeated);
        let repeated = names.len() - names.iter().collect::<BTreeSet<_>>().len();
        assert_eq!(metric(), Some(repeated));
    }
    fixture.set_clusters(&["a"]).await;
    until(async || metric() == Some(0)).await;
}

fn full_name(object: &Value) -> String {
    let of = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", of("namespace"), of("name"))
}

#[tokio::test]
async fn cluster_annotation_of_a_write_selects_among_objects_of_one_name() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "twin", "of a");
    fixture.put("b", "twin", "of b");
    fixture.get(CONFIG_MAPS).await.ok();
    let path = format!("{CONFIG_MAPS}/twin");
    let mut plain = config_map("twin", "new");
    fixture.write("PUT", &path, &plain).await.refused(409);
    plain["metadata"]["annotations"] = json!({ crate::harness::ANNOTATION: "b" });
    assert_eq!(cluster(&fixture.write("PUT", &path, &plain).await.ok()), "b");
    assert_eq!(fixture.member("a").get("configmaps", "default", "twin").unwrap()["data"]["v"], "of a");
    let stored = fixture.member("b").get("configmaps", "default", "twin").unwrap();
    assert_eq!((&stored["data"]["v"], cluster(&stored).as_str()), (&json!("new"), ""), "the annotation is not stored");
    // A changed annotation cannot move an object to another cluster.
    fixture.put("a", "only", "");
    let mut moved = config_map("only", "");
    moved["metadata"]["annotations"] = json!({ crate::harness::ANNOTATION: "b" });
    let message = fixture.write("PUT", &format!("{CONFIG_MAPS}/only"), &moved).await.refused(409);
    assert!(message.contains("\"b\"") && message.contains("\"a\""), "{message}");
}

#[tokio::test]
async fn requests_at_cluster_paths_are_forwarded_unchanged() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "1");
    let direct = fixture.member("a").get("configmaps", "default", "x").unwrap();
    assert_eq!(fixture.get(&format!("/clusters/a{CONFIG_MAPS}/x")).await.ok(), direct);
    fixture.get(&format!("/clusters/b{CONFIG_MAPS}/x")).await.refused(404);
    let message = fixture.get(&format!("/clusters/nobody{CONFIG_MAPS}")).await.refused(404);
    assert!(message.contains("nobody"), "{message}");
    let mut events =
        fixture.watch(&format!("/clusters/a{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&direct))).await;
    fixture.put("a", "x", "2");
    let event = events.soon().await;
    assert_eq!((brief(&event).as_str(), event["object"]["data"]["v"].as_str()), ("MODIFIED /x", Some("2")));
    assert_eq!(fixture.get("/clusters/a/version").await.ok()["minor"], "36");
}

#[tokio::test]
async fn reconfigured_cluster_sends_no_events_to_open_watches() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "1");
    let from = version(&fixture.get(CONFIG_MAPS).await.ok());
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    for round in 0..3 {
        let mut setups = Vec::new();
        for member in &fixture.members {
            let setup = crate::harness::setup(member, member.name()).await;
            let address = tributary_router::ClusterAddress::from_description(&format!("{round}"));
            setups.push(tributary_router::ClusterSetup { address, ..setup });
        }
        fixture.router.set_clusters(setups);
        let list = fixture.get(CONFIG_MAPS).await;
        assert!(items(&list.ok()).contains(&"a/x".to_owned()), "what is held is served on");
        events.nothing().await;
        fixture.put("a", "x", &format!("again {round}"));
        assert_eq!(events.brief().await, "MODIFIED a/x");
    }
    let mut resumed = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(resumed.brief().await, "MODIFIED a/x", "and what was handed out before is resumed");
}

#[tokio::test]
async fn watch_resumes_from_a_version_before_clusters_were_added_or_removed() {
    let fixture = Fixture::start(["a", "b", "c"]).await;
    let filter = "fieldSelector=metadata.name!=kube-root-ca.crt";
    fixture.set_clusters(&["a", "b"]).await;
    for member in ["a", "b", "c"] {
        fixture.put(member, &format!("of-{member}"), "");
    }
    until(|| async { items(&fixture.get(&format!("{CONFIG_MAPS}?{filter}")).await.ok()) == ["a/of-a", "b/of-b"] })
        .await;
    let list = fixture.get(&format!("{CONFIG_MAPS}?{filter}")).await.ok();
    let open = format!("{CONFIG_MAPS}?watch=1&{filter}&resourceVersion={}", version(&list));
    fixture.set_clusters(&["a", "c"]).await;
    until(|| async { items(&fixture.get(&format!("{CONFIG_MAPS}?{filter}")).await.ok()) == ["a/of-a", "c/of-c"] })
        .await;
    // A client that was disconnected during the changes receives these changes when it resumes.
    let mut events = fixture.watch(&open).await;
    let mut told = [events.brief().await, events.brief().await];
    told.sort();
    assert_eq!(told, ["ADDED c/of-c", "DELETED b/of-b"]);
    fixture.put("c", "of-c", "2");
    let last = events.soon().await;
    assert_eq!(brief(&last), "MODIFIED c/of-c");
    let after = vector(&version(&last["object"]));
    assert_eq!(after.as_object().unwrap().keys().collect::<Vec<_>>(), ["a", "c"]);
    events.nothing().await;
    // A list refuses a version that contains only the removed cluster, so the client must list again.
    let left = crate::harness::composite(&json!({"b": vector(&version(&list))["b"]}));
    fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={left}")).await.refused(410);
}

#[tokio::test]
async fn invalid_cluster_names_and_methods_are_refused() {
    let fixture = Fixture::start(["a"]).await;
    for path in ["/clusters", "/clusters/", "/clusters/A", "/clusters/a%2e", "/clusters/..", "/clusters//api/v1/pods"] {
        let code = fixture.get(path).await.code;
        assert!(matches!(code, 400 | 404), "{path}: {code}");
    }
    for (method, path) in [("POST", "/version"), ("DELETE", "/apis"), ("PUT", CONFIG_MAPS), ("TRACE", "/api")] {
        let code = fixture.write(method, path, &json!({})).await.code;
        assert_eq!(code, 405, "{method} {path}");
    }
}

/// At the path of a cluster, a client may use versions and annotations from the merged view if they are of this
/// cluster.
#[tokio::test]
async fn path_of_a_cluster_accepts_versions_of_the_merged_view() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("a", "x", "1").await;
    fixture.put_and_see("b", "y", "1").await;
    let own = format!("/clusters/a{CONFIG_MAPS}");
    // The client writes an object with the version and annotation from the merged view.
    let mut object = fixture.get(&format!("{CONFIG_MAPS}/x")).await.ok();
    assert_eq!(cluster(&object), "a");
    object["data"]["v"] = json!("2");
    fixture.write("PUT", &format!("{own}/x"), &object).await.ok();
    let stored = fixture.member("a").get("configmaps", "default", "x").unwrap();
    assert_eq!((&stored["data"]["v"], cluster(&stored).as_str()), (&json!("2"), ""), "the annotation is not stored");
    fixture.write("PUT", &format!("{own}/x"), &object).await.refused(409);
    // At the path of a cluster, an object of another cluster can be neither written nor read.
    let other = fixture.get(&format!("{CONFIG_MAPS}/y")).await.ok();
    let message = fixture.write("POST", &own, &config_map_in("b", "z", "")).await.refused(409);
    let expected = "kubectl --context b …, or remove the annotation: configmaps \"z\" has ";
    assert!(message.starts_with(expected), "{message}");
    let message = fixture.write("POST", &own, &config_map_in("nobody", "z", "")).await.refused(409);
    assert!(message.starts_with("remove the annotation: configmaps \"z\" has "), "{message}");
    let mut stranger = config_map("x", "3");
    stranger["metadata"]["resourceVersion"] = json!(version(&other));
    let message = fixture.write("PUT", &format!("{own}/x"), &stranger).await.refused(409);
    let expected = "kubectl --context a get configmaps x: the resourceVersion is of another cluster than a";
    assert_eq!(message, expected);
    let precondition = json!({"preconditions": {"resourceVersion": version(&other)}});
    fixture.write("DELETE", &format!("{own}/x"), &precondition).await.refused(409);
    let message = fixture.get(&format!("{own}?resourceVersion={}", version(&other))).await.refused(410);
    assert_eq!(message, "list /clusters/a again: the resourceVersion has no component of cluster a");
    let mut events = fixture.watch(&format!("{own}?watch=1&resourceVersion={}", version(&other))).await;
    let error = events.soon().await;
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert!(events.next().await.is_none());
    // A list and a watch accept the version of a merged list. A list refuses the continue token of a merged list.
    let list = fixture.get(&format!("{CONFIG_MAPS}?limit=1")).await.ok();
    let token = list["metadata"]["continue"].as_str().unwrap();
    fixture.get(&format!("{own}?limit=1&continue={token}")).await.refused(410);
    fixture.get(&format!("{own}?resourceVersion={}", version(&list))).await.ok();
    let mut events = fixture.watch(&format!("{own}?watch=1&resourceVersion={}", version(&list))).await;
    fixture.put("a", "later", "");
    while brief(&events.soon().await) != "ADDED /later" {}
    // Continue tokens from this path are accepted.
    let native = fixture.get(&format!("{own}?limit=1")).await.ok();
    let token = native["metadata"]["continue"].as_str().unwrap();
    fixture.get(&format!("{own}?limit=1&continue={token}")).await.ok();
    // The version of an event is a valid precondition for the event's object.
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&list))).await;
    let mut told = loop {
        let event = events.soon().await;
        if brief(&event) == "ADDED a/later" {
            break event["object"].clone();
        }
    };
    told["data"]["v"] = json!("from an event");
    fixture.write("PUT", &format!("{own}/later"), &told).await.ok();
}

/// The client's version is newer than memory, so the router cannot use memory to translate it.
#[tokio::test]
async fn path_of_a_cluster_accepts_a_version_newer_than_memory() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("a", "x", "1").await;
    fixture.member("a").control().lag_watches(crate::harness::SOON * 10);
    let mut written = fixture.write("PUT", &format!("{CONFIG_MAPS}/x"), &config_map("x", "2")).await.ok();
    written["data"]["v"] = json!("3");
    fixture.write("PUT", &format!("/clusters/a{CONFIG_MAPS}/x"), &written).await.ok();
    fixture.write("PUT", &format!("/clusters/a{CONFIG_MAPS}/x"), &written).await.refused(409);
}

#[tokio::test]
async fn path_of_a_cluster_accepts_a_version_of_a_single_namespace() {
    let fixture = Fixture::start(["a", "b"]).await;
    crate::reads::namespaces::forbid(&fixture, "a", &["configmaps"]);
    fixture.put("a", "x", "1");
    fixture.put("a", "later", "1");
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let mut object = fixture.get(&format!("{CONFIG_MAPS}/x")).await.ok();
    // The version of a list is a valid precondition for the objects in it.
    object["metadata"]["resourceVersion"] = version(&list).into();
    fixture.write("PUT", &format!("/clusters/a{CONFIG_MAPS}/x"), &object).await.ok();
}
