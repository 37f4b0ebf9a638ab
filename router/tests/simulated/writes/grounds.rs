//! Tests of how the router finds the one cluster that a write affects: from the content of the write, or because only
//! one cluster is possible.

use serde_json::{Value, json};
use tributary_apimachinery::Names;
use tributary_router::{Policies, ResourcePolicy};
use tributary_simulator::{Rejection, RequestKind};

use crate::harness::{
    ANNOTATION, CONFIG_MAPS, Fixture, allow, cluster, composite, config, config_map, config_map_in, version,
};
use crate::writes::releases::{placed_in_a, record, released};

/// Returns the value of a ConfigMap of `default` in each of these members.
pub(crate) fn values<const N: usize>(fixture: &Fixture, names: [&str; N], name: &str) -> [Value; N] {
    names.map(|member| {
        fixture.member(member).get("configmaps", "default", name).map_or(Value::Null, |it| it["data"]["v"].clone())
    })
}

/// Creates a namespace in a member, and waits until the router has received it.
pub(crate) async fn namespace(fixture: &Fixture, member: &str, name: &str) {
    fixture.member(member).apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})).unwrap();
    let path = format!("/api/v1/namespaces/{name}");
    crate::harness::until(|| async { fixture.get(&path).await.code != 404 }).await;
}

pub(crate) fn config_map_of(namespace: &str, name: &str) -> Value {
    let mut object = config_map(name, "");
    object["metadata"]["namespace"] = namespace.into();
    object
}

/// Starts two members, and a second router that has never read `b`. Both members have the object `x`, and only `a` has
/// `only`. Also returns the fixture with the first router.
pub(crate) async fn with_one_never_seen(policies: Policies) -> (Fixture, Fixture) {
    let mut fixture = Fixture::with(["a", "b"].map(config), allow()).await;
    for (member, name) in [("a", "x"), ("b", "x"), ("a", "only")] {
        fixture.put(member, name, "1");
    }
    fixture.member("b").control().stop_listening().await;
    let other = fixture.restarted(policies).await;
    let members = std::mem::take(&mut fixture.members);
    (Fixture { members, router: other.router }, fixture)
}

#[tokio::test]
async fn precondition_of_a_write_selects_among_objects_of_one_name() {
    let fixture = Fixture::start(["a", "b"]).await;
    let path = format!("{CONFIG_MAPS}/x");
    let plain = json!({"data": {"v": "2"}});
    for round in 0..2 {
        fixture.put_and_see("a", "x", "1").await;
        fixture.put_and_see("b", "x", "1").await;
        fixture.patch(&path, "merge-patch+json", &plain).await.refused(409);
        let list = fixture.get(CONFIG_MAPS).await.ok();
        let of_b =
            list["items"].as_array().unwrap().iter().find(|it| cluster(it) == "b" && it["metadata"]["name"] == "x");
        let read = of_b.unwrap();
        let (own, uid) = (version(read), read["metadata"]["uid"].clone());
        let said = if round == 0 { json!({"resourceVersion": own}) } else { json!({"uid": uid}) };
        let patched = fixture.patch(&path, "merge-patch+json", &json!({"metadata": said, "data": {"v": "2"}})).await;
        assert_eq!(cluster(&patched.ok()), "b");
        assert_eq!(values(&fixture, ["a", "b"], "x"), [json!("1"), json!("2")]);
        // The client sends a whole object without the annotation. The uid names the cluster.
        let mut whole = config_map("x", "3");
        whole["metadata"]["uid"] = uid.clone();
        assert_eq!(cluster(&fixture.write("PUT", &path, &whole).await.ok()), "b");
        let said = if round == 0 { json!({"resourceVersion": version(&patched.ok())}) } else { json!({"uid": uid}) };
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": said});
        if round == 0 {
            fixture.write("DELETE", &path, &options).await.refused(409);
        } else {
            fixture.write("DELETE", &path, &options).await.ok();
            assert_eq!(values(&fixture, ["a", "b"], "x"), [json!("1"), Value::Null]);
        }
    }
}

#[tokio::test]
async fn apply_after_a_deletion_recreates_in_the_cluster_of_its_version() {
    let mut policies = allow();
    policies.default = ResourcePolicy { placement: Some("a".parse().unwrap()), ..policies.default };
    let fixture = Fixture::with(["a", "b"].map(config), policies).await;
    let path = format!("{CONFIG_MAPS}/x");
    let made = fixture.write("POST", CONFIG_MAPS, &config_map_in("b", "x", "1")).await.ok();
    fixture.write("DELETE", &path, &json!({})).await.ok();
    crate::harness::until(|| async { fixture.get(&path).await.code == 404 }).await;
    let mut again = config_map("x", "2");
    again["metadata"]["resourceVersion"] = version(&made).into();
    let applied = fixture.patch(&format!("{path}?fieldManager=t"), "apply-patch+yaml", &again).await;
    assert_eq!((applied.code, cluster(&applied.ok()).as_str()), (201, "b"));
    assert_eq!(values(&fixture, ["a", "b"], "x"), [Value::Null, json!("2")]);
}

#[tokio::test]
async fn write_by_name_is_refused_if_a_cluster_was_never_read() {
    let (fixture, _first) = with_one_never_seen(allow()).await;
    for name in ["x", "only"] {
        let path = format!("{CONFIG_MAPS}/{name}");
        let read = fixture.get(&path).await;
        assert_eq!(cluster(&read.ok()), "a");
        let doubt = format!("cluster b may have configmaps \\\"{name}\\\", too, but cannot be queried (for ");
        assert!(read.warnings().iter().any(|warning| warning.contains(&doubt)), "{:?}", read.warnings());
        let patch = json!({"data": {"v": "2"}});
        for refused in [
            fixture.patch(&path, "merge-patch+json", &patch).await,
            fixture.patch(&format!("{path}?fieldManager=t"), "apply-patch+yaml", &config_map(name, "2")).await,
            fixture.write("PUT", &path, &config_map(name, "2")).await,
            fixture.client().send("DELETE", &path, &[], "").await,
            fixture.client().send("DELETE", &format!("{path}?dryRun=All"), &[], "").await,
        ] {
            let message = refused.refused(503);
            let expected = format!(
                "kubectl --context a … if you mean the object in a: b may have configmaps \"{name}\", too, and cannot \
                 be queried (for "
            );
            assert!(message.starts_with(&expected), "{message}");
            // With Retry-After, kubectl would retry ten times.
            assert_eq!(refused.headers.get("retry-after"), None, "{message}");
        }
        assert_eq!(values(&fixture, ["a"], name), [json!("1")]);
        // With an annotation that names the cluster, the write succeeds.
        let mut annotated = patch.clone();
        annotated["metadata"] = json!({"annotations": {ANNOTATION: "a"}});
        assert_eq!(cluster(&fixture.patch(&path, "merge-patch+json", &annotated).await.ok()), "a");
        assert_eq!(cluster(&fixture.write("PUT", &path, &read.ok()).await.json()), "", "that version is stale now");
        let again = fixture.get(&path).await.ok();
        let mut whole = config_map(name, "3");
        whole["metadata"]["resourceVersion"] = version(&again).into();
        assert_eq!(cluster(&fixture.write("PUT", &path, &whole).await.ok()), "a");
        let (path, kind) = (format!("{path}?fieldManager=t&force=true"), "apply-patch+yaml");
        let applied = fixture.patch(&path, kind, &config_map_in("a", name, "4")).await;
        assert_eq!(cluster(&applied.ok()), "a");
        let path = format!("{CONFIG_MAPS}/{name}");
        fixture.write("PUT", &path, &config_map_in("b", name, "")).await.refused(503);
    }
}

#[tokio::test]
async fn registry_with_unique_names_writes_to_the_cached_object() {
    let policies =
        Policies { default: ResourcePolicy { names: Names::Unique, ..allow().default }, ..Policies::default() };
    let (fixture, _first) = with_one_never_seen(policies).await;
    let path = format!("{CONFIG_MAPS}/x");
    assert_eq!(fixture.get(&path).await.warnings(), Vec::<String>::new());
    let patched = fixture.patch(&path, "merge-patch+json", &json!({"data": {"v": "2"}})).await;
    assert_eq!(cluster(&patched.ok()), "a");
    // When `b` answers, both clusters have the name, so a write without the cluster is ambiguous.
    fixture.member("b").control().start_listening().await;
    crate::harness::until(|| async { fixture.get(&path).await.code == 409 }).await;
    fixture.patch(&path, "merge-patch+json", &json!({"data": {"v": "3"}})).await.refused(409);
}

#[tokio::test]
async fn write_to_an_uncached_name_is_refused_during_an_outage() {
    let policies = Policies { registered: Some(Vec::new()), ..allow() };
    let (fixture, _first) = with_one_never_seen(policies).await;
    let path = format!("{CONFIG_MAPS}/x");
    let read = fixture.get(&path).await;
    assert_eq!(cluster(&read.ok()), "a");
    assert!(read.warnings().iter().any(|warning| warning.contains("cluster b may have ")), "{:?}", read.warnings());
    let message = fixture.patch(&path, "merge-patch+json", &json!({"data": {"v": "2"}})).await.refused(503);
    assert!(message.starts_with("kubectl --context a … "), "{message}");
}

#[tokio::test]
async fn new_object_goes_to_the_only_possible_cluster() {
    let fixture = Fixture::start(["a", "b"]).await;
    namespace(&fixture, "b", "only-b").await;
    let maps = "/api/v1/namespaces/only-b/configmaps";
    assert_eq!(cluster(&fixture.write("POST", maps, &config_map_of("only-b", "x")).await.ok()), "b");
    let apply =
        fixture.patch(&format!("{maps}/y?fieldManager=t"), "apply-patch+yaml", &config_map_of("only-b", "y")).await;
    assert_eq!(cluster(&apply.ok()), "b");
    // Both clusters have the namespace. Only one serves the kind, or has the node that the object names.
    fixture.member("a").control().serve("deployments.apps", false);
    let deployment =
        json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d", "namespace": "default"}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let other = fixture.restarted(allow()).await;
    assert_eq!(cluster(&other.write("POST", deployments, &deployment).await.ok()), "b");
    fixture.member("a").apply(json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-x"}})).unwrap();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, node: &str| {
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
    };
    assert_eq!(cluster(&fixture.write("POST", pods, &pod("p", "node-x")).await.ok()), "a");
    let message = fixture.write("POST", pods, &pod("q", "nobody's")).await.refused(400);
    let expected = "kubectl --context a … (or b): no rule selects the cluster in which to create pods \"q\"; or ";
    assert!(message.starts_with(expected), "{message}");
}

#[tokio::test]
async fn only_cluster_with_the_namespace_overrides_the_placement() {
    let placed = |cluster: &str| {
        let placement = Some(cluster.parse().unwrap());
        Policies { default: ResourcePolicy { placement, ..allow().default }, ..Policies::default() }
    };
    let fixture = Fixture::with(["a", "b", "c"].map(config), placed("a")).await;
    namespace(&fixture, "b", "only-b").await;
    let maps = "/api/v1/namespaces/only-b/configmaps";
    assert_eq!(cluster(&fixture.write("POST", maps, &config_map_of("only-b", "x")).await.ok()), "b");
    // The annotation names a cluster without the namespace. The message says why this cluster was chosen, and which
    // clusters have the namespace.
    let mut wrong = config_map_of("only-b", "y");
    wrong["metadata"]["annotations"] = json!({ANNOTATION: "c"});
    let message = fixture.write("POST", maps, &wrong).await.refused(404);
    let expected = "kubectl --context b …: namespaces \"only-b\" not found in c, which was chosen because the \
                    annotation tributary.dev/cluster names this cluster; the namespace is in b";
    assert_eq!(message, expected);
    let of_both = "/api/v1/namespaces/of-both/configmaps";
    namespace(&fixture, "b", "of-both").await;
    fixture
        .member("c")
        .apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "of-both"}}))
        .unwrap();
    crate::harness::until(|| async { fixture.get("/api/v1/namespaces/of-both").await.code == 409 }).await;
    let message = fixture.write("POST", of_both, &config_map_of("of-both", "x")).await.refused(404);
    assert!(
        message.contains("not found in a, which was chosen because --create-in")
            && message.ends_with("the namespace is in b, c"),
        "{message}"
    );
    let path = format!("{of_both}/x?fieldManager=t");
    let applied = fixture.patch(&path, "apply-patch+yaml", &config_map_of("of-both", "x")).await;
    assert_eq!(applied.refused(404), message);
    let nowhere =
        fixture.write("POST", "/api/v1/namespaces/no/configmaps", &config_map_of("no", "x")).await.refused(404);
    let expected = "kubectl --context a create namespace no: namespaces \"no\" not found in a, which was chosen";
    assert!(nowhere.starts_with(expected) && nowhere.contains("no other"), "{nowhere}");
}

#[tokio::test]
async fn missing_namespace_in_a_single_cluster_gets_the_members_404() {
    let fixture = Fixture::start(["a"]).await;
    let path = "/api/v1/namespaces/no/configmaps";
    let own = fixture.write("POST", &format!("/clusters/a{path}"), &config_map_of("no", "x")).await.refused(404);
    assert_eq!(fixture.write("POST", path, &config_map_of("no", "x")).await.refused(404), own);
}

pub(crate) fn with(mut object: Value, metadata: Value) -> Value {
    for (key, value) in metadata.as_object().unwrap() {
        object["metadata"][key] = value.clone();
    }
    object
}

#[tokio::test]
async fn placement_rules_apply_in_their_documented_order() {
    let placement = Some("b".parse().unwrap());
    let placed = Policies { default: ResourcePolicy { placement, ..allow().default }, ..Policies::default() };
    let fixture = Fixture::with(["a", "b"].map(config), placed).await;
    namespace(&fixture, "a", "only-a").await;
    for member in ["a", "b"] {
        fixture.put_and_see(member, &format!("owner-{member}"), "").await;
        fixture.member(member).apply(record(&format!("release-{member}"), 1)).unwrap();
        let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": format!("node-{member}")}});
        fixture.member(member).apply(node).unwrap();
    }
    let owned = |member: &str| {
        let name = format!("owner-{member}");
        let uid = &fixture.member(member).get("configmaps", "default", &name).unwrap()["metadata"]["uid"];
        json!({"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid}]})
    };
    let of_release = |member: &str| {
        let release = format!("release-{member}");
        json!({"annotations": {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "default"}})
    };
    let pod = |name: &str, node: &str| {
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
    };
    let pods = "/api/v1/namespaces/default/pods";
    let only_a = "/api/v1/namespaces/only-a/configmaps";
    for (case, path, object) in [
        ("annotation a, owner b", CONFIG_MAPS, with(config_map_in("a", "x1", ""), owned("b"))),
        ("owner a, release b", CONFIG_MAPS, with(with(config_map("x2", ""), owned("a")), of_release("b"))),
        ("release a, node b", pods, with(pod("x3", "node-b"), of_release("a"))),
        ("node a, placement b", pods, pod("x4", "node-a")),
        ("namespace a, placement b", only_a, config_map_of("only-a", "x5")),
    ] {
        assert_eq!(cluster(&fixture.write("POST", path, &object).await.ok()), "a", "{case}");
    }
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &config_map("x6", "")).await.ok()), "b", "nothing else");
}

#[tokio::test]
async fn create_without_placement_is_refused_if_a_cluster_was_never_read() {
    // The cluster that was never read may have the namespace, so the router needs a placement.
    let (fixture, _first) = with_one_never_seen(allow()).await;
    let message = fixture.write("POST", CONFIG_MAPS, &config_map("new", "")).await.refused(503);
    let expected = "kubectl --context a … to create configmaps \"new\" in a: b may serve configmaps, too, and cannot";
    assert!(message.starts_with(expected), "{message}");
    let generated = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"generateName": "new-"}});
    let message = fixture.write("POST", CONFIG_MAPS, &generated).await.refused(503);
    assert!(message.starts_with("kubectl --context a … to create configmaps in a: "), "{message}");
    let named = fixture.write("POST", CONFIG_MAPS, &config_map_in("a", "named", "")).await;
    assert_eq!(cluster(&named.ok()), "a");
    let placement = Some("a".parse().unwrap());
    let placed = Policies { default: ResourcePolicy { placement, ..allow().default }, ..Policies::default() };
    let (fixture, _first) = with_one_never_seen(placed).await;
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &config_map("new", "")).await.ok()), "a");
}

/// Makes a member forbid one kind of request for a resource.
pub(crate) fn forbid(fixture: &Fixture, member: &str, kind: RequestKind, resource: &str) {
    let (kinds, resources) = (vec![kind], vec![resource.to_owned()]);
    fixture.member(member).control().reject(Some(Rejection { kinds, resources, ..Rejection::all(403) }));
}

#[tokio::test]
async fn create_is_refused_if_a_cluster_forbids_a_decisive_lookup() {
    let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(false)).await;
    // Both clusters have the namespace, and `member` forbids gets of namespaces.
    for (member, other) in [("b", "a"), ("a", "b")] {
        forbid(&fixture, member, RequestKind::Get, "namespaces");
        let answer = fixture.write("POST", CONFIG_MAPS, &config_map(&format!("of-{other}"), "")).await;
        match member {
            // Cluster `a` is the default placement, and the router finds the namespace there.
            "b" => assert_eq!(cluster(&answer.ok()), "a"),
            _ => assert!(answer.refused(503).contains("kubectl --context b …"), "{answer:?}"),
        }
        fixture.member(member).control().reject(None);
    }
    fixture.member("b").apply(record("r", 1)).unwrap();
    forbid(&fixture, "b", RequestKind::List, "configmaps");
    let message = fixture.write("POST", CONFIG_MAPS, &released("new", "r")).await.refused(503);
    assert!(message.contains("may be in b, which cannot be queried"), "{message}");
    assert_eq!(values(&fixture, ["a", "b"], "new"), [Value::Null, Value::Null]);
}

#[tokio::test]
async fn write_is_refused_while_an_aggregated_server_is_silent() {
    let fixture = Fixture::with(["a", "b"].map(config), allow()).await;
    let deployment =
        json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d", "namespace": "default"}});
    for member in ["a", "b"] {
        fixture.member(member).apply(deployment.clone()).unwrap();
    }
    fixture.member("b").control().serve_group("apps", false);
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    for registered in [None, Some(Vec::new())] {
        let router = fixture.restarted(Policies { registered, ..allow() }).await;
        let refused = router.client().send("DELETE", deployments, &[], "").await;
        let message = refused.refused(503);
        assert!(message.contains("the server behind its apps/v1 does not answer"), "{message}");
        let patch = json!({"metadata": {"labels": {"l": "2"}}});
        router.patch(&format!("{deployments}/d"), "merge-patch+json", &patch).await.refused(503);
        let kept = fixture.member("a").get("deployments.apps", "default", "d").expect("nothing is deleted");
        assert_eq!(kept["metadata"]["labels"]["l"], Value::Null);
        let selected = format!("{deployments}?labelSelector=tributary.dev%2Fcluster%3Da&dryRun=All");
        router.client().send("DELETE", &selected, &[], "").await.ok();
    }
}

#[tokio::test]
async fn apply_keeps_its_version_precondition_for_an_uncached_object() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    fixture.member("a").control().lag_watches(crate::harness::SOON * 10);
    let revision = fixture.put("a", "x", "1");
    let apply = format!("{CONFIG_MAPS}/x?fieldManager=t&force=true");
    let mut object = config_map_in("a", "x", "mine");
    object["metadata"]["resourceVersion"] = composite(&json!({"a": revision.to_string()})).into();
    fixture.put("a", "x", "another's");
    fixture.patch(&apply, "apply-patch+yaml", &object).await.refused(409);
    assert_eq!(values(&fixture, ["a"], "x"), [json!("another's")]);
    // As in kube-apiserver, an apply that creates the object ignores the resourceVersion.
    fixture.member("a").delete("configmaps", "default", "x");
    assert_eq!(fixture.patch(&apply, "apply-patch+yaml", &object).await.code, 201);
}

/// The version can never match an object of `a`. The router must refuse it, although the new object is not in memory.
#[tokio::test]
async fn impossible_version_is_refused_for_an_uncached_object() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.get(CONFIG_MAPS).await.ok();
    fixture.member("a").control().lag_watches(crate::harness::SOON * 10);
    fixture.put("a", "x", "another's");
    let of_others = ["b", "nope"].map(|other| composite(&json!({other: "7"})));
    let unusable = ["garbage", "12", &of_others[0], &of_others[1]];
    for (version, name) in unusable.into_iter().flat_map(|version| ["x", "nothing"].map(|name| (version, name))) {
        let path = format!("{CONFIG_MAPS}/{name}");
        let object = with(config_map_in("a", name, "mine"), json!({"resourceVersion": version}));
        for kind in ["apply-patch+yaml", "merge-patch+json", "strategic-merge-patch+json"] {
            let answer = fixture.patch(&format!("{path}?fieldManager=t"), kind, &object).await;
            let message = answer.refused(409);
            assert!(message.contains("the resourceVersion of the object is not "), "{kind} {version}: {message}");
        }
        fixture.write("PUT", &path, &object).await.refused(409);
        let test = json!([{"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "test", "path": "/metadata/annotations/tributary.dev~1cluster", "value": "a"}]);
        fixture.patch(&path, "json-patch+json", &test).await.refused(409);
        assert_eq!(values(&fixture, ["a"], "nothing"), [Value::Null], "{version}");
    }
    for unreadable in ["garbage", "12", "0"] {
        for name in ["x", "nothing"] {
            let path = format!("{CONFIG_MAPS}/{name}");
            let options = json!({"preconditions": {"resourceVersion": unreadable}});
            fixture.write("DELETE", &path, &options).await.refused(409);
            fixture
                .client()
                .send("DELETE", &format!("{path}?resourceVersion={unreadable}"), &[], "")
                .await
                .refused(409);
        }
    }
    assert_eq!(values(&fixture, ["a"], "x"), [json!("another's")]);
}

/// The options of a DELETE without a body are in the query. A DELETE with a body ignores the query.
#[tokio::test]
async fn delete_reads_options_from_its_body_or_else_its_query() {
    let fixture = Fixture::start(["a", "b"]).await;
    let path = format!("{CONFIG_MAPS}/x");
    for member in ["a", "b"] {
        fixture.put_and_see(member, "x", "1").await;
    }
    let delete = async |query: &str, body: &str| {
        let headers = [("content-type", "application/json")];
        fixture.client().send("DELETE", &format!("{path}?{query}"), &headers, body).await
    };
    let of = |member: &str, field: &str| {
        fixture.member(member).get("configmaps", "default", "x").unwrap()["metadata"][field]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let uid = of("b", "uid");
    delete("", "").await.refused(409);
    // With a body, the uid in the query has no effect, so the name is ambiguous.
    delete(&format!("uid={uid}"), "{}").await.refused(409);
    delete("uid=another", "").await.refused(409);
    delete(&format!("u%69d={uid}&dryRun=All"), "").await.ok();
    assert_eq!(values(&fixture, ["a", "b"], "x"), [json!("1"), json!("1")]);
    delete(&format!("uid={uid}"), "").await.ok();
    assert_eq!(values(&fixture, ["a", "b"], "x"), [json!("1"), Value::Null]);
    fixture.get(&path).await.ok();
    let version = composite(&json!({"a": of("a", "resourceVersion")}));
    fixture.put_and_see("b", "x", "1").await;
    delete(&format!("resource%56ersion={version}"), "").await.ok();
    assert_eq!(values(&fixture, ["a", "b"], "x"), [Value::Null, json!("1")]);
    // With a body, the member ignores `dryRun` in the query. The object is deleted, and reads must wait for this
    // deletion.
    fixture.member("b").control().lag_watches(std::time::Duration::from_millis(300));
    delete("dryRun=All", &json!({"preconditions": {"uid": of("b", "uid")}}).to_string()).await.ok();
    assert_eq!(fixture.get(&path).await.code, 404, "read your writes");
}

#[tokio::test]
async fn refusal_contains_the_last_error_of_the_cluster() {
    let fixture = Fixture::start(["a", "b"]).await;
    let control = fixture.member("b").control();
    let refuse = |code, kinds: &[RequestKind]| {
        let (kinds, resources) = (kinds.to_vec(), vec!["configmaps".to_owned()]);
        control.reject(Some(Rejection { kinds, resources, ..Rejection::all(code) }));
    };
    // If a cluster only forbids lists and watches, the router can look up the name.
    refuse(403, &[RequestKind::List, RequestKind::Watch]);
    fixture.get(&format!("{CONFIG_MAPS}/nowhere")).await.refused(404);
    refuse(500, &[RequestKind::List, RequestKind::Watch, RequestKind::Get]);
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    fixture.put_and_see("a", "x", "1").await;
    let message = fixture.patch(&format!("{CONFIG_MAPS}/x"), "merge-patch+json", &patch).await.refused(503);
    assert!(message.contains("the cluster answered 500"), "{message}");
}

/// The router inserts names from the owner reference into a path. A crafted name must not lead to a different object.
#[tokio::test]
async fn owner_reference_with_path_characters_is_ignored() {
    let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(false)).await;
    fixture.put("b", "x", "1");
    for (namespace, name) in [
        ("default/configmaps/x?", "y"),
        ("default/configmaps/x#", "y"),
        ("default/configmaps/x%3F", "y"),
        ("../namespaces/default", "x"),
        ("default", ".."),
        ("default", "../configmaps/x"),
        // kube-apiserver also decodes percent escapes, so both names mean a subresource of `x`.
        ("default", "x/status"),
        ("default", "x%2Fstatus"),
    ] {
        let about = json!({"kind": "ConfigMap", "apiVersion": "v1", "namespace": namespace, "name": name});
        let event = json!({"kind": "Event", "apiVersion": "v1", "involvedObject": about,
            "metadata": {"generateName": "e-", "namespace": "default"}});
        let made = fixture.write("POST", "/api/v1/namespaces/default/events", &event).await.ok();
        assert_eq!(cluster(&made), "a", "{namespace} {name}");
    }
    let asked = ["a", "b"].map(|member| fixture.member(member).control().requests_of(RequestKind::Get, "configmaps"));
    assert_eq!(asked, [0, 0], "nobody is asked for what is no name");
}

#[tokio::test]
async fn refusal_names_the_placement_rule_of_each_write() {
    let placement = Some("b".parse().unwrap());
    let placed = Policies { default: ResourcePolicy { placement, ..allow().default }, ..Policies::default() };
    let mut fixture = Fixture::with(["a", "b"].map(config), allow()).await;
    fixture.member("b").control().serve("deployments.apps", false);
    fixture.router = fixture.restarted(placed).await.router;
    let gone = |object: Value| with(object, json!({"namespace": "gone"}));
    for object in [gone(config_map("owner", "")), gone(record("r", 1))] {
        fixture.member("a").apply(object).unwrap();
    }
    let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-a"}});
    fixture.member("a").apply(node).unwrap();
    let path = |plural: &str| format!("/api/v1/namespaces/gone/{plural}");
    let uid = fixture.member("a").get("configmaps", "gone", "owner").unwrap()["metadata"]["uid"].clone();
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "namespace": "gone", "uid": uid});
    let event = json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": "e"}, "involvedObject": owner});
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"},
        "spec": {"nodeName": "node-a", "containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d"}});
    let of_owner = "the owner of the object, or the object of the Event, is in this cluster";
    for (words, cluster, path, object) in [
        (
            "the annotation tributary.dev/cluster names this cluster",
            "a",
            path("configmaps"),
            gone(config_map_in("a", "x", "")),
        ),
        (of_owner, "a", path("configmaps"), with(gone(config_map("x", "")), json!({"ownerReferences": [owner]}))),
        (of_owner, "a", path("events"), gone(event)),
        (
            "the records of the Helm release are in this cluster",
            "a",
            path("configmaps"),
            with(gone(config_map("x", "")), json!({"annotations": {"meta.helm.sh/release-name": "r"}})),
        ),
        ("only this cluster has the Pod or its node", "a", path("pods"), gone(pod)),
        (
            "no other cluster serves the resource",
            "a",
            "/apis/apps/v1/namespaces/gone/deployments".to_owned(),
            gone(deployment),
        ),
        (
            "--create-in, or placement of a ResourceRegistry, names this cluster",
            "b",
            path("configmaps"),
            gone(config_map("x", "")),
        ),
    ] {
        let message = fixture.write("POST", &path, &object).await.refused(404);
        let expected = format!("namespaces \"gone\" not found in {cluster}, which was chosen because {words}; ");
        assert!(message.contains(&expected), "{words}: {message}");
    }
    // The resourceVersion names cluster `a`, in which the object existed before.
    let again = with(gone(config_map("x", "")), json!({"resourceVersion": composite(&json!({"a": "7"}))}));
    let applied = fixture.patch(&format!("{}/x?fieldManager=t", path("configmaps")), "apply-patch+yaml", &again).await;
    let message = applied.refused(404);
    assert!(
        message.contains("in a, which was chosen because the resourceVersion or uid is of that cluster;"),
        "{message}"
    );
}

#[tokio::test]
async fn refusal_names_the_cluster_that_may_have_the_object() {
    // The second router has never read `b`, so `b` may have the object.
    let (fixture, _first) = with_one_never_seen(allow()).await;
    let patched = fixture.patch(&format!("{CONFIG_MAPS}/x"), "merge-patch+json", &json!({"data": {"v": "2"}})).await;
    assert!(
        patched.refused(503).contains("if you mean the object in a: b may have configmaps \"x\", too"),
        "{patched:?}"
    );
    let made = fixture.write("POST", CONFIG_MAPS, &config_map("new", "")).await;
    assert!(made.refused(503).contains("to create configmaps \"new\" in a: b may serve configmaps, too"), "{made:?}");
    // In this part of the test, the router has read `b`, but `b` forbids gets of namespaces and nodes.
    let policies = Policies { registered: Some(Vec::new()), ..allow() };
    let fixture = Fixture::with(["a", "b"].map(config), policies).await;
    forbid(&fixture, "b", RequestKind::Get, "namespaces");
    let made = fixture.write("POST", CONFIG_MAPS, &config_map("new", "")).await;
    assert!(made.refused(503).contains("in a: b may have its namespace, too"), "{made:?}");
    fixture.member("a").apply(json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "node-a"}})).unwrap();
    forbid(&fixture, "b", RequestKind::Get, "nodes");
    let pod = json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"},
        "spec": {"nodeName": "node-a", "containers": [{"name": "c", "image": "i"}]}});
    let made = fixture.write("POST", "/api/v1/namespaces/default/pods", &pod).await;
    assert!(made.refused(503).contains("in a: b may have the Pod or its node, too"), "{made:?}");
}

#[tokio::test]
async fn uid_that_two_clusters_share_identifies_neither_object() {
    let fixture = Fixture::start(["a", "b"]).await;
    let path = format!("{CONFIG_MAPS}/x");
    fixture.put_and_see("a", "x", "1").await;
    fixture.get(CONFIG_MAPS).await.ok();
    let uid = fixture.member("a").get("configmaps", "default", "x").unwrap()["metadata"]["uid"].clone();
    // A hostile member creates an object with the same uid.
    let revision = fixture.put_and_see("b", "other", "").await;
    let copy = with(config_map("x", "theirs"), json!({"uid": uid, "resourceVersion": revision.to_string()}));
    assert!(fixture.member("b").control().inject("configmaps", &json!({"type": "ADDED", "object": copy}).to_string()));
    crate::harness::until(|| async { fixture.get(&path).await.code == 409 }).await;
    let typed = "kubectl --context a … or kubectl --context b …, or set the annotation tributary.dev/cluster: \
                 configmaps \"x\" has the same uid in more than one cluster";
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": uid});
    let owned = with(config_map("owned", ""), json!({"ownerReferences": [owner]}));
    for refused in [
        fixture.write("DELETE", &path, &json!({"preconditions": {"uid": uid}})).await,
        fixture.write("PUT", &path, &with(config_map("x", "2"), json!({"uid": uid}))).await,
        fixture.write("POST", CONFIG_MAPS, &owned).await,
    ] {
        let message = refused.refused(409);
        assert!(message.starts_with(typed), "{message}");
        assert_eq!(refused.json()["reason"], "BadRequest", "nobody tries again: {message}");
    }
    assert_eq!(values(&fixture, ["a"], "x"), [json!("1")]);
    // The uid is ambiguous now. The resourceVersion in the precondition identifies the cluster.
    let version = composite(
        &json!({"a": fixture.member("a").get("configmaps", "default", "x").unwrap()["metadata"]["resourceVersion"]}),
    );
    let options = json!({"preconditions": {"uid": uid, "resourceVersion": version}});
    fixture.write("DELETE", &path, &options).await.ok();
    assert_eq!(values(&fixture, ["a"], "x"), [Value::Null]);
}

#[tokio::test]
async fn lookups_for_a_thousand_owners_are_limited() {
    let policies = Policies { registered: Some(Vec::new()), ..placed_in_a(false) };
    let fixture = Fixture::with(["a", "b"].map(config), policies).await;
    fixture.put("b", "owner", "");
    let uid = fixture.member("b").get("configmaps", "default", "owner").unwrap()["metadata"]["uid"].clone();
    let there = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid});
    let owned = |name: &str, place: usize| {
        let owner = |number: usize| match number == place {
            true => there.clone(),
            false => {
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("gone-{number}"), "uid": number.to_string()})
            }
        };
        with(config_map(name, ""), json!({"ownerReferences": (0..1_000).map(owner).collect::<Vec<_>>()}))
    };
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &owned("third", 2)).await.ok()), "b");
    fixture.member("b").control().reset_counters();
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &owned("last", 999)).await.ok()), "a");
    assert_eq!(fixture.member("b").control().requests_of(RequestKind::Get, "configmaps"), 16);
}

#[tokio::test]
async fn impersonated_user_patches_an_object_without_the_right_to_get() {
    let fixture = Fixture::start(["a", "b"]).await;
    for (member, name) in [("a", "x"), ("b", "x"), ("b", "only")] {
        fixture.put_and_see(member, name, "1").await;
    }
    for member in ["a", "b"] {
        forbid(&fixture, member, RequestKind::Get, "configmaps");
    }
    let headers = [("impersonate-user", "jane"), ("content-type", "application/merge-patch+json")];
    let change = json!({"data": {"v": "2"}}).to_string();
    let patch =
        async |name: &str| fixture.client().send("PATCH", &format!("{CONFIG_MAPS}/{name}"), &headers, &change).await;
    assert_eq!(cluster(&patch("only").await.ok()), "b");
    // With impersonation, an ambiguous name is ambiguous, too.
    let message = patch("x").await.refused(409);
    assert!(message.starts_with("kubectl --context a … or kubectl --context b …: "), "{message}");
    assert_eq!(values(&fixture, ["a", "b"], "x"), [json!("1"), json!("1")]);
}

/// The cluster is unreachable, but the router has its objects in memory. So it uses memory, as for a POST.
#[tokio::test]
async fn apply_of_a_new_name_sends_no_lookup_to_cached_clusters() {
    let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(true)).await;
    fixture.put_and_see("b", "there", "1").await;
    fixture.member("b").control().stop_listening().await;
    fixture.out_of_reach("b").await;
    let apply = async |name: &str| {
        let path = format!("{CONFIG_MAPS}/{name}?fieldManager=t");
        fixture.patch(&path, "apply-patch+yaml", &config_map(name, "2")).await
    };
    assert_eq!(cluster(&apply("new").await.ok()), "a");
    // Memory has this object in the unreachable cluster. The router must not create a second object in another cluster.
    apply("there").await.refused(503);
    assert_eq!(values(&fixture, ["a"], "there"), [Value::Null]);
}

/// The cluster is reachable and silent, and may have a new object with this name. The apply must not create a second
/// object in another cluster.
#[tokio::test]
async fn silent_cluster_causes_refusal_of_an_apply_of_a_new_name() {
    let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(true)).await;
    fixture.get(CONFIG_MAPS).await.ok();
    let (kinds, resources) = (vec![RequestKind::Get], vec!["configmaps".to_owned()]);
    fixture.member("b").control().reject(Some(Rejection { kinds, resources, ..Rejection::all(500) }));
    let path = format!("{CONFIG_MAPS}/new?fieldManager=t");
    let message = fixture.patch(&path, "apply-patch+yaml", &config_map("new", "2")).await.refused(503);
    assert!(message.contains("b (the cluster answered 500"), "{message}");
    assert_eq!(values(&fixture, ["a", "b"], "new"), [Value::Null, Value::Null]);
}

/// A user may have the right to change an object without the right to read it. So a cluster that forbids the get may
/// have the object.
#[tokio::test]
async fn cluster_that_forbids_get_makes_a_write_ambiguous() {
    let fixture = Fixture::with(["a", "b"].map(config), allow()).await;
    let reads = [RequestKind::Get, RequestKind::List, RequestKind::Watch].to_vec();
    let forbid = |kinds: Vec<RequestKind>| {
        let resources = vec!["configmaps".to_owned()];
        fixture.member("b").control().reject(Some(Rejection { kinds, resources, ..Rejection::all(403) }));
    };
    forbid(reads.clone());
    for member in ["a", "b"] {
        fixture.put(member, "x", "1");
    }
    crate::harness::until(|| async { fixture.get(&format!("{CONFIG_MAPS}/x")).await.code == 200 }).await;
    let path = format!("{CONFIG_MAPS}/x");
    let change = json!({"data": {"v": "2"}});
    let apply = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}, "data": {"v": "2"}});
    for message in [
        fixture.patch(&path, "merge-patch+json", &change).await.refused(503),
        fixture.write("PUT", &path, &config_map("x", "2")).await.refused(503),
        fixture.write("DELETE", &path, &json!({"kind": "DeleteOptions", "apiVersion": "v1"})).await.refused(503),
        fixture.patch(&format!("{path}?fieldManager=m"), "apply-patch+yaml", &apply).await.refused(503),
    ] {
        assert!(
            message.contains("b may have")
                && message.contains("(the cluster forbids you to get the object, but allows you to"),
            "{message}"
        );
    }
    assert_eq!(values(&fixture, ["a", "b"], "x"), [json!("1"), json!("1")]);
    // The uid identifies the cluster, so the router need not find it.
    let uid = fixture.get(&path).await.ok()["metadata"]["uid"].clone();
    let named = json!({"metadata": {"uid": uid}, "data": {"v": "2"}});
    assert_eq!(cluster(&fixture.patch(&path, "merge-patch+json", &named).await.ok()), "a");
    forbid([reads, vec![RequestKind::Write]].concat());
    let before = fixture.member("b").control().requests(RequestKind::Write);
    assert_eq!(cluster(&fixture.patch(&path, "merge-patch+json", &json!({"data": {"v": "3"}})).await.ok()), "a");
    let after = fixture.member("b").control().requests(RequestKind::Write);
    assert_eq!(after - before, 1, "one question, and no write");
    // The cluster refuses the access review, so it may have an object that the user may change.
    fixture.member("b").control().reject(Some(Rejection { kinds: Vec::new(), ..Rejection::all(403) }));
    let message = fixture.patch(&path, "merge-patch+json", &change).await.refused(503);
    assert!(message.contains("it is unknown whether you may patch it"), "{message}");
    assert_eq!(values(&fixture, ["a", "b"], "x"), [json!("3"), json!("1")]);
}

fn pod(name: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "ours", "containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test]
async fn pod_binding_goes_to_the_cluster_of_its_pod_or_node() {
    for held in [true, false] {
        let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(held)).await;
        let pods = "/api/v1/namespaces/default/pods";
        fixture.get(pods).await.ok();
        for (member, name) in [("b", "one"), ("b", "two"), ("a", "same"), ("b", "same")] {
            fixture.member(member).apply(pod(name)).unwrap();
        }
        for member in ["a", "b"] {
            let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": format!("node-{member}")}});
            fixture.member(member).apply(node).unwrap();
        }
        crate::harness::until(|| async {
            fixture.get(&format!("{pods}/two")).await.code == 200
                && fixture.get(&format!("{pods}/same")).await.code == 409
        })
        .await;
        let binding = |name: &str, node: &str| json!({"kind": "Binding", "apiVersion": "v1", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
        let node_of = |member: &str, name: &str| {
            fixture.member(member).get("pods", "default", name).unwrap()["spec"]["nodeName"].clone()
        };
        let bindings = "/api/v1/namespaces/default/bindings";
        fixture.write("POST", &format!("{pods}/one/binding"), &binding("one", "node-b")).await.ok();
        assert_eq!(node_of("b", "one"), "node-b", "{held}");
        // Only `b` has this Pod, so the node does not decide.
        fixture.write("POST", bindings, &binding("two", "node-a")).await.ok();
        assert_eq!(node_of("b", "two"), "node-a", "{held}");
        // If the Pod is in both clusters, the node decides. A node that no cluster or several clusters have cannot
        // decide.
        let refused = fixture.write("POST", &format!("{pods}/same/binding"), &binding("same", "nowhere")).await;
        assert!(refused.refused(409).starts_with("kubectl --context a … or kubectl --context b …: "), "{refused:?}");
        fixture.write("POST", bindings, &binding("same", "node-b")).await.ok();
        assert_eq!([node_of("a", "same"), node_of("b", "same")], [Value::Null, json!("node-b")], "{held}");
        fixture.write("POST", &format!("{pods}/same/binding"), &binding("same", "node-a")).await.ok();
        assert_eq!(node_of("a", "same"), json!("node-a"), "{held}");
    }
}

#[tokio::test]
async fn ephemeral_container_goes_to_the_cluster_of_its_pod() {
    let fixture = Fixture::start(["a", "b"]).await;
    let pods = "/api/v1/namespaces/default/pods";
    fixture.get(pods).await.ok();
    for (member, name) in [("b", "one"), ("a", "same"), ("b", "same")] {
        fixture.member(member).apply(pod(name)).unwrap();
    }
    crate::harness::until(|| async { fixture.get(&format!("{pods}/same")).await.code == 409 }).await;
    let containers = json!({"spec": {"ephemeralContainers": [{"name": "debugger", "image": "i"}]}});
    let debug = async |name: &str, body: &Value| {
        fixture.patch(&format!("{pods}/{name}/ephemeralcontainers"), "merge-patch+json", body).await
    };
    let has = |member: &str, name: &str| {
        !fixture.member(member).get("pods", "default", name).unwrap()["spec"]["ephemeralContainers"].is_null()
    };
    assert_eq!(cluster(&debug("one", &containers).await.ok()), "b");
    assert!(has("b", "one"));
    let refused = debug("same", &containers).await;
    assert!(refused.refused(409).starts_with("kubectl --context a … or kubectl --context b …: "), "{refused:?}");
    let mut annotated = containers.clone();
    annotated["metadata"] = json!({"annotations": {ANNOTATION: "b"}});
    debug("same", &annotated).await.ok();
    assert_eq!([has("a", "same"), has("b", "same")], [false, true]);
}
