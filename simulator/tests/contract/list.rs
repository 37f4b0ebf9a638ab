//! Tests of lists and gets.

use serde_json::json;
use tributary_simulator::SimulatorConfig;

use crate::client::{Fixture, names, version};

#[tokio::test]
async fn list_is_complete_sorted_and_in_the_format_of_go() {
    let fixture = Fixture::small().await;
    let answer = fixture.get("/api/v1/pods").await;
    assert_eq!(answer.code, 200);
    assert_eq!(answer.headers["content-type"], "application/json");
    let list = answer.json();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodList"), &json!("v1")));
    let listed = answer.names();
    assert_eq!(listed.len(), 60);
    assert!(listed.is_sorted());
    assert!(list["items"].as_array().unwrap().iter().all(|item| item["kind"].is_null()), "items carry no kind");
    assert_eq!(listed, names(&fixture.member.list("pods").into()));
    let whole = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(whole.contains(r#""items":[{"metadata":{"name":"#), "{}", &whole[..200]);
    let (namespace, name) = listed[0].split_once('/').unwrap();
    let get = fixture.get(&format!("/api/v1/namespaces/{namespace}/pods/{name}")).await;
    assert!(get.body.starts_with(br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"#));
}

#[tokio::test]
async fn each_resource_lists_and_empty_lists_have_items() {
    let fixture = Fixture::small().await;
    for path in [
        "/api/v1/configmaps",
        "/api/v1/events",
        "/api/v1/namespaces",
        "/api/v1/nodes",
        "/api/v1/pods",
        "/api/v1/serviceaccounts",
        "/api/v1/services",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/replicasets",
    ] {
        let answer = fixture.get(path).await;
        assert_eq!(answer.code, 200, "{path}");
        assert!(!answer.names().is_empty(), "{path}");
    }
    assert_eq!(fixture.get("/api/v1/namespaces/nowhere/pods").await.json()["items"], json!([]));
    let system = fixture.get("/api/v1/namespaces/kube-system").await.json();
    assert_eq!(system["metadata"]["uid"].as_str().unwrap().len(), 36);
}

#[tokio::test]
async fn later_list_pages_have_the_state_of_the_first_page() {
    let fixture = Fixture::small().await;
    let first = fixture.get("/api/v1/pods?limit=25").await.json();
    assert_eq!(first["metadata"]["remainingItemCount"], 35);
    let before = names(&fixture.member.list("pods").into());
    // Between the requests for two pages, a pod of a later page is deleted, one pod changes, and one pod is created.
    let (namespace, name) = before[50].split_once('/').unwrap();
    fixture.member.delete("pods", namespace, name).expect("deleted");
    fixture
        .member
        .apply(
            json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "zz", "namespace": namespace}, "spec": {}}),
        )
        .unwrap();
    let mut changed = fixture
        .member
        .get("pods", before[30].split_once('/').unwrap().0, before[30].split_once('/').unwrap().1)
        .unwrap();
    changed["metadata"]["labels"]["new"] = "yes".into();
    fixture.member.apply(changed).unwrap();

    let mut seen = names(&first["items"]);
    let mut page = first.clone();
    while let Some(token) = page["metadata"]["continue"].as_str() {
        page = fixture.get(&format!("/api/v1/pods?limit=25&continue={token}")).await.json();
        assert_eq!(version(&page), version(&first));
        assert!(!page["items"].as_array().unwrap().iter().any(|item| item["metadata"]["labels"]["new"] == "yes"));
        seen.extend(names(&page["items"]));
    }
    assert_eq!(seen, before);
    let now = fixture.get("/api/v1/pods?limit=1").await.json();
    assert_eq!(now["metadata"]["remainingItemCount"], 59);
    assert_ne!(version(&now), version(&first));
}

#[tokio::test]
async fn expired_continue_token_returns_410_with_a_new_token() {
    let fixture = Fixture::small().await;
    let first = fixture.get("/api/v1/pods?limit=25").await.json();
    assert_eq!(fixture.member.delete("pods", "", ""), None);
    fixture.member.apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "extra"}})).unwrap();
    fixture.member.control().compact();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let expired = fixture.get(&format!("/api/v1/pods?limit=25&continue={token}")).await;
    assert_eq!((expired.code, expired.json()["reason"].clone()), (410, json!("Expired")));
    let fresh = expired.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let rest = fixture.get(&format!("/api/v1/pods?continue={fresh}")).await;
    assert_eq!(rest.names().len(), 35);
    let exact =
        fixture.get(&format!("/api/v1/pods?resourceVersion={}&resourceVersionMatch=Exact", version(&first))).await;
    assert_eq!(exact.code, 410);
}

#[tokio::test]
async fn list_resource_version_semantics_equal_those_of_kubernetes() {
    let fixture = Fixture::small().await;
    let old = version(&fixture.get("/api/v1/pods").await.json());
    fixture
        .member
        .apply(json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "default"}}))
        .unwrap();
    let count = |query: String| {
        let fixture = &fixture;
        async move {
            let answer = fixture.get(&format!("/api/v1/pods?{query}")).await;
            (answer.code, if answer.code == 200 { answer.names().len() } else { 0 })
        }
    };
    for (query, expected) in [
        ("resourceVersion=0".to_owned(), (200, 61)),
        ("resourceVersion=0&limit=5".to_owned(), (200, 61)),
        (format!("resourceVersion={old}"), (200, 61)),
        (format!("resourceVersion={old}&limit=500"), (200, 60)),
        (format!("resourceVersion={old}&resourceVersionMatch=Exact"), (200, 60)),
        (format!("resourceVersion={old}&resourceVersionMatch=NotOlderThan&limit=500"), (200, 61)),
        ("resourceVersion=0&resourceVersionMatch=Exact".to_owned(), (422, 0)),
        ("resourceVersionMatch=Exact".to_owned(), (422, 0)),
        (format!("resourceVersion={old}&resourceVersionMatch=Sometimes"), (422, 0)),
        ("sendInitialEvents=true".to_owned(), (422, 0)),
        ("resourceVersion=abc".to_owned(), (400, 0)),
        ("continue=abc".to_owned(), (400, 0)),
        ("labelSelector=%3D%3D".to_owned(), (400, 0)),
        ("fieldSelector=spec.color%3Dred".to_owned(), (400, 0)),
    ] {
        assert_eq!(count(query.clone()).await, expected, "{query}");
    }
    let token = fixture.get("/api/v1/pods?limit=1").await.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    assert_eq!(count(format!("continue={token}&resourceVersion=5")).await.0, 400);
    assert_eq!(count(format!("continue={token}&resourceVersion=0")).await, (200, 60));
}

#[tokio::test]
async fn list_at_future_version_waits_then_returns_504() {
    let fixture = Fixture::small().await;
    let now: u64 = version(&fixture.get("/api/v1/pods").await.json()).parse().unwrap();
    let answer = fixture.get(&format!("/api/v1/pods?resourceVersion={}", now + 100)).await;
    assert_eq!(answer.code, 504);
    assert_eq!(answer.headers["retry-after"], "1");
    assert_eq!(answer.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    let path = format!("/api/v1/pods?resourceVersion={}", now + 1);
    let (answer, ()) = tokio::join!(fixture.get(&path), async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        fixture.member.apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "extra"}})).unwrap();
    });
    assert_eq!(answer.code, 200);
}

#[tokio::test]
async fn continue_token_from_before_a_restore_returns_504_until_its_revision() {
    let fixture = Fixture::small().await;
    let restored: u64 = version(&fixture.get("/api/v1/pods").await.json()).parse().unwrap();
    let extra = |name: &str| json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}});
    fixture.member.apply(extra("extra")).unwrap();
    let first = fixture.get("/api/v1/pods?limit=25").await.json();
    let next = format!("/api/v1/pods?limit=25&continue={}", first["metadata"]["continue"].as_str().unwrap());
    assert!(fixture.member.control().restore(restored));
    let answer = fixture.get(&next).await;
    assert_eq!((answer.code, answer.json()["reason"].clone()), (504, json!("Timeout")));
    assert_eq!(answer.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    fixture.member.apply(extra("other")).unwrap();
    let page = fixture.get(&next).await;
    assert_eq!((page.code, version(&page.json())), (200, version(&first)), "as a page of the new history");
}

#[tokio::test]
async fn lists_with_selectors_have_no_remaining_count() {
    let fixture = Fixture::start(SimulatorConfig { pods: 400, namespaces: 4, ..SimulatorConfig::default() }).await;
    let all = fixture.get("/api/v1/pods").await.json();
    let app = all["items"][0]["metadata"]["labels"]["app.kubernetes.io/name"].as_str().unwrap().to_owned();
    let expected: Vec<_> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|pod| pod["metadata"]["labels"]["app.kubernetes.io/name"] == app.as_str())
        .cloned()
        .collect();
    let selected =
        fixture.get(&format!("/api/v1/pods?labelSelector=app.kubernetes.io%2Fname+in+({app},none)&limit=500")).await;
    assert_eq!(selected.names(), names(&expected.into()));
    let pending = fixture.get("/api/v1/pods?fieldSelector=status.phase!%3DRunning&limit=2").await.json();
    assert!(pending["items"].as_array().unwrap().iter().all(|pod| pod["status"]["phase"] == "Pending"));
    assert!(pending["metadata"]["remainingItemCount"].is_null());
    let one = &selected.names()[0];
    let by_name =
        fixture.get(&format!("/api/v1/pods?fieldSelector=metadata.name%3D{}", one.split_once('/').unwrap().1)).await;
    assert_eq!(by_name.names(), std::slice::from_ref(one));
}

#[tokio::test]
async fn tables_and_metadata_are_served_and_unknown_types_return_406() {
    let fixture = Fixture::small().await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = fixture.get_as("/api/v1/pods?limit=500", table).await.json();
    assert_eq!((&table["kind"], table["rows"].as_array().unwrap().len()), (&json!("Table"), 60));
    assert_eq!(table["columnDefinitions"][0]["name"], "Name");
    assert_eq!(table["rows"][0]["cells"][0], table["rows"][0]["object"]["metadata"]["name"]);
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let partial = fixture.get_as("/api/v1/pods", partial).await.json();
    assert_eq!(partial["kind"], "PartialObjectMetadataList");
    assert!(partial["items"][0]["spec"].is_null() && partial["items"][0]["metadata"]["uid"].is_string());
    assert_eq!(fixture.get_as("/api/v1/pods", "application/vnd.kubernetes.protobuf").await.code, 406);
    assert_eq!(fixture.get_as("/api/v1/pods", "application/vnd.kubernetes.protobuf, */*").await.code, 200);
}

#[tokio::test]
async fn million_pods_are_available_immediately() {
    let fixture =
        Fixture::start(SimulatorConfig { pods: 1_000_000, namespaces: 500, ..SimulatorConfig::default() }).await;
    let page = fixture.get("/api/v1/pods?limit=10").await.json();
    assert_eq!(page["metadata"]["remainingItemCount"], 999_990);
    let last = fixture.get("/api/v1/namespaces/web-0499/pods?limit=1").await.json();
    assert_eq!(names(&last["items"]).len(), 1);
    let name = names(&last["items"])[0].replace('/', "/pods/");
    assert_eq!(fixture.get(&format!("/api/v1/namespaces/{name}")).await.code, 200);
}
