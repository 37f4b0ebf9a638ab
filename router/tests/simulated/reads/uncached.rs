//! Tests of collections that are not completely in memory. The router answers gets from the clusters, and lists if it
//! can.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tributary_apimachinery::Partial;
use tributary_router::{Limits, Policies, ResourcePolicy};
use tributary_simulator::{Rejection, RequestKind, SimulatorConfig};

use crate::harness::{
    ANNOTATION, Answer, CONFIG_MAPS, Fixture, allow, cluster, config, config_map, config_map_in, items, name, setup,
    until, vector, version,
};

const READS: [RequestKind; 2] = [RequestKind::List, RequestKind::Watch];

const OWN: &str = "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name!=kube-root-ca.crt";

/// Suffixes of resourceVersions that are not numbers: two forms of Calico, the end of a UUID, and the empty
/// resourceVersion.
const SUFFIXES: [&str; 4] = ["/", "/5678", "-7d1e-7000-8000-000000000000", ""];

/// Makes a member forbid these kinds of requests for ConfigMaps.
fn forbid(fixture: &Fixture, member: &str, kinds: &[RequestKind]) {
    let (kinds, resources) = (kinds.to_vec(), vec!["configmaps".to_owned()]);
    fixture.member(member).control().reject(Some(Rejection { kinds, resources, ..Rejection::all(403) }));
}

fn of(name: &str) -> String {
    format!("{CONFIG_MAPS}/{name}")
}

fn label() -> Value {
    json!({"metadata": {"labels": {"x": "y"}}})
}

/// Writes an object by server-side apply. The object is a ConfigMap or a NetworkSet.
async fn apply(fixture: &Fixture, object: &Value) -> Answer {
    let headers = [("content-type", "application/apply-patch+yaml")];
    let path = if object["kind"] == "ConfigMap" { of(&name(object)) } else { set(&name(object)) };
    let path = format!("{path}?fieldManager=test");
    fixture.client().send("PATCH", &path, &headers, &object.to_string()).await
}

fn deny() -> Policies {
    Policies { default: ResourcePolicy { partial: Partial::Deny, ..ResourcePolicy::default() }, ..Policies::default() }
}

/// Checks that a refusal has no Retry-After. Returns its message.
#[track_caller]
fn refused_for_good(answer: &Answer, code: u16) -> String {
    let message = answer.refused(code);
    assert_eq!(answer.headers.get("retry-after"), None, "{message}");
    assert!(answer.json()["details"]["retryAfterSeconds"].is_null(), "{message}");
    message
}

#[tokio::test]
async fn get_reaches_a_cluster_that_forbids_lists() {
    let fixture = Fixture::start(["a", "b"]).await;
    forbid(&fixture, "a", &READS);
    fixture.put("a", "keep", "1");
    fixture.put_and_see("b", "other", "1").await;
    let begun = Instant::now();
    let found = fixture.get(&of("keep")).await;
    assert_eq!((cluster(&found.ok()).as_str(), found.warnings()), ("a", vec![]));
    assert_eq!(fixture.patch(&of("keep"), "merge-patch+json", &label()).await.ok()["metadata"]["labels"]["x"], "y");
    let mut object = fixture.get(&of("keep")).await.ok();
    object["data"]["v"] = "2".into();
    assert_eq!(fixture.write("PUT", &of("keep"), &object).await.ok()["data"]["v"], "2");
    // The name is in one cluster only, but the router must look it up in both.
    let other = fixture.get(&of("other")).await;
    assert_eq!((cluster(&other.ok()).as_str(), other.warnings()), ("b", vec![]));
    assert_eq!(cluster(&fixture.patch(&of("other"), "merge-patch+json", &label()).await.ok()), "b");
    fixture.put("a", "other", "1");
    refused_for_good(&fixture.get(&of("other")).await, 409);
    refused_for_good(&fixture.patch(&of("other"), "merge-patch+json", &label()).await, 409);
    fixture.client().send("DELETE", &of("keep"), &[], "").await.ok();
    assert!(fixture.member("a").get("configmaps", "default", "keep").is_none());
    fixture.get(&of("keep")).await.refused(404);
    let new = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}});
    let made = apply(
        &fixture,
        &json!({"metadata": {"annotations": {ANNOTATION: "a"}, "name": "new"},
        "apiVersion": "v1", "kind": "ConfigMap"}),
    )
    .await;
    assert_eq!(cluster(&made.ok()), "a");
    assert_eq!(cluster(&apply(&fixture, &new).await.ok()), "a", "an apply finds what is there");
    assert!(begun.elapsed() < Duration::from_secs(9), "nobody waits: {:?}", begun.elapsed());
    fixture.member("a").control().stop_listening().await;
    fixture.out_of_reach("a").await;
    let message = refused_for_good(&fixture.get(&of("keep")).await, 503);
    assert!(message.contains("cannot be queried now: a"), "{message}");
}

#[tokio::test]
async fn logs_reach_a_cluster_that_forbids_pod_lists() {
    let pods = |name| SimulatorConfig { pods: 5, ..config(name) };
    let fixture = Fixture::with(["a", "b"].map(pods), allow()).await;
    let pod = fixture.member("b").list("pods").remove(0);
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod["metadata"]["namespace"].as_str().unwrap(), name(&pod));
    let (kinds, resources) = (READS.to_vec(), vec!["pods".to_owned()]);
    fixture.member("b").control().reject(Some(Rejection { kinds, resources, ..Rejection::all(403) }));
    assert_eq!(fixture.get(&format!("{path}/log")).await.code, 200);
    let status = json!({"status": {"message": "seen"}});
    assert_eq!(cluster(&fixture.patch(&format!("{path}/status"), "merge-patch+json", &status).await.ok()), "b");
    assert_eq!(cluster(&fixture.get(&format!("{path}/status")).await.ok()), "b");
}

/// kubectl gets the namespace after a 404, and before it applies a new object. It would repeat the get if the response
/// had Retry-After, so the 403 must not have it.
#[tokio::test]
async fn forbidden_kind_gets_the_clusters_403_immediately() {
    let fixture = Fixture::start(["a", "b"]).await;
    forbid(&fixture, "a", &[RequestKind::List, RequestKind::Watch, RequestKind::Get, RequestKind::Write]);
    fixture.put_and_see("b", "there", "1").await;
    let begun = Instant::now();
    for _ in 0..3 {
        let message = refused_for_good(&fixture.get(&of("nowhere")).await, 403);
        assert!(!message.contains("Tributary's account"), "a's own words: {message}");
        refused_for_good(&fixture.client().send("DELETE", &of("nowhere"), &[], "").await, 403);
        assert_eq!(cluster(&fixture.get(&of("there")).await.ok()), "b");
        assert_eq!(cluster(&fixture.patch(&of("there"), "merge-patch+json", &label()).await.ok()), "b");
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    fixture.member("b").control().stop_listening().await;
    fixture.out_of_reach("b").await;
    // The objects of `b` are in memory, and none has this name. So the response is the 403 of `a`.
    refused_for_good(&fixture.get(&of("elsewhere")).await, 403);
}

#[tokio::test]
async fn forbidden_list_gets_a_429_under_partial_deny() {
    let fixture = Fixture::with(["a", "b"].map(config), deny()).await;
    forbid(&fixture, "a", &READS);
    let begun = Instant::now();
    let message = refused_for_good(&fixture.get("/api/v1/configmaps").await, 429);
    assert!(message.contains("a: forbidden"), "{message}");
    refused_for_good(&fixture.get(CONFIG_MAPS).await, 429);
    refused_for_good(&fixture.get("/api/v1/configmaps?watch=1").await, 429);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn too_large_collection_is_listed_from_its_cluster() {
    for policies in [allow(), deny()] {
        let is_whole = policies.default.partial == Partial::Deny;
        let limits = Limits { collection_bytes: 64 << 10, ..Limits::default() };
        let fixture = Fixture::within(limits, ["a", "b"].map(config), policies).await;
        for number in 0..20 {
            fixture.put("a", &format!("x{number:02}"), &"v".repeat(8 << 10));
        }
        fixture.put("b", "y", "1");
        let begun = Instant::now();
        assert_eq!(cluster(&fixture.get(&of("x07")).await.ok()), "a");
        fixture.get(&of("nowhere")).await.refused(404);
        assert_eq!(cluster(&fixture.patch(&of("x07"), "merge-patch+json", &label()).await.ok()), "a");
        let list = fixture.get(OWN).await;
        assert_eq!((items(&list.ok()).len(), list.warnings()), (21, vec![]));
        // The list's version has no component of `a`. A watch from it omits `a`, with a Warning.
        assert_eq!(vector(&version(&list.ok())).as_object().unwrap().keys().collect::<Vec<_>>(), ["b"]);
        let watch = format!("{OWN}&watch=1&resourceVersion={}", version(&list.ok()));
        if is_whole {
            let message = refused_for_good(&fixture.get(&watch).await, 429);
            assert!(message.contains("larger than"), "{message}");
        } else {
            let mut events = fixture.watch(&watch).await;
            fixture.put("b", "y", "2");
            assert_eq!(events.brief().await, "MODIFIED b/y");
            let cached = fixture.get(&format!("{OWN}&resourceVersion=0")).await;
            assert_eq!(items(&cached.ok()), ["b/y"]);
            assert!(cached.warnings()[0].contains("larger than"), "{:?}", cached.warnings());
        }
        let mut pages = Vec::new();
        let mut next = String::new();
        loop {
            let page = fixture.get(&format!("{OWN}&limit=8{next}")).await.ok();
            pages.extend(items(&page));
            let Some(token) = page["metadata"]["continue"].as_str() else { break };
            next = format!("&continue={token}");
        }
        assert_eq!((pages.len(), pages[20].as_str()), (21, "b/y"));
        assert!(begun.elapsed() < Duration::from_secs(9), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn get_reaches_a_cluster_during_its_first_list() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "1");
    fixture.member("a").control().hold_lists(true);
    let begun = Instant::now();
    assert_eq!(cluster(&fixture.get(&of("x")).await.ok()), "a");
    fixture.get(&of("nowhere")).await.refused(404);
    assert_eq!(cluster(&fixture.patch(&of("x"), "merge-patch+json", &label()).await.ok()), "a");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    fixture.member("a").control().hold_lists(false);
    until(|| async { items(&fixture.get(OWN).await.ok()) == ["a/x"] }).await;
}

/// The path of a custom resource that Calico's aggregated API server also has.
const SETS: &str = "/apis/projectcalico.org/v3/namespaces/default/networksets";

/// The path of a list of the custom resource, to which further parameters can be added.
const ALL_SETS: &str = "/apis/projectcalico.org/v3/namespaces/default/networksets?fieldSelector=metadata.name!=none";

const SET_KIND: &str = "networksets.projectcalico.org";

fn set(name: &str) -> String {
    format!("{SETS}/{name}")
}

/// Returns a NetworkSet, with the annotation for a cluster unless `cluster` is empty.
fn network_set(cluster: &str, name: &str, value: &str) -> Value {
    let mut object = if cluster.is_empty() { config_map(name, value) } else { config_map_in(cluster, name, value) };
    object["apiVersion"] = "projectcalico.org/v3".into();
    object["kind"] = "NetworkSet".into();
    object
}

/// Starts members that serve NetworkSets. The resourceVersions of `a` are not numbers.
async fn opaque(suffix: &str, policies: Policies) -> Fixture {
    let fixture = Fixture::with(["a", "b"].map(config), policies).await;
    for (member, name) in [("a", "x"), ("b", "y")] {
        fixture.member(member).control().serve(SET_KIND, true);
        fixture.member(member).apply(network_set("", name, "1")).unwrap();
    }
    fixture.member("a").control().opaque_versions(SET_KIND, Some(suffix));
    // This request makes Tributary read the discovery of the members again.
    fixture.get(SETS).await;
    until(|| async { items(&fixture.get(ALL_SETS).await.ok()) == ["a/x", "b/y"] }).await;
    fixture
}

#[tokio::test]
async fn collection_with_non_numeric_versions_is_listed_from_the_clusters() {
    for (suffix, policies) in SUFFIXES.into_iter().flat_map(|suffix| [(suffix, allow()), (suffix, deny())]) {
        let fixture = opaque(suffix, policies).await;
        for path in [ALL_SETS.to_owned(), format!("{ALL_SETS}&resourceVersion=0"), format!("{ALL_SETS}&limit=1")] {
            let list = fixture.get(&path).await;
            let expected = if path.ends_with("limit=1") { vec!["a/x"] } else { vec!["a/x", "b/y"] };
            assert_eq!(
                (items(&list.ok()), list.warnings()),
                (expected.into_iter().map(String::from).collect(), vec![])
            );
        }
        let page = fixture.get(&format!("{ALL_SETS}&limit=1")).await.ok();
        let token = page["metadata"]["continue"].as_str().unwrap();
        assert_eq!(items(&fixture.get(&format!("{ALL_SETS}&limit=1&continue={token}")).await.ok()), ["b/y"]);
        let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
        let table = fixture.client().send("GET", ALL_SETS, &table, "").await.ok();
        assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..2], ["x", "a"]);
        for watch in
            ["watch=1", "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"]
        {
            let message = refused_for_good(&fixture.get(&format!("{ALL_SETS}&{watch}")).await, 405);
            assert!(message.contains("kubectl --context a …"), "{message}");
        }
        // If the selector excludes `a`, a watch is possible.
        let mut events = fixture.watch(&format!("{ALL_SETS}&labelSelector=tributary.dev/cluster!%3Da&watch=1")).await;
        assert_eq!(events.brief().await, "ADDED b/y");
    }
}

#[tokio::test]
async fn cluster_with_non_numeric_versions_is_healthy() {
    let fixture = opaque("/", allow()).await;
    fixture.get(ALL_SETS).await.ok();
    fixture.get(&set("x")).await.ok();
    assert_eq!(fixture.get("/readyz/cluster/a").await.code, 200);
    let report = fixture.router.report().await;
    let told = &report.clusters[0];
    assert_eq!((told.condition, told.refusal.as_deref()), (tributary_router::report::ClusterCondition::Ready, None));
    let before = fixture.member("a").control().requests_of(RequestKind::List, SET_KIND);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = fixture.member("a").control().requests_of(RequestKind::List, SET_KIND);
    assert_eq!(after, before, "it is not asked again and again");
}

#[tokio::test]
async fn object_with_a_non_numeric_version_is_written_by_name() {
    for suffix in SUFFIXES {
        let fixture = opaque(suffix, allow()).await;
        let mut object = fixture.get(&set("x")).await.ok();
        assert_eq!((cluster(&object).as_str(), object["data"]["v"].as_str()), ("a", Some("1")), "{suffix}");
        object["data"]["v"] = "2".into();
        let written = fixture.write("PUT", &set("x"), &object).await.ok();
        assert_eq!((cluster(&written).as_str(), written["data"]["v"].as_str()), ("a", Some("2")), "{suffix}");
        // A resourceVersion that is not a number is still a precondition, also at the path of a single cluster.
        if !suffix.is_empty() {
            assert_ne!(version(&written), version(&object));
            refused_for_good(&fixture.write("PUT", &set("x"), &object).await, 409);
            refused_for_good(&fixture.write("PUT", &format!("/clusters/a{}", set("x")), &object).await, 409);
            let mut again = written.clone();
            again["data"]["v"] = "3".into();
            fixture.write("PUT", &format!("/clusters/a{}", set("x")), &again).await.ok();
            // The resourceVersion is from another object, so the precondition fails.
            let mut foreign = fixture.get(&set("y")).await.ok();
            foreign["metadata"]["resourceVersion"] = object["metadata"]["resourceVersion"].clone();
            fixture.write("PUT", &set("y"), &foreign).await.refused(409);
            let listed = fixture.get(ALL_SETS).await.ok();
            assert_eq!(version(&listed["items"][0]), version(&fixture.get(&set("x")).await.ok()));
        }
        assert_eq!(cluster(&fixture.patch(&set("x"), "merge-patch+json", &label()).await.ok()), "a");
        let made = fixture.write("POST", SETS, &network_set("a", "new", "")).await.ok();
        assert_eq!((cluster(&made).as_str(), name(&made).as_str()), ("a", "new"), "{suffix}");
        let applied = apply(&fixture, &network_set("a", "applied", "")).await.ok();
        assert_eq!((cluster(&applied).as_str(), name(&applied).as_str()), ("a", "applied"), "{suffix}");
        assert_eq!(cluster(&apply(&fixture, &network_set("", "new", "4")).await.ok()), "a");
        for gone in ["x", "new", "applied"] {
            fixture.client().send("DELETE", &set(gone), &[], "").await.ok();
            fixture.get(&set(gone)).await.refused(404);
        }
        fixture.client().send("DELETE", ALL_SETS, &[], "").await.ok();
        assert!(items(&fixture.get(ALL_SETS).await.ok()).is_empty());
    }
}

#[tokio::test]
async fn added_cluster_with_non_numeric_versions_ends_the_watch() {
    let fixture = Fixture::start(["a", "b"]).await;
    for (member, name) in [("a", "x"), ("b", "y")] {
        fixture.member(member).control().serve(SET_KIND, true);
        fixture.member(member).apply(network_set("", name, "1")).unwrap();
    }
    fixture.set_clusters(&["b"]).await;
    fixture.get(SETS).await;
    until(|| async { items(&fixture.get(ALL_SETS).await.ok()) == ["b/y"] }).await;
    fixture.watch(&format!("{ALL_SETS}&watch=1")).await;
    fixture.member("a").control().opaque_versions(SET_KIND, Some("/"));
    let setups = [setup(fixture.member("a"), "a").await, setup(fixture.member("b"), "b").await];
    fixture.router.set_clusters(setups.into());
    until(|| async { items(&fixture.get(ALL_SETS).await.ok()) == ["a/x", "b/y"] }).await;
    fixture.get(&format!("{ALL_SETS}&watch=1")).await.refused(405);
}

/// No kube-apiserver writes such resourceVersions for built-in kinds, so the cluster is faulty. The router still caches
/// and watches the other clusters.
#[tokio::test]
async fn cluster_with_non_numeric_versions_of_built_in_kinds_is_omitted() {
    for policies in [allow(), deny()] {
        let is_whole = policies.default.partial == Partial::Deny;
        let fixture = Fixture::with(["a", "b"].map(config), policies).await;
        fixture.member("a").control().opaque_versions("configmaps", Some("/"));
        fixture.put("a", "x", "1");
        fixture.put("b", "y", "1");
        for path in [OWN.to_owned(), format!("{OWN}&resourceVersion=0"), format!("{OWN}&watch=1&timeoutSeconds=1")] {
            let answer = fixture.get(&path).await;
            let said = match is_whole {
                true => refused_for_good(&answer, 429),
                false if path.contains("watch") => answer.warnings().concat(),
                false => {
                    assert_eq!(items(&answer.ok()), ["b/y"]);
                    answer.warnings().concat()
                }
            };
            for part in ["is not a number", "serve the contexts of these clusters instead"] {
                assert!(said.contains(part), "{path}: {} {said}", answer.code);
            }
        }
        let mut events = fixture.watch(&format!("{OWN}&labelSelector=tributary.dev/cluster!%3Da&watch=1")).await;
        assert_eq!(events.brief().await, "ADDED b/y");
        // The router can still look up a name in the cluster.
        assert_eq!(cluster(&fixture.get(&of("x")).await.ok()), "a");
        assert_eq!(cluster(&fixture.patch(&of("x"), "merge-patch+json", &label()).await.ok()), "a");
        fixture.client().send("DELETE", &of("x"), &[], "").await.ok();
        assert!(fixture.member("a").get("configmaps", "default", "x").is_none());
    }
}
