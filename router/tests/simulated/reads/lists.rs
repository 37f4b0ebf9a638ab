//! Tests of lists: their content, pages, versions, and their consistency while members change.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tributary_router::Policies;
use tributary_simulator::RequestKind;

use crate::doors::table::MERGED_VIEWS;
use crate::harness::{
    CONFIG_MAPS, Fixture, SOON, brief, cluster, composite, config, config_map_in, items, name, until, vector, version,
};

/// While a view starts, several readers wait for it without blocking each other. The view starts only once, and each
/// reader gets all objects.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_readers_start_one_view_and_see_all_objects() {
    let fixture = Fixture::with(["a", "b"].map(config), Policies::default()).await;
    for (member, name) in [("a", "x"), ("b", "y")] {
        fixture.put(member, name, "");
    }
    let readers = (0..64).map(|_| {
        let client = fixture.client();
        tokio::spawn(async move {
            let path = format!("{CONFIG_MAPS}?fieldSelector=metadata.name!=kube-root-ca.crt");
            items(&client.send("GET", &path, &[], "").await.ok())
        })
    });
    for reader in readers.collect::<Vec<_>>() {
        assert_eq!(reader.await.unwrap(), ["a/x", "b/y"]);
    }
    for member in ["a", "b"] {
        assert_eq!(fixture.member(member).control().requests_of(RequestKind::Watch, "configmaps"), 1, "{member}");
    }
}

#[derive(Default)]
struct Known {
    objects: BTreeMap<(String, String), Value>,
    /// The versions of all received events, because an event must not arrive twice.
    seen: BTreeSet<(String, String, String)>,
}

impl Known {
    fn add(&mut self, object: &Value) {
        self.objects.insert((cluster(object), name(object)), object["data"].clone());
    }

    fn event(&mut self, event: &Value) {
        let object = &event["object"];
        let (cluster, name) = (cluster(object), name(object));
        let native = vector(&version(object))[&cluster].to_string();
        let told = self.seen.insert((cluster.clone(), name.clone(), native));
        assert!(told, "twice: {event}");
        match event["type"].as_str() {
            Some("ADDED") => {
                let before = self.objects.insert((cluster, name), object["data"].clone());
                assert_eq!(before, None, "added though it was there: {event}");
            }
            Some("MODIFIED") => {
                let before = self.objects.insert((cluster, name), object["data"].clone());
                assert!(before.is_some(), "modified though it was not there: {event}");
            }
            Some("DELETED") => assert!(self.objects.remove(&(cluster, name)).is_some(), "deleted twice: {event}"),
            other => panic!("{other:?}: {event}"),
        }
    }
}

async fn churn(fixture: &Fixture, rounds: usize) {
    for round in 0..rounds {
        for (index, member) in fixture.members.iter().enumerate() {
            let number = (round * 7 + index * 3) % 40;
            let name = format!("{}-{number}", member.name());
            if round % 5 == 4 {
                member.delete("configmaps", "default", &name);
            } else {
                fixture.put(member.name(), &name, &round.to_string());
            }
        }
        if round % 8 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn list_and_its_watch_yield_the_members_state() {
    for door in MERGED_VIEWS.iter().filter(|door| door.allows_watches()) {
        let fixture = door.start(["a", "b", "c"]).await;
        churn(&fixture, 60).await;
        fixture.get(CONFIG_MAPS).await.ok();
        let follow = async {
            let mut known = Known::default();
            // This list arrives between two changes. The watch begins at its version.
            tokio::time::sleep(Duration::from_millis(20)).await;
            let list = fixture.get(CONFIG_MAPS).await.ok();
            list["items"].as_array().unwrap().iter().for_each(|item| known.add(item));
            let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&list));
            (known, fixture.watch(&path).await)
        };
        let ((mut known, mut events), ()) = tokio::join!(follow, churn(&fixture, 400));
        let expected = fixture.config_maps_of_members();
        let deadline = tokio::time::Instant::now() + SOON;
        while known.objects != expected {
            let event = tokio::time::timeout_at(deadline, events.next()).await;
            known.event(&event.expect("the watch gets there").expect("it does not end"));
        }
        events.nothing().await;
        assert!(!known.seen.is_empty(), "there was something to follow");
    }
}

#[tokio::test]
async fn pages_show_one_state_while_objects_change() {
    for door in MERGED_VIEWS {
        let fixture = door.start(["a", "b"]).await;
        for number in 0..30 {
            fixture.put("a", &format!("m{number:02}"), "0");
            fixture.put("b", &format!("n{number:02}"), "0");
        }
        let whole = fixture.get(CONFIG_MAPS).await.ok();
        let (mut paged, mut query, mut pages) = (Vec::new(), "limit=7".to_owned(), 0);
        let mut remaining = i64::MAX;
        loop {
            let page = fixture.get(&format!("{CONFIG_MAPS}?{query}")).await.ok();
            assert_eq!(page["metadata"]["resourceVersion"], whole["metadata"]["resourceVersion"]);
            paged.extend(page["items"].as_array().unwrap().iter().cloned());
            pages += 1;
            // All objects change between two pages, and the pages must still show one state.
            for number in 0..30 {
                fixture.put("a", &format!("m{number:02}"), &pages.to_string());
                fixture.member("b").delete("configmaps", "default", &format!("n{number:02}"));
                fixture.put("b", &format!("new{pages}"), "");
            }
            let Some(token) = page["metadata"]["continue"].as_str() else { break };
            let left = page["metadata"]["remainingItemCount"].as_i64().unwrap();
            assert!(left < remaining && left > 0, "{left}");
            remaining = left;
            query = format!("limit=7&continue={token}");
        }
        assert_eq!(json!(paged), whole["items"]);
        assert_eq!(pages, paged.len().div_ceil(7));
    }
}

#[tokio::test]
async fn pages_continue_while_clusters_are_added_and_removed() {
    let mut fixture = Fixture::start(["a", "b"]).await;
    for name in ["p", "q"] {
        fixture.put("a", &format!("{name}-a"), "");
        fixture.put("b", &format!("{name}-b"), "");
    }
    let filter = "fieldSelector=metadata.name!=kube-root-ca.crt";
    let first = fixture.get(&format!("{CONFIG_MAPS}?limit=1&{filter}")).await.ok();
    let late = Fixture::start(["c"]).await.members.remove(0);
    late.apply(crate::harness::config_map("c", "")).unwrap();
    fixture.members.push(late);
    fixture.set_clusters(&["a", "c"]).await;
    until(|| async {
        let list = fixture.get(&format!("{CONFIG_MAPS}?{filter}")).await.ok();
        items(&list) == ["a/p-a", "a/q-a", "c/c"]
    })
    .await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = fixture.get(&format!("{CONFIG_MAPS}?limit=9&continue={token}&{filter}")).await.ok();
    assert_eq!([items(&first), items(&rest)].concat(), ["a/p-a", "a/q-a", "b/p-b", "b/q-b"]);
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
}

#[tokio::test]
async fn list_versions_have_the_semantics_of_kubernetes() {
    for door in MERGED_VIEWS {
        let fixture = door.start(["a", "b"]).await;
        fixture.put("a", "x", "old");
        let old = fixture.get(CONFIG_MAPS).await.ok();
        let old = old["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
        let revision = fixture.put("a", "x", "new");
        let value = |list: &Value| {
            list["items"].as_array().unwrap().iter().find(|item| name(item) == "x").unwrap()["data"]["v"].clone()
        };
        let newer = composite(&json!({"a": revision.to_string(), "b": vector(&old)["b"]}));
        let seen = fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={newer}")).await.ok();
        assert_eq!(value(&seen), "new", "it waits");
        for exact in ["resourceVersionMatch=Exact", "limit=500"] {
            let list = fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={old}&{exact}")).await.ok();
            assert_eq!(
                (value(&list), list["metadata"]["resourceVersion"].as_str()),
                (json!("old"), Some(&*old)),
                "{exact}"
            );
        }
        let list = fixture.get(&format!("{CONFIG_MAPS}?resourceVersion=0&limit=1")).await.ok();
        assert_eq!(list["metadata"].get("continue"), None, "with 0 the whole list is given");
        let refusals = [
            ("resourceVersion=1234", 410),
            ("resourceVersion=garbage!", 400),
            ("resourceVersionMatch=Exact", 422),
            ("continue=garbage", 400),
            ("labelSelector=a%20b%20c", 400),
            ("limit=x", 400),
        ];
        for (query, code) in refusals {
            fixture.get(&format!("{CONFIG_MAPS}?{query}")).await.refused(code);
        }
        let future = composite(&json!({"a": (revision + 1000).to_string()}));
        // The router asks the member, which has not reached the version. Without an answer of the member, the wait
        // would end with 504.
        let message = fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={future}")).await.refused(410);
        assert!(message.contains("too large resource version"), "{message}");
    }
}

#[tokio::test]
async fn selectors_apply_to_objects_of_all_clusters() {
    for door in MERGED_VIEWS {
        let fixture = door.start(["a", "b"]).await;
        for member in ["a", "b"] {
            let mut labelled = crate::harness::config_map(&format!("yes-{member}"), "");
            labelled["metadata"]["labels"] = json!({"app": "web"});
            fixture.member(member).apply(labelled).unwrap();
            fixture.put(member, "no", "");
        }
        let list = fixture.get(&format!("{CONFIG_MAPS}?labelSelector=app%3Dweb")).await.ok();
        assert_eq!(items(&list), ["a/yes-a", "b/yes-b"]);
        let list = fixture.get("/api/v1/configmaps?fieldSelector=metadata.name%3Dno").await.ok();
        assert_eq!(items(&list), ["a/no", "b/no"]);
        let list = fixture.get("/api/v1/namespaces/nowhere/configmaps").await.ok();
        assert_eq!(list["items"], json!([]));
    }
}

#[tokio::test]
async fn read_after_a_write_sees_the_write() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    for round in 0..20 {
        let (cluster, other) = if round % 2 == 0 { ("a", "b") } else { ("b", "a") };
        let name = format!("own{round}");
        let merged = format!("{CONFIG_MAPS}/{name}");
        // The test writes through the merged view.
        fixture.write("POST", CONFIG_MAPS, &config_map_in(cluster, &name, "1")).await.ok();
        let made = fixture.get(&merged).await.ok();
        assert_eq!((made["data"]["v"].as_str(), crate::harness::cluster(&made).as_str()), (Some("1"), cluster));
        let mut changed = made.clone();
        changed["data"]["v"] = "2".into();
        fixture.write("PUT", &merged, &changed).await.ok();
        assert_eq!(fixture.get(&merged).await.ok()["data"]["v"], "2");
        // The test writes through the path of the cluster.
        let own = format!("/clusters/{cluster}{CONFIG_MAPS}");
        fixture.patch(&format!("{own}/{name}"), "merge-patch+json", &json!({"data": {"v": "3"}})).await.ok();
        assert_eq!(fixture.get(&merged).await.ok()["data"]["v"], "3");
        let rehearsal = json!({"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]});
        for path in [&merged, &format!("{own}/{name}")] {
            fixture.write("DELETE", path, &rehearsal).await.ok();
            let list = fixture.get(CONFIG_MAPS).await.ok();
            assert!(items(&list).contains(&format!("{cluster}/{name}")), "a rehearsal deletes nothing");
        }
        let path = if round % 4 < 2 { merged.clone() } else { format!("{own}/{name}") };
        fixture.write("DELETE", &path, &Value::Null).await.ok();
        fixture.get(&merged).await.refused(404);
        let list = fixture.get(CONFIG_MAPS).await.ok();
        assert!(!items(&list).contains(&format!("{cluster}/{name}")));
        let own = format!("/clusters/{other}{CONFIG_MAPS}");
        fixture.write("POST", &own, &crate::harness::config_map(&name, "4")).await.ok();
        assert_eq!(fixture.get(&merged).await.ok()["data"]["v"], "4");
    }
}

#[tokio::test]
async fn name_in_two_clusters_is_listed_twice_and_ambiguous() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "twin", "of a");
    fixture.put("b", "twin", "of b");
    let list = fixture.get(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Dtwin")).await.ok();
    assert_eq!(items(&list), ["a/twin", "b/twin"]);
    let message = fixture.get(&format!("{CONFIG_MAPS}/twin")).await.refused(409);
    for part in ["a, b", "/clusters/<name>/api/v1/namespaces/default/configmaps/twin"] {
        assert!(message.contains(part), "{message}");
    }
    let own = fixture.get(&format!("/clusters/b{CONFIG_MAPS}/twin")).await.ok();
    assert_eq!((own["data"]["v"].as_str(), crate::harness::cluster(&own).as_str()), (Some("of b"), ""));
    assert!(version(&own).parse::<u64>().is_ok(), "native versions on a cluster's own path");
}

#[tokio::test]
async fn watch_resumes_after_a_restart_of_the_router() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "1");
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let other = fixture.restarted(crate::harness::allow()).await;
    other.get(CONFIG_MAPS).await.ok();
    let mut events = other.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    fixture.put("b", "y", "2");
    assert_eq!(brief(&events.soon().await), "ADDED b/y");
    events.nothing().await;
}

#[tokio::test]
async fn version_with_thousands_of_unknown_clusters_is_refused() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("a", "x", "").await;
    fixture.put_and_see("a", "y", "").await;
    let made_up = |names: usize| {
        let components: serde_json::Map<_, _> = (0..names).map(|n| (format!("c{n:04}"), json!("1"))).collect();
        composite(&json!(components))
    };
    let bound = "more than 1024 clusters that are not configured";
    let many = made_up(3000);
    for query in ["", "&resourceVersionMatch=NotOlderThan", "&resourceVersionMatch=Exact", "&limit=5"] {
        let message = fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={many}{query}")).await.refused(410);
        assert!(message.contains(bound), "{query}: {message}");
    }
    let message = fixture.get(&format!("{CONFIG_MAPS}/x?resourceVersion={many}")).await.refused(400);
    assert!(message.contains(bound), "{message}");
    let mut events = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={many}")).await;
    let error = events.soon().await;
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert!(error["object"]["message"].as_str().unwrap().contains(bound), "{error}");
    assert_eq!(events.next().await, None);
    let first = fixture.get(&format!("{CONFIG_MAPS}?limit=1")).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let (place, _) = token.rsplit_once('.').unwrap();
    fixture.get(&format!("{CONFIG_MAPS}?continue={place}.{many}")).await.refused(410);
    // The version contains 1,024 unknown clusters, the maximum that the router looks up.
    let message = fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={}", made_up(1024))).await.refused(410);
    assert!(message.contains("names cluster c0000, which does not serve"), "{message}");
}
