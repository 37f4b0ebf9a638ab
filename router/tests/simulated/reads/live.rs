//! Tests of resources that the router does not cache: each request is answered from the members.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use tributary_apimachinery::Partial;
use tributary_router::{Limits, Policies};
use tributary_simulator::RequestKind;

use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::harness::{
    CONFIG_MAPS, Fixture, SOON, allow, cluster, composite, config, config_map_in, items, name, setup, vector, version,
};
use crate::reads::worst::{Worst, others_are_answered};

/// The path of the ConfigMaps in `default`, except the ConfigMap that Kubernetes creates in each namespace.
pub(crate) const OWN: &str = "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name!=kube-root-ca.crt";

/// The size of each member's ConfigMaps in the fixture [`large`], in bytes: twelve objects of 250 KB.
pub(crate) const LARGE_BYTES: usize = 12 * OBJECT_BYTES;

const OBJECT_BYTES: usize = 250_000;

/// Starts members with 3 MB of ConfigMaps each. The router does not cache ConfigMaps.
pub(crate) async fn large<const N: usize>(limits: Limits, names: [&str; N]) -> Fixture {
    let fixture = Fixture::within(limits, names.map(config), only_pods(Partial::Allow)).await;
    for member in names {
        for number in 0..LARGE_BYTES / OBJECT_BYTES {
            fixture.put(member, &format!("x{number:02}"), &"v".repeat(OBJECT_BYTES));
        }
    }
    fixture
}

/// Returns the number of buffered bytes of bodies, from the metrics.
fn held_bytes(fixture: &Fixture) -> u64 {
    let exposition = fixture.router.metrics().expose();
    let line = exposition.lines().find_map(|line| line.strip_prefix(r#"tributary_limit_used{limit="held_bytes"} "#));
    line.map_or(0, |value| value.parse().unwrap())
}

/// Returns the number of lists of ConfigMaps that the members have received.
fn lists(fixture: &Fixture) -> u64 {
    fixture.members.iter().map(|member| member.control().requests_of(RequestKind::List, "configmaps")).sum()
}

fn only_pods(partial: Partial) -> Policies {
    let mut policies = allow();
    policies.default.partial = partial;
    Policies { registered: Some(vec!["pods".parse().unwrap()]), ..policies }
}

#[tokio::test]
async fn list_of_an_uncached_resource_merges_the_members_current_lists() {
    let fixture = Fixture::with(["a", "b"].map(config), only_pods(Partial::Allow)).await;
    fixture.put("a", "x", "1");
    fixture.put("b", "y", "1");
    let path = format!("{CONFIG_MAPS}?fieldSelector=metadata.name!=kube-root-ca.crt");
    let list = fixture.get(&path).await.ok();
    assert_eq!((items(&list), list["kind"].as_str()), (vec!["a/x".into(), "b/y".into()], Some("ConfigMapList")));
    assert_eq!(vector(&version(&list)).as_object().unwrap().len(), 2);
    assert_eq!(vector(&version(&list["items"][1])).as_object().unwrap().keys().collect::<Vec<_>>(), ["b"]);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let list = fixture.client().send("GET", &path, &[("accept", table)], "").await.ok();
    assert_eq!(list["rows"][1]["cells"].as_array().unwrap()[..2], ["y", "b"]);
    let message = fixture.get(&format!("{CONFIG_MAPS}?watch=1")).await.refused(405);
    assert!(message.contains("--resources"), "{message}");
    assert_eq!(fixture.member("a").control().requests_of(RequestKind::Watch, "configmaps"), 0, "nothing is held");
    fixture.member("b").control().stop_listening().await;
    let partial = fixture.get(&path).await;
    assert_eq!(items(&partial.ok()), ["a/x"]);
    assert!(partial.warnings()[0].contains("cluster b: configmaps are missing"), "{:?}", partial.warnings());
    fixture.router.set_policies(only_pods(Partial::Deny));
    assert!(fixture.get(&path).await.refused(429).contains('b'));
}

#[tokio::test]
async fn pages_of_an_uncached_resource_continue_from_cluster_to_cluster() {
    let fixture = Fixture::with(["a", "b", "c"].map(config), only_pods(Partial::Allow)).await;
    for name in ["v", "w", "x", "y", "z"] {
        fixture.put("a", name, "1");
    }
    fixture.put("b", "x", "1");
    fixture.put("c", "x", "1");
    let own = format!("{CONFIG_MAPS}?fieldSelector=metadata.name!=kube-root-ca.crt");
    let (mut pages, mut next) = (Vec::new(), String::new());
    loop {
        let page = fixture.get(&format!("{own}&limit=3{next}")).await.ok();
        pages.push(items(&page));
        let Some(token) = page["metadata"]["continue"].as_str() else {
            assert_eq!(vector(&version(&page)).as_object().unwrap().len(), 3, "the last page has every version");
            break;
        };
        next = format!("&continue={token}");
    }
    assert_eq!(pages, [vec!["a/v", "a/w", "a/x"], vec!["a/y", "a/z", "b/x"], vec!["c/x"]]);
    // Such a continue token is invalid, or from a time when the router cached the resource.
    fixture.get(&format!("{own}&limit=3&continue=e30")).await.refused(410);
    // A client may write any number and any version into a continue token.
    let forged = |token: serde_json::Value| URL_SAFE_NO_PAD.encode(token.to_string());
    let number = forged(json!({"cluster": "", "members": u64::MAX}));
    assert_eq!(items(&fixture.get(&format!("{own}&limit=3&continue={number}")).await.ok()), ["a/v", "a/w", "a/x"]);
    for (cluster, version) in [
        ("c", composite(&json!({"nope": "7"}))),
        ("c", composite(&json!({"a": "7", "nope": "7"}))),
        // The token is for a page of `b`. Its version must not contain `c`, because no page of `c` has been read.
        ("b", composite(&json!({"c": "7"}))),
        ("b", "garbage".to_owned()),
    ] {
        let token = forged(json!({"cluster": cluster, "version": version}));
        fixture.get(&format!("{own}&limit=3&continue={token}")).await.refused(410);
    }
    // The member no longer has the state of the first page.
    let page = fixture.get(&format!("{own}&limit=3")).await.ok();
    let token = page["metadata"]["continue"].as_str().unwrap();
    fixture.put("a", "zz", "1");
    fixture.member("a").control().compact();
    let expired = fixture.get(&format!("{own}&limit=3&continue={token}")).await;
    expired.refused(410);
    let fresh = expired.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let page = fixture.get(&format!("{own}&limit=9&continue={fresh}")).await.ok();
    assert_eq!(items(&page), ["a/y", "a/z", "a/zz", "b/x", "c/x"]);
}

#[tokio::test]
async fn uncached_list_forwards_selectors_and_selects_clusters_itself() {
    let fixture = Fixture::with(["a", "b"].map(config), only_pods(Partial::Allow)).await;
    fixture.put("a", "x", "1");
    fixture.put("b", "x", "1");
    let own = format!("{CONFIG_MAPS}?fieldSelector=metadata.name!=kube-root-ca.crt");
    let selected = |selector: &str| format!("{own}&labelSelector={selector}");
    assert_eq!(items(&fixture.get(&selected("tributary.dev/cluster%3Db")).await.ok()), ["b/x"]);
    assert_eq!(items(&fixture.get(&selected("tributary.dev/cluster+notin+(b),!nothing")).await.ok()), ["a/x"]);
    assert!(items(&fixture.get(&selected("nothing")).await.ok()).is_empty());
    fixture.get(&format!("{CONFIG_MAPS}?fieldSelector=spec.nothing%3D1")).await.refused(400);
    // A Warning mentions only selected clusters.
    fixture.member("a").control().stop_listening().await;
    let chosen = fixture.get(&selected("tributary.dev/cluster%3Db")).await;
    assert_eq!((items(&chosen.ok()), chosen.warnings().len()), (vec!["b/x".to_owned()], 0));
}

#[tokio::test]
async fn uncached_object_is_read_and_written_by_name() {
    let fixture = Fixture::with(["a", "b"].map(config), only_pods(Partial::Allow)).await;
    fixture.put("b", "y", "1");
    let path = format!("{CONFIG_MAPS}/y");
    let mut object = fixture.get(&path).await.ok();
    assert_eq!((cluster(&object).as_str(), name(&object).as_str()), ("b", "y"));
    object["data"]["v"] = "2".into();
    fixture.write("PUT", &path, &object).await.ok();
    fixture.write("PUT", &path, &object).await.refused(409);
    assert_eq!(fixture.patch(&path, "merge-patch+json", &json!({"data": {"v": "3"}})).await.ok()["data"]["v"], "3");
    fixture.put("a", "y", "");
    assert!(fixture.get(&path).await.refused(409).contains("a, b"));
    fixture.write("POST", CONFIG_MAPS, &config_map_in("a", "z", "")).await.ok();
    fixture.client().send("DELETE", &format!("{CONFIG_MAPS}/z"), &[], "").await.ok();
    fixture.get(&format!("{CONFIG_MAPS}/z")).await.refused(404);
    fixture.member("b").control().stop_listening().await;
    fixture.get(&format!("{CONFIG_MAPS}/nothing")).await.refused(503);
}

#[tokio::test]
async fn object_just_created_at_a_member_is_writable_immediately() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    for round in 0..20 {
        let (member, name) = (["a", "b"][round % 2], format!("x{round}"));
        fixture.put(member, &name, "1");
        let path = format!("{CONFIG_MAPS}/{name}");
        let written = fixture.patch(&path, "merge-patch+json", &json!({"data": {"v": "2"}})).await.ok();
        assert_eq!((cluster(&written).as_str(), written["data"]["v"].as_str()), (member, Some("2")));
        fixture.put(member, &format!("{name}-gone"), "1");
        fixture.client().send("DELETE", &format!("{path}-gone"), &[], "").await.ok();
    }
}

#[tokio::test]
async fn pod_logs_are_forwarded_unchanged() {
    let pods = |name| tributary_simulator::SimulatorConfig { pods: 5, ..config(name) };
    let fixture = Fixture::with(["a", "b"].map(pods), allow()).await;
    let pod = fixture.member("b").list("pods").remove(0);
    let path = format!("/api/v1/namespaces/{}/pods/{}/log", pod["metadata"]["namespace"].as_str().unwrap(), name(&pod));
    let log = fixture.get(&format!("{path}?tailLines=3")).await;
    assert_eq!((log.code, log.headers["content-type"].to_str().unwrap()), (200, "text/plain"));
    assert_eq!(String::from_utf8_lossy(&log.body).lines().count(), 3);
    fixture.get("/api/v1/namespaces/default/pods/nothing/log").await.refused(404);
    // The lines of a followed log arrive one by one.
    let response = fixture.client().call("GET", &format!("{path}?follow=true&tailLines=1"), &[], "").await;
    let mut body = response.into_body();
    for _ in 0..2 {
        let frame = tokio::time::timeout(crate::harness::SOON, http_body_util::BodyExt::frame(&mut body)).await;
        assert!(frame.unwrap().unwrap().unwrap().data_ref().unwrap().ends_with(b"\n"));
    }
}

#[tokio::test]
async fn uncached_list_above_the_buffer_is_streamed() {
    let fixture = large(Limits::default(), ["a", "b", "c", "d"]).await;
    let expected: Vec<_> = ["a", "b", "c", "d"]
        .iter()
        .flat_map(|member| (0..12).map(move |number| format!("{member}/x{number:02}")))
        .collect();
    let response = fixture.client().call("GET", OWN, &[], "").await;
    assert_eq!(response.status(), 200);
    let held = held_bytes(&fixture);
    assert!((1 << 20..2 << 20).contains(&held), "{held} bytes of 12 MB are held when the answer begins");
    let whole = response.into_body().collect().await.unwrap().to_bytes();
    let list: serde_json::Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!((items(&list), list["kind"].as_str()), (expected.clone(), Some("ConfigMapList")));
    assert_eq!(vector(&version(&list)).as_object().unwrap().len(), 4);
    assert_eq!(vector(&version(&list["items"][40])).as_object().unwrap().keys().collect::<Vec<_>>(), ["d"]);
    assert_eq!(held_bytes(&fixture), 0);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = fixture.client().send("GET", OWN, &[("accept", table)], "").await.ok();
    let cells = |row: &serde_json::Value| {
        format!("{}/{}", row["cells"][1].as_str().unwrap(), row["cells"][0].as_str().unwrap())
    };
    assert_eq!(table["rows"].as_array().unwrap().iter().map(cells).collect::<Vec<_>>(), expected);
    assert_eq!(table["columnDefinitions"][1]["name"], "Cluster");
    let partial = [("accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")];
    let partial = fixture.client().send("GET", OWN, &partial, "").await.ok();
    assert_eq!((items(&partial), partial["items"][0]["data"].is_null()), (expected, true));
    let protobuf = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let refused = fixture.client().send("GET", OWN, &[("accept", protobuf)], "").await;
    assert_eq!(refused.code, 406, "its length comes first");
}

#[tokio::test]
async fn list_in_yaml_equals_the_list_in_json() {
    let fixture = Fixture::with(["a", "b"].map(config), only_pods(Partial::Allow)).await;
    fixture.put("a", "x", "1");
    fixture.put("b", "y", "- no: list\n");
    for accept in ["", ";as=Table;v=v1;g=meta.k8s.io", ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"] {
        let json_accept = format!("application/json{accept}");
        let json = async || fixture.client().send("GET", OWN, &[("accept", &json_accept)], "").await.ok();
        let accept = format!("application/yaml{accept}");
        let mut before = json().await;
        // Rows contain ages in seconds. So the loop compares two texts only if they are from the same second.
        loop {
            let yaml = fixture.client().send("GET", OWN, &[("accept", &accept)], "").await;
            let yaml: serde_json::Value = serde_saphyr::from_slice(&yaml.body).unwrap();
            let after = json().await;
            if before == after {
                assert_eq!(yaml, after, "{accept}");
                break;
            }
            before = after;
        }
        let none = format!("{OWN}&labelSelector=nothing");
        let yaml = fixture.client().send("GET", &none, &[("accept", &accept)], "").await;
        let yaml: serde_json::Value = serde_saphyr::from_slice(&yaml.body).unwrap();
        assert!(yaml.get("items").or(yaml.get("rows")).unwrap().as_array().unwrap().is_empty(), "{accept}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_clients_are_served_during_long_uncached_lists() {
    let fixture = large(Limits::default(), ["a", "b"]).await;
    others_are_answered(&fixture, Worst::get("a long list of the members", OWN)).await;
}

#[tokio::test]
async fn missing_cluster_is_named_before_a_streamed_list_begins() {
    let fixture = large(Limits::default(), ["a", "b", "c"]).await;
    fixture.member("b").control().stop_listening().await;
    let partial = fixture.get(OWN).await;
    assert!(partial.warnings()[0].contains("cluster b: configmaps are missing"), "{:?}", partial.warnings());
    assert_eq!(items(&partial.ok()).len(), 24);
    fixture.router.set_policies(only_pods(Partial::Deny));
    assert!(fixture.get(OWN).await.refused(429).contains('b'));
}

#[tokio::test]
async fn member_failure_during_a_streamed_list_breaks_the_response() {
    let fixture = large(Limits::default(), ["a", "b", "c"]).await;
    let response = fixture.client().call("GET", OWN, &[], "").await;
    fixture.member("c").control().stop_listening().await;
    let error = response.into_body().collect().await.expect_err("no shorter list");
    assert!(error.to_string().contains("cluster c"), "{error}");
}

#[tokio::test]
async fn disconnected_client_cancels_the_requests_to_members() {
    let fixture = large(Limits::default(), ["a", "b", "c", "d"]).await;
    let mut body = fixture.client().call("GET", OWN, &[], "").await.into_body();
    body.frame().await.unwrap().unwrap();
    let asked = lists(&fixture);
    drop(body);
    tokio::time::sleep(crate::harness::QUIET).await;
    assert_eq!((lists(&fixture), held_bytes(&fixture)), (asked, 0));
}

#[tokio::test]
async fn uncached_list_above_the_memory_limit_gets_a_429() {
    let fixture = large(Limits { held_bytes: 1 << 20, ..Limits::default() }, ["a"]).await;
    let answer = fixture.get(OWN).await;
    let message = answer.refused(429);
    assert!(message.contains("buffered bytes of bodies (--max-held-bytes)"), "{message}");
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(held_bytes(&fixture), 0);
}

#[tokio::test]
async fn pages_of_large_objects_end_at_the_memory_limit() {
    let fixture = large(Limits::default(), ["a", "b", "c"]).await;
    let (mut pages, mut next) = (Vec::new(), String::new());
    loop {
        let page = fixture.get(&format!("{OWN}&limit=500{next}")).await.ok();
        pages.push(items(&page));
        match page["metadata"]["continue"].as_str() {
            Some(token) => next = format!("&continue={token}"),
            None => break,
        }
    }
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [12, 12, 12], "{pages:?}");
    assert_eq!(pages.concat().last().unwrap(), "c/x11");
}

#[tokio::test]
async fn page_is_read_from_as_few_members_as_necessary() {
    let names: [String; 12] = std::array::from_fn(|number| format!("m{number:02}"));
    let fixture = Fixture::with(names.each_ref().map(|name| config(name)), only_pods(Partial::Allow)).await;
    for name in &names {
        for object in ["x", "y", "z"] {
            fixture.put(name, object, "1");
        }
    }
    let (mut asked, mut next) = (Vec::new(), String::new());
    for _ in 0..4 {
        let before = lists(&fixture);
        let page = fixture.get(&format!("{OWN}&limit=2{next}")).await.ok();
        assert!(items(&page).len() <= 2);
        asked.push(lists(&fixture) - before);
        next = format!("&continue={}", page["metadata"]["continue"].as_str().unwrap());
    }
    assert!(asked.iter().all(|asked| *asked <= 3), "pages that one member fills asked {asked:?} members");
    let page = fixture.get(&format!("{OWN}&limit=500")).await.ok();
    assert_eq!(items(&page).len(), 36);
}

/// When a cluster has answered, the router still needs a moment to merge the discovery of all clusters. In this moment,
/// the cluster must not look like a cluster that serves no resource.
#[tokio::test]
async fn cluster_that_just_answered_discovery_does_not_count_as_empty() {
    let fixture = Fixture::with(["a", "b"].map(config), only_pods(Partial::Deny)).await;
    fixture.put("b", "y", "1");
    let (list, object) = (format!("{CONFIG_MAPS}?fieldSelector=metadata.name=y"), format!("{CONFIG_MAPS}/y"));
    for _ in 0..3 {
        fixture.set_clusters(&["a"]).await;
        assert_eq!(items(&fixture.get(&list).await.ok()), [""; 0]);
        fixture.get(&object).await.refused(404);
        fixture.router.set_clusters(vec![setup(fixture.member("a"), "a").await, setup(fixture.member("b"), "b").await]);
        let (mut listed, mut found) = (false, false);
        let end = Instant::now() + SOON;
        while !(listed && found) {
            assert!(Instant::now() < end, "it is never known");
            let [list, object] = [fixture.get(&list).await, fixture.get(&object).await];
            if list.code == 200 {
                assert_eq!(items(&list.ok()), ["b/y"]);
                listed = true;
            }
            assert_ne!(object.code, 404);
            found |= object.code == 200;
        }
    }
}
