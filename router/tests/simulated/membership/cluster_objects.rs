//! Tests of the resource `clusters`, which shows the state of the fleet as Kubernetes objects.

use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{CONFIG_MAPS, Events, Fixture, allow, name, pass, until, version};

const CLUSTERS: &str = "/apis/aggregation.tributary.dev/v1alpha1/clusters";
const GROUP_VERSION: &str = "aggregation.tributary.dev/v1alpha1";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// Formats an event as `TYPE name STATUS REASON`, with the status and reason of the condition Ready.
fn brief(event: &Value) -> String {
    let ready = &event["object"]["status"]["conditions"][0];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {} {} {}", text(&event["type"]), name(&event["object"]), text(&ready["status"]), text(&ready["reason"]))
}

/// Starts two members of which the router has read the ConfigMaps.
async fn read_fleet() -> Fixture {
    let fixture = Fixture::start(["eu", "us"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    for member in ["eu", "us"] {
        fixture.put_and_see(member, "x", "").await;
    }
    until(async || {
        let list = fixture.get(CLUSTERS).await.ok();
        list["items"].as_array().unwrap().iter().all(|cluster| cluster["status"]["synced"] == "1/1")
    })
    .await;
    fixture
}

/// Checks that a watch sends no event for three seconds. In this time the router looks for changes three times.
pub(crate) async fn calm(events: &mut Events) {
    if let Ok(event) = tokio::time::timeout(Duration::from_secs(3), events.next()).await {
        panic!("nothing was to come, but: {event:?}");
    }
}

/// Returns the next event whose object has the reason `wanted` in the condition Ready. Skips the events before it.
async fn until_reason(events: &mut Events, wanted: &str) -> Value {
    loop {
        let event = events.soon().await;
        if event["object"]["status"]["conditions"][0]["reason"] == wanted {
            return event;
        }
    }
}

#[tokio::test]
async fn clusters_show_the_state_of_the_report() {
    let fixture = read_fleet().await;
    let list = fixture.get(CLUSTERS).await.ok();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ClusterList"), &json!(GROUP_VERSION)));
    let report = fixture.router.report().await;
    let names: Vec<_> = list["items"].as_array().unwrap().iter().map(name).collect();
    assert_eq!(names, ["eu", "us"]);
    for shown in list["items"].as_array().unwrap() {
        let cluster = report.cluster(&name(shown)).unwrap();
        let status = &shown["status"];
        assert_eq!(status["version"].as_str(), cluster.version.as_deref());
        assert_eq!(status["knownResources"], cluster.collections);
        assert_eq!(status["objects"], cluster.objects.to_string());
        assert_eq!(status["conditions"][0]["reason"], "Synced");
        assert!(status.get("staleSince").is_none() && shown["metadata"].get("annotations").is_none(), "{shown}");
        let one = fixture.get(&format!("{CLUSTERS}/{}", name(shown))).await.ok();
        assert_eq!(&one, shown);
    }
    let text = list.to_string();
    let secrets = ["token", "kubeconfig", "127.0.0.1"];
    assert!(secrets.iter().all(|secret| !text.contains(secret)), "{text}");
    fixture.get(&format!("{CLUSTERS}/nobody")).await.refused(404);
    let selected = fixture.get(&format!("{CLUSTERS}?fieldSelector=metadata.name%3Dus")).await.ok();
    assert_eq!(selected["items"].as_array().unwrap().iter().map(name).collect::<Vec<_>>(), ["us"]);
    let labelled = fixture.get(&format!("{CLUSTERS}?labelSelector=region%3Deu")).await.ok();
    assert_eq!(labelled["items"], json!([]));
    fixture.get(&format!("{CLUSTERS}?fieldSelector=status.version%3Dx")).await.refused(400);
}

#[tokio::test]
async fn clusters_have_each_form_of_an_answer() {
    let fixture = read_fleet().await;
    let client = fixture.client();
    let as_form = async |path: &str, accept: &str| client.send("GET", path, &[("accept", accept)], "").await;
    let one = format!("{CLUSTERS}/eu");
    for path in [CLUSTERS, &one] {
        let table = as_form(path, TABLE).await.ok();
        let headings: Vec<_> =
            table["columnDefinitions"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(headings, ["Name", "Ready", "Reason", "Version", "Synced", "Objects", "Stale", "Age"]);
        let row = &table["rows"][0];
        assert_eq!(row["cells"].as_array().unwrap().len(), 8, "{row}");
        assert_eq!(row["cells"].as_array().unwrap()[..3], [json!("eu"), json!("True"), json!("Synced")]);
        assert_eq!((&row["cells"][4], &row["cells"][6]), (&json!("1/1"), &Value::Null));
        assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    }
    let yaml = as_form(CLUSTERS, "application/yaml").await;
    let yaml = String::from_utf8(yaml.body.to_vec()).unwrap();
    assert!(yaml.contains("kind: ClusterList") && yaml.contains("reason: Synced"), "{yaml}");
    let partial = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let partial = as_form(CLUSTERS, partial).await.ok();
    assert_eq!((&partial["kind"], partial["items"][1].get("status")), (&json!("PartialObjectMetadataList"), None));
    let protobuf = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
    let protobuf = as_form(CLUSTERS, protobuf).await;
    assert!(protobuf.code == 200 && protobuf.body.starts_with(b"k8s\0"), "{protobuf:?}");
    as_form(CLUSTERS, "text/html").await.refused(406);
}

#[tokio::test]
async fn writes_of_clusters_are_refused() {
    let fixture = Fixture::start(["eu"]).await;
    let one = format!("{CLUSTERS}/eu");
    let body = json!({"kind": "Cluster", "apiVersion": GROUP_VERSION, "metadata": {"name": "eu"}});
    for (method, path) in
        [("POST", CLUSTERS), ("DELETE", CLUSTERS), ("PUT", &*one), ("DELETE", &*one), ("PATCH", &*one), ("HEAD", &*one)]
    {
        let headers = [("content-type", "application/json")];
        let answer = fixture.client().send(method, path, &headers, &body.to_string()).await;
        assert_eq!(answer.code, 405, "{method} {path}");
    }
    for path in ["clusters/eu/status", "namespaces/n/clusters", "views", "others"] {
        fixture.get(&format!("/apis/{GROUP_VERSION}/{path}")).await.refused(404);
    }
    fixture.get("/clusters/eu/api/v1/namespaces").await.ok();
}

#[tokio::test]
async fn watch_of_clusters_shows_a_member_that_goes_and_returns() {
    let fixture = read_fleet().await;
    let list = fixture.get(CLUSTERS).await.ok();
    let from = version(&list);
    let mut events = fixture.watch(&format!("{CLUSTERS}?watch=1&resourceVersion={from}")).await;
    calm(&mut events).await;
    fixture.member("us").control().stop_listening().await;
    fixture.out_of_reach("us").await;
    let gone = until_reason(&mut events, "Unreachable").await;
    assert_eq!(brief(&gone), "MODIFIED us False Unreachable");
    let mut last = gone.clone();
    if last["object"]["status"].get("staleSince").is_none() {
        last = events.soon().await;
    }
    assert!(last["object"]["status"]["staleSince"].as_str().unwrap().ends_with('Z'), "{last}");
    // As long as the state of the cluster does not change, the watch sends no events.
    calm(&mut events).await;
    fixture.member("us").control().start_listening().await;
    let back = until_reason(&mut events, "Synced").await;
    assert_eq!(brief(&back), "MODIFIED us True Synced");
    fixture.set_clusters(&["eu"]).await;
    let deleted = events.soon().await;
    assert_eq!((&deleted["type"], name(&deleted["object"])), (&json!("DELETED"), "us".to_owned()));
    // A watch that resumes from an event's version gets only the later events.
    let mut resumed = fixture.watch(&format!("{CLUSTERS}?watch=1&resourceVersion={}", version(&back["object"]))).await;
    assert_eq!(resumed.soon().await, deleted);
    let mut resumed = fixture.watch(&format!("{CLUSTERS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(resumed.soon().await["object"]["metadata"]["name"], "us");
    let newest = version(&deleted["object"]);
    calm(&mut fixture.watch(&format!("{CLUSTERS}?watch=1&resourceVersion={newest}")).await).await;
}

#[tokio::test]
async fn watch_of_clusters_sends_initial_events_and_bookmarks() {
    let fixture = read_fleet().await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = fixture.watch(&format!("{CLUSTERS}?{query}&timeoutSeconds=90")).await;
    assert_eq!(brief(&events.soon().await), "ADDED eu True Synced");
    assert_eq!(brief(&events.soon().await), "ADDED us True Synced");
    let end = events.soon().await;
    assert_eq!((&end["type"], &end["object"]["kind"]), (&json!("BOOKMARK"), &json!("Cluster")));
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(version(&end["object"]), version(&fixture.get(CLUSTERS).await.ok()));
    pass(Duration::from_secs(61)).await;
    assert_eq!(events.soon().await["type"], "BOOKMARK");
    pass(Duration::from_secs(30)).await;
    assert_eq!(events.soon().await["type"], "BOOKMARK");
    assert_eq!(events.next().await, None);
    // The watch selects only the cluster `us`. The drain of the router ends the watch, with a bookmark as the last
    // event.
    let mut events = fixture.watch(&format!("{CLUSTERS}?{query}&fieldSelector=metadata.name%3Dus")).await;
    assert_eq!(brief(&events.soon().await), "ADDED us True Synced");
    assert_eq!(events.soon().await["type"], "BOOKMARK");
    fixture.router.drain();
    assert_eq!(events.soon().await["type"], "BOOKMARK");
    assert_eq!(events.next().await, None);
}

#[tokio::test]
async fn clusters_version_of_another_process_gets_410() {
    let fixture = read_fleet().await;
    let replica = fixture.restarted(allow()).await;
    let from = version(&fixture.get(CLUSTERS).await.ok());
    for given in [&*from, "1234", "garbage"] {
        let mut events = replica.watch(&format!("{CLUSTERS}?watch=1&resourceVersion={given}")).await;
        let event = events.soon().await;
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)), "{given}");
        assert_eq!(event["object"]["reason"], "Expired");
        assert_eq!(events.next().await, None);
    }
    replica.get(&format!("{CLUSTERS}?resourceVersion={from}")).await.refused(410);
    replica.get(&format!("{CLUSTERS}?resourceVersion=garbage")).await.refused(400);
    replica.get(&format!("{CLUSTERS}/eu?resourceVersion={from}")).await.refused(400);
    replica.get(&format!("{CLUSTERS}?continue=x")).await.refused(400);
    for valid in ["0", &from] {
        fixture.get(&format!("{CLUSTERS}?resourceVersion={valid}")).await.ok();
        fixture.get(&format!("{CLUSTERS}/eu?resourceVersion={valid}")).await.ok();
    }
}

#[tokio::test]
async fn discovery_and_openapi_of_the_merged_view_list_clusters_last() {
    let fixture = Fixture::start(["eu"]).await;
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let groups = fixture.client().send("GET", "/apis", &[("accept", aggregated)], "").await.ok();
    let last = groups["items"].as_array().unwrap().last().unwrap();
    assert_eq!(last["metadata"]["name"], "aggregation.tributary.dev");
    assert_eq!(last["versions"][0]["resources"][0]["resource"], "clusters");
    let legacy = fixture.get("/apis").await.ok();
    assert_eq!(legacy["groups"].as_array().unwrap().last().unwrap()["preferredVersion"]["groupVersion"], GROUP_VERSION);
    fixture.get("/apis/aggregation.tributary.dev").await.ok();
    let resources = fixture.get(&format!("/apis/{GROUP_VERSION}")).await.ok();
    let names: Vec<_> = resources["resources"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["clusters"]);
    let index = fixture.get("/openapi/v3").await.ok();
    let url = index["paths"][format!("apis/{GROUP_VERSION}")]["serverRelativeURL"].as_str().unwrap();
    let document = fixture.get(url).await;
    assert_eq!(document.headers["cache-control"], "public, immutable");
    assert!(document.ok()["paths"].get(CLUSTERS).is_some());
    let plain = url.split_once('?').unwrap().0;
    assert_eq!(fixture.get(&format!("{plain}?hash=OLD")).await.code, 301);
    let protobuf = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
    assert_eq!(fixture.client().send("GET", plain, &[("accept", protobuf)], "").await.code, 406);
}

#[tokio::test]
async fn clusters_are_listed_without_any_member() {
    let fixture = Fixture::start([]).await;
    assert_eq!(fixture.get(CLUSTERS).await.ok()["items"], json!([]));
    fixture.get("/apis/aggregation.tributary.dev/v1alpha1").await.ok();
    let mut events = fixture.watch(&format!("{CLUSTERS}?watch=1")).await;
    calm(&mut events).await;
}
