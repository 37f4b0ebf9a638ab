//! Resources that are not held in memory: every member is asked at the time of the request.

use serde_json::json;
use tributary_router::{Partial, Policies, ResourcePattern};
use tributary_simulator::RequestKind;

use crate::harness::{CONFIG_MAPS, Fixture, allow, cluster, config, config_map_in, items, name, vector, version};

/// Policies under which only pods are held.
fn only_pods(partial: Partial) -> Policies {
    let mut policies = allow();
    policies.default.partial = partial;
    Policies { registered: Some(vec![ResourcePattern::parse("pods")]), ..policies }
}

#[tokio::test]
async fn a_list_joins_what_the_members_say_now() {
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
async fn pages_go_from_cluster_to_cluster() {
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
    // A token of a time when the resource was held in memory, or of nowhere.
    fixture.get(&format!("{own}&limit=3&continue=e30")).await.refused(410);
    // Another snapshot than the one that the member still has.
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
async fn selectors_are_the_members_and_clusters_ours() {
    let fixture = Fixture::with(["a", "b"].map(config), only_pods(Partial::Allow)).await;
    fixture.put("a", "x", "1");
    fixture.put("b", "x", "1");
    let own = format!("{CONFIG_MAPS}?fieldSelector=metadata.name!=kube-root-ca.crt");
    let selected = |selector: &str| format!("{own}&labelSelector={selector}");
    assert_eq!(items(&fixture.get(&selected("tributary.dev/cluster%3Db")).await.ok()), ["b/x"]);
    assert_eq!(items(&fixture.get(&selected("tributary.dev/cluster+notin+(b),!nothing")).await.ok()), ["a/x"]);
    assert!(items(&fixture.get(&selected("nothing")).await.ok()).is_empty());
    fixture.get(&format!("{CONFIG_MAPS}?fieldSelector=spec.nothing%3D1")).await.refused(400);
    // Who is not asked is not missed.
    fixture.member("a").control().stop_listening().await;
    let chosen = fixture.get(&selected("tributary.dev/cluster%3Db")).await;
    assert_eq!((items(&chosen.ok()), chosen.warnings().len()), (vec!["b/x".to_owned()], 0));
}

#[tokio::test]
async fn objects_are_found_by_asking() {
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
async fn what_is_just_made_elsewhere_can_be_written_at_once() {
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
async fn logs_pass_untouched() {
    let pods = |name| tributary_simulator::Config { pods: 5, ..config(name) };
    let fixture = Fixture::with(["a", "b"].map(pods), allow()).await;
    let pod = fixture.member("b").list("pods").remove(0);
    let path = format!("/api/v1/namespaces/{}/pods/{}/log", pod["metadata"]["namespace"].as_str().unwrap(), name(&pod));
    let log = fixture.get(&format!("{path}?tailLines=3")).await;
    assert_eq!((log.code, log.headers["content-type"].to_str().unwrap()), (200, "text/plain"));
    assert_eq!(String::from_utf8_lossy(&log.body).lines().count(), 3);
    fixture.get("/api/v1/namespaces/default/pods/nothing/log").await.refused(404);
    // A log that is followed comes as it is written.
    let response = fixture.client().call("GET", &format!("{path}?follow=true&tailLines=1"), &[], "").await;
    let mut body = response.into_body();
    for _ in 0..2 {
        let frame = tokio::time::timeout(crate::harness::SOON, http_body_util::BodyExt::frame(&mut body)).await;
        assert!(frame.unwrap().unwrap().unwrap().data_ref().unwrap().ends_with(b"\n"));
    }
}
