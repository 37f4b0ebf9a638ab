//! Tests of Karmada's two doors: `clusters/*/proxy` of the aggregated apiserver, and `proxying/NAME/proxy` of the
//! search proxy. The texts of refusals are those of Karmada (`pkg/registry/cluster/storage/aggregate.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tributary_apimachinery::Status;
use tributary_router::{ClusterSetup, KarmadaServers, MemberRules, Policies};
use tributary_simulator::{Authorizer, SimulatedCluster, Simulator};

use crate::harness::{
    ANNOTATION, Answer, CONFIG_MAPS, Client, Fixture, allow, brief, cluster, composite, config, config_map, items,
    name, setup, until, vector, version,
};
use crate::membership::members::{SHOP, fixture};

const ALL: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy";
const SEARCH: &str = "/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy";
const CACHED_FROM: &str = "resource.karmada.io/cached-from-cluster";
const NOT_FOUND: &str = "resource not found or don't have permission to get it\n";

/// The Accept header for the aggregated discovery document.
const AGGREGATED: (&str, &str) = ("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");

/// The encodings of a list.
const LIST_ENCODINGS: [&str; 5] = [
    "application/json",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
];

const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");

async fn start() -> (Fixture, Client) {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("a", "one-a", "1").await;
    fixture.put_and_see("a", "both", "1").await;
    fixture.put_and_see("b", "both", "1").await;
    let client = fixture.client().at_doors_of_karmada(&["a", "b"]);
    (fixture, client)
}

fn is_plain_text(answer: &Answer, code: u16, text: &str) {
    assert_eq!((answer.code, &*String::from_utf8_lossy(&answer.body)), (code, text));
    assert_eq!(answer.headers["content-type"], "text/plain; charset=utf-8");
    assert_eq!(answer.headers["x-content-type-options"], "nosniff");
}

#[track_caller]
fn is_marked(object: &Value, cluster: &str) {
    let annotations = &object["metadata"]["annotations"];
    assert_eq!((&annotations[ANNOTATION], &annotations[CACHED_FROM]), (&json!(cluster), &json!(cluster)), "{object}");
}

#[tokio::test]
async fn named_object_of_all_clusters_is_found_or_refused_in_karmadas_words() {
    let (fixture, client) = start().await;
    let path = |name: &str| format!("{ALL}{CONFIG_MAPS}/{name}");
    let found = client.get(&path("one-a")).await.ok();
    assert_eq!((name(&found), cluster(&found)), ("one-a".to_owned(), "a".to_owned()));
    is_plain_text(&client.get(&path("none")).await, 404, NOT_FOUND);
    let conflict = "conflict resource, exist in more than one cluster: a,b\n";
    is_plain_text(&client.get(&path("both")).await, 409, conflict);
    for (method, headers, body) in [("DELETE", &[][..], ""), ("PATCH", &[MERGE], r#"{"data":{"v":"2"}}"#)] {
        is_plain_text(&client.send(method, &path("none"), headers, body).await, 404, NOT_FOUND);
        is_plain_text(&client.send(method, &path("both"), headers, body).await, 409, conflict);
    }
    client.send("PATCH", &path("one-a"), &[MERGE], r#"{"data":{"v":"2"}}"#).await.ok();
    assert_eq!(fixture.config_maps_of_members()[&("a".to_owned(), "one-a".to_owned())]["v"], "2");
    client.send("DELETE", &path("one-a"), &[], "").await.ok();
    assert!(!fixture.config_maps_of_members().contains_key(&("a".to_owned(), "one-a".to_owned())));
    // A resource that no member serves is an object that no member has.
    for path in ["/apis/none.test/v1/things", "/apis/none.test/v1/things/x", "/api/v1/things"] {
        is_plain_text(&client.get(&format!("{ALL}{path}")).await, 404, NOT_FOUND);
    }
    // The search proxy answers with Statuses.
    client.get(&format!("{SEARCH}{CONFIG_MAPS}/none")).await.refused(404);
    client.get(&format!("{SEARCH}{CONFIG_MAPS}/both")).await.refused(409);
    // The path of a single cluster returns the cluster's own 404.
    client.get(&format!("/apis/cluster.karmada.io/v1alpha1/clusters/a/proxy{CONFIG_MAPS}/none")).await.refused(404);
}

#[tokio::test]
async fn unnamed_request_to_all_clusters_may_only_list() {
    let (fixture, client) = start().await;
    let list = client.get(&format!("{ALL}{CONFIG_MAPS}")).await.ok();
    assert_eq!(items(&list), ["a/both", "a/one-a", "b/both"]);
    list["items"].as_array().unwrap().iter().for_each(|item| is_marked(item, &cluster(item)));
    let before = fixture.config_maps_of_members();
    let body = config_map("new", "1").to_string();
    for (method, query, verb) in
        [("POST", "", "create"), ("GET", "?watch=true", "watch"), ("DELETE", "", "deletecollection")]
    {
        let answer = client.send(method, &format!("{ALL}{CONFIG_MAPS}{query}"), &[], &body).await;
        is_plain_text(&answer, 405, &format!("Request verb {verb} is not support\n"));
    }
    assert_eq!(fixture.config_maps_of_members(), before);
    // The search proxy also allows watches, and creates whose annotation names the cluster.
    let mut events = client.watch(&format!("{SEARCH}{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&list))).await;
    let mut created = config_map("new", "1");
    created["metadata"]["annotations"] = json!({CACHED_FROM: "a", ANNOTATION: "b"});
    client.send("POST", &format!("{SEARCH}{CONFIG_MAPS}"), &[], &created.to_string()).await.ok();
    let event = events.soon().await;
    assert_eq!(brief(&event), "ADDED b/new");
    is_marked(&event["object"], "b");
    assert!(!fixture.member("b").list("configmaps").iter().any(|own| own.to_string().contains(CACHED_FROM)));
}

#[tokio::test]
async fn log_of_a_named_pod_of_all_clusters_comes_from_the_pods_cluster() {
    let configs = ["a", "b"].map(|name| tributary_simulator::SimulatorConfig { pods: 2, ..config(name) });
    let fixture = Fixture::with(configs, allow()).await;
    let client = fixture.client().at_doors_of_karmada(&["a", "b"]);
    let pods = client.get(&format!("{ALL}/api/v1/pods")).await.ok();
    let pod = pods["items"].as_array().unwrap().iter().find(|pod| cluster(pod) == "b").unwrap();
    let namespace = pod["metadata"]["namespace"].as_str().unwrap();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}/log", name(pod));
    let direct = client.get(&format!("/apis/cluster.karmada.io/v1alpha1/clusters/b/proxy{path}")).await;
    let found = client.get(&format!("{ALL}{path}")).await;
    assert_eq!((found.code, &found.body), (direct.code, &direct.body));
    let missing = format!("{ALL}/api/v1/namespaces/{namespace}/pods/none/log");
    is_plain_text(&client.get(&missing).await, 404, NOT_FOUND);
}

/// Karmada omits an unreachable cluster without a Warning.
#[tokio::test]
async fn list_of_all_clusters_warns_of_a_cluster_that_is_down() {
    let (fixture, client) = start().await;
    fixture.member("b").control().stop_listening().await;
    fixture.out_of_reach("b").await;
    for door in [ALL, SEARCH] {
        let answer = client.get(&format!("{door}{CONFIG_MAPS}")).await;
        assert_eq!(items(&answer.ok()), ["a/both", "a/one-a", "b/both"]);
        assert!(answer.warnings().iter().any(|text| text.contains("cluster b")), "{:?}", answer.warnings());
    }
}

/// At Karmada's doors, an object has Tributary's and Karmada's annotations in each encoding. At all other paths, it has
/// only Tributary's annotation.
#[tokio::test]
async fn both_annotations_are_written_in_each_encoding() {
    let (fixture, client) = start().await;
    let plain = fixture.client();
    let list = |accept: &'static str| {
        let (client, plain) = (client.clone(), plain.clone());
        async move {
            let headers = [("accept", accept)];
            let at_door = client.send("GET", &format!("{SEARCH}{CONFIG_MAPS}"), &headers, "").await;
            let merged = plain.send("GET", CONFIG_MAPS, &headers, "").await;
            assert_eq!((at_door.code, merged.code), (200, 200), "{accept}");
            [at_door, merged].map(|answer| String::from_utf8_lossy(&answer.body).into_owned())
        }
    };
    for accept in LIST_ENCODINGS {
        let [at_door, merged] = list(accept).await;
        assert_eq!((at_door.matches(CACHED_FROM).count(), at_door.matches(ANNOTATION).count()), (3, 3), "{accept}");
        assert_eq!((merged.matches(CACHED_FROM).count(), merged.matches(ANNOTATION).count()), (0, 3), "{accept}");
    }
    let one = format!("{CONFIG_MAPS}/one-a");
    for accept in [
        "application/json",
        "application/yaml",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    ] {
        for (method, body) in [("GET", ""), ("PATCH", r#"{"data":{"v":"3"}}"#)] {
            let answer = client.send(method, &format!("{SEARCH}{one}"), &[("accept", accept), MERGE], body).await;
            let text = String::from_utf8_lossy(&answer.body);
            assert_eq!((answer.code, text.matches(CACHED_FROM).count()), (200, 1), "{method} {accept}: {text}");
        }
    }
}

/// The router does not cache the resource, so it reads the objects from the members.
#[tokio::test]
async fn live_list_has_both_annotations_in_each_encoding() {
    let policies = Policies { registered: Some(Vec::new()), ..allow() };
    let fixture = Fixture::with(["a", "b"].map(config), policies).await;
    fixture.put("a", "one-a", "1");
    let client = fixture.client().at_doors_of_karmada(&["a", "b"]);
    for accept in LIST_ENCODINGS {
        let answer = client.send("GET", &format!("{ALL}{CONFIG_MAPS}"), &[("accept", accept)], "").await;
        let text = String::from_utf8_lossy(&answer.body);
        assert_eq!((answer.code, text.matches(CACHED_FROM).count()), (200, 1), "{accept}: {text}");
    }
}

#[tokio::test]
async fn watches_of_both_doors_share_the_log_but_not_the_annotations() {
    let (fixture, client) = start().await;
    let (path, from) = (format!("{CONFIG_MAPS}?watch=1"), "resourceVersion=0");
    let mut at_door = client.watch(&format!("{SEARCH}{path}&{from}")).await;
    let mut merged = fixture.client().watch(&format!("{path}&{from}")).await;
    for _ in 0..3 {
        let (marked, plain) = (at_door.soon().await, merged.soon().await);
        is_marked(&marked["object"], &cluster(&plain["object"]));
    }
    fixture.put("b", "new", "1");
    let (mut marked, plain) = (at_door.soon().await, merged.soon().await);
    is_marked(&marked["object"], "b");
    assert_eq!(
        marked["object"]["metadata"]["annotations"].as_object_mut().unwrap().remove(CACHED_FROM),
        Some("b".into())
    );
    assert_eq!(marked, plain);
}

/// A client replaces an object that it has read at a door of Karmada, or patches the annotations. The member must not
/// receive Karmada's annotation.
#[tokio::test]
async fn karmadas_annotation_never_reaches_a_member() {
    let (fixture, client) = start().await;
    let path = format!("{SEARCH}{CONFIG_MAPS}/one-a");
    let mut object = client.get(&path).await.ok();
    object["data"]["v"] = "put".into();
    client.send("PUT", &path, &[("content-type", "application/json")], &object.to_string()).await.ok();
    let patches = [
        ("application/merge-patch+json", json!({"metadata": {"annotations": {CACHED_FROM: "x", "kept": "1"}}})),
        (
            "application/json-patch+json",
            json!([
                {"op": "test", "path": "/metadata/annotations", "value": {ANNOTATION: "a", CACHED_FROM: "a", "kept": "1"}},
                {"op": "replace", "path": "/metadata/annotations/resource.karmada.io~1cached-from-cluster", "value": "x"},
                {"op": "add", "path": "/metadata/annotations/more", "value": "1"},
            ]),
        ),
    ];
    for (content_type, patch) in patches {
        let answer = client.send("PATCH", &path, &[("content-type", content_type)], &patch.to_string()).await.ok();
        is_marked(&answer, "a");
    }
    let own = fixture.member("a").list("configmaps").into_iter().find(|own| name(own) == "one-a").unwrap();
    assert_eq!(
        (&own["data"]["v"], &own["metadata"]["annotations"]),
        (&json!("put"), &json!({"kept": "1", "more": "1"}))
    );
}

/// Karmada's search proxy writes the version of a list as base64 without padding, of a JSON object with sorted keys
/// (`newMultiClusterResourceVersionFromString`). A watch can resume at Tributary with a version from Karmada, and at
/// Karmada with a version from Tributary.
#[tokio::test]
async fn versions_are_interchangeable_with_karmadas() {
    let (fixture, client) = start().await;
    let list = client.get(&format!("{SEARCH}{CONFIG_MAPS}")).await.ok();
    let own = vector(&version(&list));
    let own = own.as_object().unwrap();
    assert_eq!(own.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert!(own.values().all(|version| version.as_str().unwrap().bytes().all(|byte| byte.is_ascii_digit())));
    assert_eq!(version(&list), composite(&json!(own)), "the text has the only spelling");
    // The form in which Karmada writes the same version.
    let karmadas = composite(&json!({"a": own["a"], "b": own["b"]}));
    let mut events = client.watch(&format!("{SEARCH}{CONFIG_MAPS}?watch=1&resourceVersion={karmadas}")).await;
    fixture.put("a", "later", "1");
    assert_eq!(events.brief().await, "ADDED a/later");
    // The version is from before `b` was added, so it has no component of `b`. The watch receives all objects of `b`.
    let of_a = composite(&json!({"a": own["a"]}));
    let mut events = client.watch(&format!("{SEARCH}{CONFIG_MAPS}?watch=1&resourceVersion={of_a}")).await;
    let mut seen = [events.brief().await, events.brief().await];
    seen.sort();
    assert_eq!(seen, ["ADDED a/later", "ADDED b/both"]);
}

/// An authorizer that allows everything, and records credentials and identities of the requests for users.
#[derive(Default)]
struct Recorder(Mutex<Vec<(String, Vec<String>)>>);

impl Recorder {
    fn of(member: &SimulatedCluster) -> Arc<Self> {
        let recorder = Arc::new(Self::default());
        member.control().authorize(Some(Arc::clone(&recorder) as Arc<dyn Authorizer>));
        recorder
    }

    /// Removes and returns the recorded requests: the method and target, and the `Authorization` and `Impersonate-*`
    /// headers.
    fn came(&self) -> Vec<(String, Vec<String>)> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Authorizer for Recorder {
    fn refusal(&self, headers: &HeaderMap, method: &Method, target: &str) -> Option<Status> {
        let is_identity = |name: &str| name.starts_with("impersonate-") || name == "authorization";
        let own = headers.iter().filter(|(name, _)| is_identity(name.as_str()));
        let mut own: Vec<_> = own.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        own.sort();
        if own.iter().any(|line| line.starts_with("impersonate-")) {
            self.0.lock().push((format!("{method} {target}"), own));
        }
        None
    }

    fn allows(&self, _headers: &HeaderMap, _attributes: &Value) -> bool {
        true
    }
}

/// Returns the servers of Karmada that Tributary forwards to: the control plane, and an earlier server for each API
/// group.
async fn servers(hub: &SimulatedCluster, old: &[(&str, &SimulatedCluster)]) -> KarmadaServers {
    let mut by_group = BTreeMap::new();
    for (group, server) in old {
        by_group.insert((*group).to_owned(), setup(server, "old").await.client.unwrap());
    }
    KarmadaServers::new(setup(hub, "hub").await.client.unwrap(), by_group)
}

/// Returns a client of Ann with every attribute that a user can have.
fn ann(fixture: &Fixture) -> Client {
    let groups = ["dev", "system:masters", "system:authenticated"].map(str::to_owned);
    let mut ann = fixture.user("ann", &groups);
    ann.user.info.uid = "u1".to_owned();
    ann.user.info.extra.insert("team".to_owned(), vec!["x".to_owned()]);
    ann
}

/// Karmada's impersonator may impersonate only the users and groups with the right to `clusters/proxy`.
#[tokio::test]
async fn member_gets_exactly_user_and_groups_from_its_impersonator() {
    let (fixture, _) = fixture(["a", "b"]).await;
    let mut setups = Vec::new();
    for member in &fixture.members {
        let impersonation = MemberRules { uid: true, extra: ["team".to_owned()].into() };
        setups.push(ClusterSetup { impersonation, ..setup(member, member.name()).await });
    }
    setups[0].client.as_ref().unwrap().set_impersonator(Some("second")).unwrap();
    fixture.member("a").control().accept("second", None);
    fixture.router.set_clusters(setups);
    let (direct, karmada) = (ann(&fixture), ann(&fixture).at_doors_of_karmada(&["a", "b"]));
    let recorders = ["a", "b"].map(|name| Recorder::of(fixture.member(name)));
    // Until the router has read both members, it asks them which cluster has an object. The recorders would contain
    // these requests.
    until(async || {
        recorders.iter().for_each(|recorder| drop(recorder.came()));
        let answer = direct.get(&format!("{SHOP}/of-a")).await;
        answer.code == 200 && recorders.iter().all(|recorder| recorder.came().is_empty())
    })
    .await;
    let groups = ["impersonate-group: dev".to_owned(), "impersonate-user: ann".to_owned()];
    let own = format!("authorization: Bearer {}", fixture.member("a").token());
    let paths = [
        format!("/apis/cluster.karmada.io/v1alpha1/clusters/a/proxy{SHOP}/of-a"),
        format!("{ALL}{SHOP}/of-a"),
        format!("{SEARCH}{SHOP}/of-a"),
    ];
    for path in &paths {
        karmada.send("PATCH", path, &[MERGE], r#"{"data":{"v":"2"}}"#).await.ok();
        let expected = [&["authorization: Bearer second".to_owned()], &groups[..]].concat();
        let came = recorders[0].came();
        assert!(!came.is_empty() && came.iter().all(|(_, own)| *own == expected), "{path}: {came:?}");
    }
    direct.send("PATCH", &format!("{SHOP}/of-a"), &[MERGE], r#"{"data":{"v":"3"}}"#).await.ok();
    let expected = [
        own,
        "impersonate-extra-team: x".to_owned(),
        groups[0].clone(),
        "impersonate-uid: u1".to_owned(),
        groups[1].clone(),
    ];
    assert!(recorders[0].came().iter().all(|(_, own)| *own == expected));
    assert!(recorders[1].came().is_empty(), "b has no object of the name");
    // Without an impersonator, Tributary's account impersonates the same user and groups.
    karmada.get(&format!("/apis/cluster.karmada.io/v1alpha1/clusters/b/proxy{SHOP}/of-b")).await.ok();
    let expected = [&[format!("authorization: Bearer {}", fixture.member("b").token())], &groups[..]].concat();
    assert!(recorders[1].came().iter().all(|(_, own)| *own == expected));
}

/// A refusal by Tributary's own account would be 503, because only an administrator could help.
#[tokio::test]
async fn refusal_of_a_limited_impersonator_is_the_answer_of_the_member() {
    let (fixture, rbac) = fixture(["a"]).await;
    let setups = vec![setup(fixture.member("a"), "a").await];
    setups[0].client.as_ref().unwrap().set_impersonator(Some("second")).unwrap();
    fixture.member("a").control().accept("second", None);
    fixture.router.set_clusters(setups);
    let (direct, karmada) = (ann(&fixture), ann(&fixture).at_doors_of_karmada(&["a"]));
    let path = format!("/apis/cluster.karmada.io/v1alpha1/clusters/a/proxy{SHOP}/of-a");
    let patch = async |client: &Client, path: &str| client.send("PATCH", path, &[MERGE], r#"{"data":{"v":"2"}}"#).await;
    until(async || patch(&karmada, &path).await.code == 200).await;
    rbac[0].close();
    let message = patch(&karmada, &path).await.refused(403);
    assert!(message.contains("cannot impersonate resource"), "{message}");
    patch(&direct, &format!("/clusters/a{SHOP}/of-a")).await.refused(503);
}

/// Karmada's search proxy sends these requests with its own rights instead of the caller's (karmada-io/karmada#5485).
#[tokio::test]
async fn karmada_5485_requests_without_a_member_reach_the_control_plane_as_the_caller() {
    let (fixture, rbac) = fixture(["a"]).await;
    let policies = Policies { registered: Some(vec!["configmaps".parse().unwrap()]), ..allow() };
    fixture.router.set_policies(policies);
    let hub = Simulator::start(config("hub")).await.unwrap();
    hub.apply(config_map("of-hub", "1")).unwrap();
    let recorder = Recorder::of(&hub);
    let client = ann(&fixture).at_doors_of_karmada(&["a"]);
    let unknown = "/apis/policy.karmada.io/v1alpha1/propagationpolicies";
    assert_eq!(client.get(&format!("{SEARCH}{unknown}")).await.code, 404, "without a control plane");
    fixture.router.set_karmada(servers(&hub, &[]).await);
    let expected = vec![
        format!("authorization: Bearer {}", hub.token()),
        "impersonate-group: dev".to_owned(),
        "impersonate-user: ann".to_owned(),
    ];
    rbac[0].came();
    for (path, lines) in [
        (format!("{SEARCH}/api/v1/nodes?limit=1"), vec!["GET /api/v1/nodes?limit=1"]),
        (format!("{SEARCH}{unknown}"), vec!["GET /apis/policy.karmada.io/v1alpha1/propagationpolicies"]),
        (format!("{SEARCH}/version"), vec!["GET /version"]),
        (format!("{ALL}/version"), vec!["GET /version"]),
        (format!("{ALL}/metrics?x=1"), vec!["GET /metrics?x=1"]),
        (format!("{SEARCH}{SHOP}/of-a"), vec![]),
        (format!("{ALL}/api/v1/nodes"), vec![]),
    ] {
        client.get(&path).await;
        let came = recorder.came();
        assert_eq!(came.iter().map(|(line, _)| line.as_str()).collect::<Vec<_>>(), lines, "{path}");
        assert!(came.iter().all(|(_, own)| *own == expected), "{path}: {came:?}");
    }
    let nodes = client.get(&format!("{SEARCH}/api/v1/nodes")).await.ok();
    assert_eq!(nodes["items"].as_array().unwrap().len(), 1, "{nodes}");
    assert_eq!(nodes["items"][0]["metadata"]["annotations"][ANNOTATION], Value::Null);
    // The kube-apiserver of the hub handles impersonation itself before it forwards a request. So Tributary accepts no
    // impersonation headers from other clients here.
    let impersonated = client.send("GET", &format!("{SEARCH}/version"), &[("impersonate-user", "root")], "").await;
    assert!(impersonated.refused(403).contains("only the kube-apiserver of the hub"));
    // Tributary sends the name `system:masters` to no cluster, and not to the hub.
    let masters = fixture.user("system:masters", &[]).at_doors_of_karmada(&["a"]);
    masters.get(&format!("{SEARCH}/version")).await.refused(403);
    hub.control().stop_listening().await;
    assert_eq!(client.get(&format!("{SEARCH}/version")).await.code, 503);
}

/// Karmada's APIService leads to Tributary, which implements only a part of the API group. Tributary forwards all other
/// requests of the group to the earlier server.
#[tokio::test]
async fn rest_of_karmadas_groups_reaches_the_old_server_as_the_caller() {
    let (fixture, rbac) = fixture(["a"]).await;
    let [hub, old] = [Simulator::start(config("hub")).await.unwrap(), Simulator::start(config("old")).await.unwrap()];
    let recorder = Recorder::of(&old);
    let client = ann(&fixture).at_doors_of_karmada(&["a"]);
    fixture.router.set_karmada(servers(&hub, &[("cluster.karmada.io", &old)]).await);
    rbac[0].came();
    let expected = vec![
        format!("authorization: Bearer {}", old.token()),
        "impersonate-group: dev".to_owned(),
        "impersonate-user: ann".to_owned(),
    ];
    for (method, path) in [
        ("GET", "/apis/cluster.karmada.io/v1alpha1/clusters/a"),
        ("GET", "/apis/cluster.karmada.io/v1alpha1/clusters?watch=1"),
        ("DELETE", "/apis/cluster.karmada.io/v1alpha1/clusters/a"),
        ("PATCH", "/apis/cluster.karmada.io/v1alpha1/clusters/a/status"),
    ] {
        client.send(method, path, &[MERGE], "{}").await;
        assert_eq!(recorder.came(), [(format!("{method} {path}"), expected.clone())]);
    }
    // The control plane would send these requests back to Tributary.
    for (path, line) in [
        (format!("{SEARCH}/apis/cluster.karmada.io/v1alpha1/clusters"), "/apis/cluster.karmada.io/v1alpha1/clusters"),
        (
            format!("{SEARCH}/openapi/v3/apis/cluster.karmada.io/v1alpha1"),
            "/openapi/v3/apis/cluster.karmada.io/v1alpha1",
        ),
    ] {
        client.get(&path).await;
        assert_eq!(recorder.came(), [(format!("GET {line}"), expected.clone())]);
    }
    let registries = "/apis/search.karmada.io/v1alpha1/resourceregistries";
    assert_eq!(client.get(registries).await.code, 404, "the group has no old server");
    assert!(rbac[0].came().is_empty() && recorder.came().is_empty());
}

#[tokio::test]
async fn discovery_and_openapi_join_members_and_control_plane() {
    let (fixture, _) = fixture(["a"]).await;
    let hub = Simulator::start(config("hub")).await.unwrap();
    for (member, group) in [(fixture.member("a"), "member.test"), (&hub, "hub.test")] {
        member.control().describe(vec![json!({
            "metadata": {"name": group},
            "versions": [{"version": "v1", "resources": [{
                "resource": "things", "responseKind": {"group": group, "version": "v1", "kind": "Thing"},
                "scope": "Cluster", "singularResource": "thing", "verbs": ["get", "list", "watch"],
            }]}],
        })]);
    }
    let (plain, client) = (ann(&fixture), ann(&fixture).at_doors_of_karmada(&["a"]));
    until(async || plain.get("/apis/member.test/v1").await.code == 200).await;
    fixture.router.set_karmada(servers(&hub, &[]).await);
    for door in [ALL, SEARCH] {
        let answer = client.send("GET", &format!("{door}/apis"), &[AGGREGATED], "").await;
        let text = answer.ok().to_string();
        assert!(text.contains("member.test") && text.contains("hub.test"), "{door}: {text}");
        assert_eq!(answer.warnings(), [""; 0]);
        for path in ["/apis", "/", "/api/v1", "/apis/member.test/v1"] {
            client.get(&format!("{door}{path}")).await.ok();
        }
        let tag = client.send("GET", &format!("{door}/apis"), &[AGGREGATED], "").await.headers["etag"].clone();
        let known = ("if-none-match", tag.to_str().unwrap());
        assert_eq!(client.send("GET", &format!("{door}/apis"), &[AGGREGATED, known], "").await.code, 304);
        let index = client.get(&format!("{door}/openapi/v3")).await.ok();
        assert!(index["paths"]["api/v1"]["serverRelativeURL"].is_string(), "{index}");
        client.get(&format!("{door}/openapi/v3/api/v1")).await.ok();
    }
    // A document is requested once, for all callers and both doors.
    let recorder = Recorder::of(&hub);
    client.get(&format!("{ALL}/apis/member.test")).await.ok();
    fixture.user("bob", &[]).at_doors_of_karmada(&["a"]).get(&format!("{SEARCH}/apis/member.test")).await.ok();
    let asked: Vec<_> = recorder.came().into_iter().map(|(line, _)| line).collect();
    assert_eq!(asked, ["GET /apis/member.test"]);
    // If the control plane is unreachable, Tributary serves the members' documents with a Warning.
    hub.control().stop_listening().await;
    until(async || {
        let answer = client.get(&format!("{SEARCH}/api")).await;
        answer.ok().to_string().contains("v1") && answer.warnings().iter().any(|own| own.contains("Karmada"))
    })
    .await;
}
