//! Which cluster a write means: what it says itself, and what is left to the one cluster that can be meant.

use serde_json::{Value, json};
use tributary_apimachinery::Names;
use tributary_router::{Policies, Policy};
use tributary_simulator::{Rejection, RequestKind};

use crate::harness::{
    ANNOTATION, CONFIG_MAPS, Fixture, allow, cluster, composite, config, config_map, config_map_in, version,
};

/// What each member has under this name of the namespace `default`.
fn values<const N: usize>(fixture: &Fixture, names: [&str; N], name: &str) -> [Value; N] {
    names.map(|member| {
        fixture.member(member).get("configmaps", "default", name).map_or(Value::Null, |it| it["data"]["v"].clone())
    })
}

/// Puts a namespace into a member and waits until it is seen.
async fn namespace(fixture: &Fixture, member: &str, name: &str) {
    fixture.member(member).apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})).unwrap();
    let path = format!("/api/v1/namespaces/{name}");
    crate::harness::until(|| async { fixture.get(&path).await.code != 404 }).await;
}

fn config_map_of(namespace: &str, name: &str) -> Value {
    let mut object = config_map(name, "");
    object["metadata"]["namespace"] = namespace.into();
    object
}

/// A router to which `b` has never answered, over the members of a fixture in which both have `x`, and `a` has `only`.
async fn with_one_never_seen(policies: Policies) -> (Fixture, Fixture) {
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
async fn a_precondition_chooses_among_objects_of_one_name() {
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
        // A whole object that was read from a list, without its annotation.
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
async fn what_is_made_in_the_place_of_a_version_is_made_where_that_was() {
    let mut policies = allow();
    policies.default = Policy { placement: Some("a".parse().unwrap()), ..policies.default };
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
async fn a_bare_name_means_nothing_while_a_cluster_was_never_seen() {
    let (fixture, _first) = with_one_never_seen(allow()).await;
    for name in ["x", "only"] {
        let path = format!("{CONFIG_MAPS}/{name}");
        let read = fixture.get(&path).await;
        assert_eq!(cluster(&read.ok()), "a");
        let doubt = format!("cluster b may have configmaps \\\"{name}\\\", too: it cannot be asked (for ");
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
                "kubectl --context a … if you mean the one in a: b may have configmaps \"{name}\", too, and cannot be \
                 asked (for "
            );
            assert!(message.starts_with(&expected), "{message}");
            // kubectl would obey it ten times.
            assert_eq!(refused.headers.get("retry-after"), None, "{message}");
        }
        assert_eq!(values(&fixture, ["a"], name), [json!("1")]);
        // What names its cluster is done.
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
async fn names_that_are_unique_mean_the_one_that_is_known() {
    let policies = Policies { default: Policy { names: Names::Unique, ..allow().default }, ..Policies::default() };
    let (fixture, _first) = with_one_never_seen(policies).await;
    let path = format!("{CONFIG_MAPS}/x");
    assert_eq!(fixture.get(&path).await.warnings(), Vec::<String>::new());
    let patched = fixture.patch(&path, "merge-patch+json", &json!({"data": {"v": "2"}})).await;
    assert_eq!(cluster(&patched.ok()), "a");
    // Of two that are known none is meant all the same.
    fixture.member("b").control().start_listening().await;
    crate::harness::until(|| async { fixture.get(&path).await.code == 409 }).await;
    fixture.patch(&path, "merge-patch+json", &json!({"data": {"v": "3"}})).await.refused(409);
}

#[tokio::test]
async fn what_is_not_held_is_asked_for_and_who_does_not_answer_is_unknown() {
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
async fn a_new_object_goes_where_alone_it_can_be() {
    let fixture = Fixture::start(["a", "b"]).await;
    namespace(&fixture, "b", "only-b").await;
    let maps = "/api/v1/namespaces/only-b/configmaps";
    assert_eq!(cluster(&fixture.write("POST", maps, &config_map_of("only-b", "x")).await.ok()), "b");
    let apply =
        fixture.patch(&format!("{maps}/y?fieldManager=t"), "apply-patch+yaml", &config_map_of("only-b", "y")).await;
    assert_eq!(cluster(&apply.ok()), "b");
    // The namespace is in both: its kind, its node.
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
    let expected = "kubectl --context a …, or another of a, b: nothing says in which cluster to create pods \"q\"; or ";
    assert!(message.starts_with(expected), "{message}");
}

#[tokio::test]
async fn what_is_meant_alone_comes_before_the_placement() {
    let placed = |cluster: &str| {
        let placement = Some(cluster.parse().unwrap());
        Policies { default: Policy { placement, ..allow().default }, ..Policies::default() }
    };
    let fixture = Fixture::with(["a", "b", "c"].map(config), placed("a")).await;
    namespace(&fixture, "b", "only-b").await;
    let maps = "/api/v1/namespaces/only-b/configmaps";
    assert_eq!(cluster(&fixture.write("POST", maps, &config_map_of("only-b", "x")).await.ok()), "b");
    // Where the namespace is not, it is said why that cluster was asked, and where the namespace is.
    let mut wrong = config_map_of("only-b", "y");
    wrong["metadata"]["annotations"] = json!({ANNOTATION: "c"});
    let message = fixture.write("POST", maps, &wrong).await.refused(404);
    let expected = "kubectl --context b …: namespaces \"only-b\" not found in c, which was chosen because the \
        annotation tributary.dev/cluster names it; it is in b";
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
        message.contains("not found in a, which was chosen because --create-in") && message.ends_with("it is in b, c"),
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
async fn where_nothing_was_chosen_the_member_says_itself_that_there_is_no_such_namespace() {
    let fixture = Fixture::start(["a"]).await;
    let path = "/api/v1/namespaces/no/configmaps";
    let own = fixture.write("POST", &format!("/clusters/a{path}"), &config_map_of("no", "x")).await.refused(404);
    assert_eq!(fixture.write("POST", path, &config_map_of("no", "x")).await.refused(404), own);
}

/// Adds to the metadata of an object.
fn with(mut object: Value, metadata: Value) -> Value {
    for (key, value) in metadata.as_object().unwrap() {
        object["metadata"][key] = value.clone();
    }
    object
}

#[tokio::test]
async fn the_first_ground_that_applies_decides() {
    let placement = Some("b".parse().unwrap());
    let placed = Policies { default: Policy { placement, ..allow().default }, ..Policies::default() };
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
async fn who_was_never_seen_may_be_the_one_that_is_meant() {
    // One that may have the namespace too: only the placement says enough.
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
    let placed = Policies { default: Policy { placement, ..allow().default }, ..Policies::default() };
    let (fixture, _first) = with_one_never_seen(placed).await;
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &config_map("new", "")).await.ok()), "a");
}

/// The record of a release's revision, as Helm's driver for ConfigMaps writes it.
fn record(release: &str, revision: u32) -> Value {
    let mut object = config_map(&format!("sh.helm.release.v1.{release}.v{revision}"), "");
    object["metadata"]["labels"] = json!({"owner": "helm", "name": release, "version": revision.to_string()});
    object
}

/// An object that belongs to a release.
fn released(name: &str, release: &str) -> Value {
    let mut object = config_map(name, "1");
    object["metadata"]["annotations"] =
        json!({"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "default"});
    object
}

/// Placed in `a`, where nothing else decides; held in memory, or asked for live.
fn placed_in_a(held: bool) -> Policies {
    let placement = Some("a".parse().unwrap());
    let registered = if held { None } else { Some(Vec::new()) };
    Policies { default: Policy { placement, ..allow().default }, registered, ..Policies::default() }
}

#[tokio::test]
async fn a_helm_release_stays_where_its_records_are() {
    for held in [true, false] {
        let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(held)).await;
        fixture.get(CONFIG_MAPS).await.ok();
        // Installed in b; upgraded through the merged view.
        let in_b = format!("/clusters/b{CONFIG_MAPS}");
        fixture.write("POST", &in_b, &record("rb", 1)).await.ok();
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &record("rb", 2)).await.ok()), "b", "{held}");
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &released("new", "rb")).await.ok()), "b", "{held}");
        let path = format!("{CONFIG_MAPS}/applied?fieldManager=helm");
        fixture.put_and_see("a", "applied", "another's").await;
        let applied = fixture.patch(&path, "apply-patch+yaml", &released("applied", "rb")).await;
        assert_eq!((applied.code, cluster(&applied.ok()).as_str()), (201, "b"), "{held}");
        // A release that is nowhere yet goes where new objects go, and stays there.
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &released("first", "ra")).await.ok()), "a", "{held}");
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &record("ra", 1)).await.ok()), "a", "{held}");
        // The annotation says more.
        let mut annotated = released("elsewhere", "rb");
        annotated["metadata"]["annotations"][ANNOTATION] = "a".into();
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &annotated).await.ok()), "a", "{held}");
    }
}

#[tokio::test]
async fn a_helm_release_of_several_clusters_is_refused_before_its_first_write() {
    for held in [true, false] {
        let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(held)).await;
        fixture.get(CONFIG_MAPS).await.ok();
        for member in ["a", "b"] {
            fixture.write("POST", &format!("/clusters/{member}{CONFIG_MAPS}"), &record("same", 1)).await.ok();
        }
        let path = format!("{CONFIG_MAPS}/x?fieldManager=helm");
        for refused in [
            fixture.write("POST", CONFIG_MAPS, &record("same", 2)).await,
            fixture.write("PUT", &format!("{CONFIG_MAPS}/sh.helm.release.v1.same.v1"), &record("same", 1)).await,
            fixture.write("POST", CONFIG_MAPS, &released("x", "same")).await,
            fixture.patch(&path, "apply-patch+yaml", &released("x", "same")).await,
        ] {
            let message = refused.refused(409);
            assert!(message.starts_with("helm --kube-context a … or helm --kube-context b …: "), "{message}");
            assert_eq!(refused.json()["reason"], "BadRequest", "nobody tries again: {message}");
            assert_eq!(refused.json()["details"]["causes"][1]["message"], "b", "{message}");
        }
        assert_eq!(values(&fixture, ["a", "b"], "x"), [Value::Null, Value::Null]);
    }
}

/// A hook, on which Helm writes nothing that names its release.
fn hook(name: &str, instance: Option<&str>) -> Value {
    let mut object = config_map(name, "1");
    object["metadata"]["annotations"] = json!({"helm.sh/hook": "pre-upgrade"});
    if let Some(instance) = instance {
        object["metadata"]["labels"] = json!({"app.kubernetes.io/instance": instance});
    }
    object
}

#[tokio::test]
async fn a_hook_goes_where_its_helm_release_is() {
    for held in [true, false] {
        let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(held)).await;
        fixture.get(CONFIG_MAPS).await.ok();
        fixture.write("POST", &format!("/clusters/b{CONFIG_MAPS}"), &record("rb", 1)).await.ok();
        let written = async |object: Value| fixture.write("POST", CONFIG_MAPS, &object).await;
        assert_eq!(cluster(&written(hook("labelled", Some("rb"))).await.ok()), "b", "{held}");
        assert_eq!(cluster(&written(hook("bare", None)).await.ok()), "b", "the only release of the namespace: {held}");
        // Its release is not known by that name, so that it is a new object as others are.
        assert_eq!(cluster(&written(hook("of-another", Some("rc"))).await.ok()), "a", "{held}");
        fixture.write("POST", &format!("/clusters/a{CONFIG_MAPS}"), &record("ra", 1)).await.ok();
        assert_eq!(cluster(&written(hook("labelled-again", Some("rb"))).await.ok()), "b", "{held}");
        let message = written(hook("bare-again", None)).await.refused(409);
        assert!(
            message.starts_with("helm --kube-context a … or helm --kube-context b …: the hook names no"),
            "{message}"
        );
        assert_eq!(values(&fixture, ["a", "b"], "bare-again"), [Value::Null, Value::Null]);
    }
}

/// Helm 3 goes on to delete an uninstalled release's objects where the change of its record was refused.
#[tokio::test]
async fn nothing_is_deleted_of_a_helm_release_of_several_clusters() {
    for held in [true, false] {
        let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(held)).await;
        fixture.get(CONFIG_MAPS).await.ok();
        let mut only = released("only", "same");
        only["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
        for (member, object) in
            [("a", record("same", 1)), ("b", record("same", 1)), ("b", record("same", 2)), ("b", only)]
        {
            fixture.write("POST", &format!("/clusters/{member}{CONFIG_MAPS}"), &object).await.ok();
        }
        let paths = ["only", "sh.helm.release.v1.same.v2"].map(|name| format!("{CONFIG_MAPS}/{name}"));
        for path in &paths {
            let message = fixture.write("DELETE", path, &json!({})).await.refused(409);
            assert!(message.starts_with("helm --kube-context a … or helm --kube-context b …: "), "{message}");
        }
        // Helm writes the newest record first, which only one of them has.
        let message = fixture.write("PUT", &paths[1], &record("same", 2)).await.refused(409);
        assert!(message.starts_with("helm --kube-context a …"), "{message}");
        let merged = fixture.patch(&paths[0], "merge-patch+json", &json!({"data": {"v": "2"}})).await;
        assert_eq!(cluster(&merged.ok()), "b", "it can be changed");
        let uid = fixture.get(&paths[0]).await.ok()["metadata"]["uid"].clone();
        fixture.write("DELETE", &paths[0], &json!({"preconditions": {"uid": uid}})).await.ok();
        // Of one cluster's release everything may be deleted.
        fixture.write("DELETE", &format!("/clusters/a{CONFIG_MAPS}/sh.helm.release.v1.same.v1"), &json!({})).await.ok();
        crate::harness::until(|| async { fixture.write("DELETE", &paths[1], &json!({})).await.code == 200 }).await;
    }
}

#[tokio::test]
async fn a_helm_release_that_may_be_where_nobody_can_look_is_not_torn() {
    let (fixture, _first) = with_one_never_seen(placed_in_a(true)).await;
    let message = fixture.write("POST", CONFIG_MAPS, &released("new", "r")).await.refused(503);
    let expected = "helm --kube-context <name> …: the release \"r\" of namespace \"default\" may be in b, which cannot be \
        asked (for ";
    assert!(message.starts_with(expected), "{message}");
    fixture.member("a").apply(record("r", 1)).unwrap();
    crate::harness::until(|| async {
        fixture.get(&format!("{CONFIG_MAPS}/sh.helm.release.v1.r.v1")).await.code == 200
    })
    .await;
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &released("new", "r")).await.ok()), "a");
}

/// Has a member forbid its users requests of one kind for a resource.
fn forbid(fixture: &Fixture, member: &str, kind: RequestKind, resource: &str) {
    let (kinds, resources) = (vec![kind], vec![resource.to_owned()]);
    fixture.member(member).control().reject(Some(Rejection { kinds, resources, ..Rejection::all(403) }));
}

#[tokio::test]
async fn who_forbids_to_look_may_have_what_decides() {
    let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(false)).await;
    // Both have the namespace and the release, and in b nobody may look.
    for (member, other) in [("b", "a"), ("a", "b")] {
        forbid(&fixture, member, RequestKind::Get, "namespaces");
        let answer = fixture.write("POST", CONFIG_MAPS, &config_map(&format!("of-{other}"), "")).await;
        match member {
            // It is placed where it is found.
            "b" => assert_eq!(cluster(&answer.ok()), "a"),
            _ => assert!(answer.refused(503).contains("kubectl --context b …"), "{answer:?}"),
        }
        fixture.member(member).control().reject(None);
    }
    fixture.member("b").apply(record("r", 1)).unwrap();
    forbid(&fixture, "b", RequestKind::List, "configmaps");
    let message = fixture.write("POST", CONFIG_MAPS, &released("new", "r")).await.refused(503);
    assert!(message.contains("may be in b, which cannot be asked"), "{message}");
    assert_eq!(values(&fixture, ["a", "b"], "new"), [Value::Null, Value::Null]);
}

#[tokio::test]
async fn an_aggregated_server_that_is_silent_may_have_the_name_and_the_collection() {
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
async fn an_apply_keeps_the_version_that_it_depends_on_though_memory_lacks_the_object() {
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
    // Where there is no object, a kube-apiserver ignores the version.
    fixture.member("a").delete("configmaps", "default", "x");
    assert_eq!(fixture.patch(&apply, "apply-patch+yaml", &object).await.code, 201);
}

/// What keeps a cluster from being asked is what it said, where it said something: not that nothing was asked of it.
#[tokio::test]
async fn a_cluster_that_cannot_be_asked_is_named_with_what_it_said() {
    let fixture = Fixture::start(["a", "b"]).await;
    let control = fixture.member("b").control();
    let refuse = |code, kinds: &[RequestKind]| {
        let (kinds, resources) = (kinds.to_vec(), vec!["configmaps".to_owned()]);
        control.reject(Some(Rejection { kinds, resources, ..Rejection::all(code) }));
    };
    refuse(403, &[RequestKind::List, RequestKind::Watch]);
    let message = fixture.get(&format!("{CONFIG_MAPS}/nowhere")).await.refused(503);
    assert!(message.contains("b (for ") && message.contains("forbidden"), "{message}");
    refuse(500, &[RequestKind::List, RequestKind::Watch, RequestKind::Get]);
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    fixture.put_and_see("a", "x", "1").await;
    let message = fixture.patch(&format!("{CONFIG_MAPS}/x"), "merge-patch+json", &patch).await.refused(503);
    assert!(message.contains("it answered 500"), "{message}");
}
