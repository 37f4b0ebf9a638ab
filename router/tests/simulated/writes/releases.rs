//! Tests of Helm releases: an object of a release goes to the cluster with the release's records. An object that only
//! looks like a record has no effect.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::Instant;
use tributary_router::{Policies, ResourcePolicy};
use tributary_simulator::{Rejection, RequestKind, SimulatedCluster, Simulator};

use crate::harness::{ANNOTATION, CONFIG_MAPS, Fixture, SOON, allow, cluster, config, config_map, router};
use crate::writes::grounds::{config_map_of, forbid, namespace, values, with_one_never_seen};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// Returns the record of a release's revision, as Helm's driver for ConfigMaps writes it.
pub(crate) fn record(release: &str, revision: u32) -> Value {
    let mut object = config_map(&format!("sh.helm.release.v1.{release}.v{revision}"), "");
    object["metadata"]["labels"] = json!({"owner": "helm", "name": release, "version": revision.to_string()});
    object
}

/// Returns an object with the annotations of a release.
pub(crate) fn released(name: &str, release: &str) -> Value {
    let mut object = config_map(name, "1");
    object["metadata"]["annotations"] =
        json!({"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "default"});
    object
}

/// Returns policies with `a` as the default placement. If `held` is true, the router caches all resources, or else
/// none.
pub(crate) fn placed_in_a(held: bool) -> Policies {
    let placement = Some("a".parse().unwrap());
    let registered = if held { None } else { Some(Vec::new()) };
    Policies { default: ResourcePolicy { placement, ..allow().default }, registered, ..Policies::default() }
}

#[tokio::test]
async fn helm_release_stays_in_the_cluster_of_its_records() {
    for held in [true, false] {
        let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(held)).await;
        fixture.get(CONFIG_MAPS).await.ok();
        // The first record is in `b`. The release is then upgraded through the merged view.
        let in_b = format!("/clusters/b{CONFIG_MAPS}");
        fixture.write("POST", &in_b, &record("rb", 1)).await.ok();
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &record("rb", 2)).await.ok()), "b", "{held}");
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &released("new", "rb")).await.ok()), "b", "{held}");
        let path = format!("{CONFIG_MAPS}/applied?fieldManager=helm");
        fixture.put_and_see("a", "applied", "another's").await;
        let applied = fixture.patch(&path, "apply-patch+yaml", &released("applied", "rb")).await;
        assert_eq!((applied.code, cluster(&applied.ok()).as_str()), (201, "b"), "{held}");
        // A new release goes to the default cluster. Its later objects follow the first record.
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &released("first", "ra")).await.ok()), "a", "{held}");
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &record("ra", 1)).await.ok()), "a", "{held}");
        // The annotation takes precedence over the release's records.
        let mut annotated = released("elsewhere", "rb");
        annotated["metadata"]["annotations"][ANNOTATION] = "a".into();
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &annotated).await.ok()), "a", "{held}");
    }
}

#[tokio::test]
async fn upgrade_of_a_helm_release_in_several_clusters_is_refused() {
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

/// Returns a Helm hook. Helm does not annotate a hook with its release, so only the label `app.kubernetes.io/instance`
/// may name it.
fn hook(name: &str, instance: Option<&str>) -> Value {
    let mut object = config_map(name, "1");
    object["metadata"]["annotations"] = json!({"helm.sh/hook": "pre-upgrade"});
    if let Some(instance) = instance {
        object["metadata"]["labels"] = json!({"app.kubernetes.io/instance": instance});
    }
    object
}

#[tokio::test]
async fn helm_hook_goes_to_the_cluster_of_its_release() {
    for held in [true, false] {
        let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(held)).await;
        fixture.get(CONFIG_MAPS).await.ok();
        fixture.write("POST", &format!("/clusters/b{CONFIG_MAPS}"), &record("rb", 1)).await.ok();
        let written = async |object: Value| fixture.write("POST", CONFIG_MAPS, &object).await;
        assert_eq!(cluster(&written(hook("labelled", Some("rb"))).await.ok()), "b", "{held}");
        assert_eq!(cluster(&written(hook("bare", None)).await.ok()), "b", "the only release of the namespace: {held}");
        // No record of this release exists, so the hook goes to the default cluster.
        assert_eq!(cluster(&written(hook("of-another", Some("rc"))).await.ok()), "a", "{held}");
        fixture.write("POST", &format!("/clusters/a{CONFIG_MAPS}"), &record("ra", 1)).await.ok();
        assert_eq!(cluster(&written(hook("labelled-again", Some("rb"))).await.ok()), "b", "{held}");
        let message = written(hook("bare-again", None)).await.refused(409);
        assert!(
            message.starts_with("helm --kube-context a … or helm --kube-context b …: the Helm hook lacks the label"),
            "{message}"
        );
        assert_eq!(values(&fixture, ["a", "b"], "bare-again"), [Value::Null, Value::Null]);
        // The status `pending-upgrade` in a record shows that Helm is upgrading the release in `b`. So a hook without
        // the label belongs to this release.
        let pending = |release: &str| {
            let mut object = record(release, 2);
            object["metadata"]["labels"]["status"] = "pending-upgrade".into();
            object
        };
        fixture.write("POST", &format!("/clusters/b{CONFIG_MAPS}"), &pending("rb")).await.ok();
        crate::harness::until(|| async {
            fixture.get(&format!("{CONFIG_MAPS}/sh.helm.release.v1.rb.v2")).await.code == 200
        })
        .await;
        assert_eq!(cluster(&written(hook("of-b", None)).await.ok()), "b", "{held}");
        let mut of_test = hook("of-test", None);
        of_test["metadata"]["annotations"]["helm.sh/hook"] = "test".into();
        written(of_test).await.refused(409);
        // Now both clusters have a release with a pending upgrade, so a hook without the label is ambiguous.
        fixture.write("POST", &format!("/clusters/a{CONFIG_MAPS}"), &pending("ra")).await.ok();
        crate::harness::until(|| async { written(hook("of-both", None)).await.code == 409 }).await;
        assert_eq!(values(&fixture, ["a", "b"], "of-test"), [Value::Null, Value::Null]);
    }
}

/// Helm 3 deletes the objects of an uninstalled release, even if it could not change the release's record. So the
/// router must also refuse to delete the objects.
#[tokio::test]
async fn delete_of_a_helm_release_in_several_clusters_is_refused() {
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
        // Helm first changes the newest record. Only `b` has this record, but the release is in both clusters, so the
        // router refuses the change.
        let message = fixture.write("PUT", &paths[1], &record("same", 2)).await.refused(409);
        assert!(message.starts_with("helm --kube-context a …"), "{message}");
        let merged = fixture.patch(&paths[0], "merge-patch+json", &json!({"data": {"v": "2"}})).await;
        assert_eq!(cluster(&merged.ok()), "b", "it can be changed");
        let uid = fixture.get(&paths[0]).await.ok()["metadata"]["uid"].clone();
        fixture.write("DELETE", &paths[0], &json!({"preconditions": {"uid": uid}})).await.ok();
        // After this deletion, the release is only in `b`, so its objects may be deleted.
        fixture.write("DELETE", &format!("/clusters/a{CONFIG_MAPS}/sh.helm.release.v1.same.v1"), &json!({})).await.ok();
        crate::harness::until(|| async { fixture.write("DELETE", &paths[1], &json!({})).await.code == 200 }).await;
    }
}

#[tokio::test]
async fn never_read_cluster_causes_refusal_of_helm_release_writes() {
    let (fixture, _first) = with_one_never_seen(placed_in_a(true)).await;
    let message = fixture.write("POST", CONFIG_MAPS, &released("new", "r")).await.refused(503);
    let expected = "helm --kube-context <name> …: the release \"r\" of namespace \"default\" may be in b, which \
                    cannot be queried (for ";
    assert!(message.starts_with(expected), "{message}");
    fixture.member("a").apply(record_in_secret("r", 1)).unwrap();
    crate::harness::until(|| async { fixture.get(&format!("{SECRETS}/sh.helm.release.v1.r.v1")).await.code == 200 })
        .await;
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &released("new", "r")).await.ok()), "a");
}

/// Returns a record as Helm's default driver writes it: a Secret.
fn record_in_secret(release: &str, revision: u32) -> Value {
    let mut object = record(release, revision);
    object["kind"] = "Secret".into();
    object["type"] = "helm.sh/release.v1".into();
    object["data"] = json!({"release": ""});
    object
}

#[tokio::test]
async fn objects_that_only_resemble_helm_records_do_not_decide_a_cluster() {
    for held in [true, false] {
        let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(held)).await;
        for path in [CONFIG_MAPS, SECRETS] {
            fixture.get(path).await.ok();
        }
        let named = |mut object: Value, name: &str| {
            object["metadata"]["name"] = name.into();
            object
        };
        let typed = |mut object: Value, of_type: &str| {
            object["type"] = of_type.into();
            object
        };
        let mut elsewhere = record_in_secret("r", 4);
        elsewhere["metadata"]["namespace"] = "kube-system".into();
        for (path, object) in [
            (CONFIG_MAPS, named(record("r", 1), "mine")),
            (CONFIG_MAPS, named(record("r", 1), "sh.helm.release.v1.r.vx")),
            (SECRETS, named(record_in_secret("r", 1), "mine")),
            (SECRETS, typed(record_in_secret("r", 2), "Opaque")),
            ("/api/v1/namespaces/kube-system/secrets", elsewhere),
        ] {
            fixture.write("POST", &format!("/clusters/b{path}"), &object).await.ok();
        }
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &released("x", "r")).await.ok()), "a", "{held}");
        assert_eq!(cluster(&fixture.write("POST", SECRETS, &record_in_secret("r", 1)).await.ok()), "a", "{held}");
        // The object has the labels of a record, but not the name of a record. So it goes to the default cluster.
        let own = named(record("q", 1), "own");
        fixture.write("POST", &format!("/clusters/b{SECRETS}"), &record_in_secret("q", 1)).await.ok();
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &own).await.ok()), "a", "{held}");
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &released("y", "q")).await.ok()), "b", "{held}");
    }
}

#[tokio::test]
async fn forbidden_helm_records_do_not_disable_other_placement_rules() {
    for held in [true, false] {
        let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(held)).await;
        namespace(&fixture, "b", "only-b").await;
        fixture.put_and_see("b", "x", "1").await;
        if held {
            // Records may be in ConfigMaps or in Secrets. The account may list only ConfigMaps.
            fixture.get(CONFIG_MAPS).await.ok();
        }
        for member in ["a", "b"] {
            forbid(&fixture, member, RequestKind::List, "secrets");
        }
        let mut there = config_map_of("only-b", "new");
        there["metadata"]["annotations"] = json!({"meta.helm.sh/release-name": "r"});
        let made = fixture.write("POST", "/api/v1/namespaces/only-b/configmaps", &there).await;
        assert_eq!(cluster(&made.ok()), "b", "{held}");
        let path = format!("{CONFIG_MAPS}/x?fieldManager=t&force=true");
        let applied = fixture.patch(&path, "apply-patch+yaml", &released("x", "r")).await;
        assert_eq!(cluster(&applied.ok()), "b", "{held}");
        // The release may be in any cluster, so the default placement is not safe.
        let refused = fixture.write("POST", CONFIG_MAPS, &released("new", "r")).await;
        let message = refused.refused(403);
        let expected = "kubectl --context <name> …, or set the annotation tributary.dev/cluster: configmaps \"new\" \
                        belongs to a Helm release (the release \"r\" of namespace \"default\"), and you may not list \
                        the records";
        assert!(message.starts_with(expected) && message.ends_with(": a, b"), "{message}");
        let mut annotated = released("new", "r");
        annotated["metadata"]["annotations"][ANNOTATION] = "b".into();
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &annotated).await.ok()), "b", "{held}");
        // Cluster `a` allows the list now, and has no record. Cluster `b` may still have one.
        fixture.member("a").control().reject(None);
        let message = fixture.write("POST", CONFIG_MAPS, &released("more", "s")).await;
        assert!(message.refused(503).contains("may be in b, which cannot be queried"), "{held}: {message:?}");
    }
}

/// A user who may write ConfigMaps in one cluster can forge a record of another user's release. The objects of this
/// release must not go to this cluster.
#[tokio::test]
async fn forged_helm_record_redirects_no_write() {
    for held in [true, false] {
        let (fixture, _before) = with_one_never_seen(placed_in_a(held)).await;
        for path in [CONFIG_MAPS, SECRETS] {
            fixture.get(path).await;
        }
        fixture.member("a").apply(record("r", 1)).unwrap();
        fixture.member("b").apply(record_in_secret("r", 1)).unwrap();
        let decoy = format!("{CONFIG_MAPS}/sh.helm.release.v1.r.v1");
        crate::harness::until(|| async { fixture.get(&decoy).await.code == 200 }).await;
        // This router has never read `b`, so `b` may have the real records.
        let refused = fixture.write("POST", CONFIG_MAPS, &released("new", "r")).await;
        let message = refused.refused(503);
        assert!(message.contains("which anyone may make: b may have the records in Secrets"), "{message}");
        assert_eq!(values(&fixture, ["a"], "new"), [Value::Null], "{held}");

        let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(held)).await;
        for path in [CONFIG_MAPS, SECRETS] {
            fixture.get(path).await.ok();
        }
        for (path, object) in [
            (format!("/clusters/a{CONFIG_MAPS}"), record("r", 1)),
            (format!("/clusters/b{SECRETS}"), record_in_secret("r", 1)),
        ] {
            fixture.write("POST", &path, &object).await.ok();
        }
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &released("new", "r")).await.ok()), "b", "{held}");
    }
}

/// Starts two members in the process of the test, so that the paused clock can leap. The router caches no resource.
async fn within_this_process() -> (Fixture, [Arc<SimulatedCluster>; 2]) {
    let members = ["a", "b"].map(|name| Arc::new(Simulator::start_in_process(config(name)).unwrap()));
    let fixture = Fixture { members: Vec::new(), router: router(placed_in_a(false)) };
    let setups =
        [crate::membership::fleet::setup(&members[0]).await, crate::membership::fleet::setup(&members[1]).await];
    fixture.router.set_clusters(setups.into());
    fixture.router.asked_once(SOON).await;
    (fixture, members)
}

/// Returns the number of lists with which the router searched a member for records: lists of Secrets and of ConfigMaps.
fn asked_for_records(member: &SimulatedCluster) -> u64 {
    ["secrets", "configmaps"].map(|resource| member.control().requests_of(RequestKind::List, resource)).iter().sum()
}

#[tokio::test(start_paused = true)]
async fn slow_member_delays_one_helm_write_by_3_s() {
    let (fixture, [a, b]) = within_this_process().await;
    a.apply(record_in_secret("r", 1)).unwrap();
    b.control().hold_lists(true);
    for (name, at_most) in [("x", 3_500), ("y", 500)] {
        let begun = Instant::now();
        assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &released(name, "r")).await.ok()), "a");
        let took = begun.elapsed();
        assert!(took <= Duration::from_millis(at_most), "{name}: {took:?}");
    }
    assert_eq!(
        [asked_for_records(&a), asked_for_records(&b)],
        [2, 2],
        "each is asked once, for Secrets and ConfigMaps"
    );
    let begun = Instant::now();
    fixture.write("POST", CONFIG_MAPS, &released("z", "unknown")).await.refused(503);
    assert!(begun.elapsed() <= Duration::from_millis(3_500), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn helm_release_lookups_are_limited_and_counted() {
    let (fixture, [a, b]) = within_this_process().await;
    for member in [&a, &b] {
        member.control().hold_lists(true);
    }
    let objects: Vec<_> = (0..40).map(|number| released("x", &format!("r{number}"))).collect();
    let writes = join_all(objects.iter().map(|object| fixture.write("POST", CONFIG_MAPS, object)));
    tokio::select! {
        _ = writes => panic!("nobody has answered"),
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    // One client may use half of a member's 32 permits for lookups.
    assert_eq!([asked_for_records(&a), asked_for_records(&b)], [16, 16]);
    let counted = r#"tributary_member_questions_total{about="helm_release"} 32"#;
    assert!(fixture.router.metrics().expose().contains(counted), "{}", fixture.router.metrics().expose());
}

/// The limit is the router's, and the cluster is not at fault. So the message does not blame the cluster, and the
/// client may retry at once.
#[tokio::test(start_paused = true)]
async fn helm_release_lookup_above_the_limit_gets_a_429() {
    let (fixture, [a, b]) = within_this_process().await;
    for member in [&a, &b] {
        member.control().hold_lists(true);
    }
    let objects: Vec<_> = (0..40).map(|number| released("x", &format!("r{number}"))).collect();
    let answers = join_all(objects.iter().map(|object| fixture.write("POST", CONFIG_MAPS, object))).await;
    let (asked, not_asked): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.code == 503);
    // One client may use half of a member's 32 permits for lookups, and the search for one release needs two. So most
    // of the 40 writes get a 429.
    assert!(not_asked.len() >= 24, "{} of 40: {:?}", not_asked.len(), asked[0]);
    for answer in &not_asked {
        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
        let message = answer.refused(429);
        assert!(message.starts_with("too many lookups of objects in cluster"), "{message}");
    }
    for answer in &asked {
        assert!(answer.refused(503).contains("the cluster did not answer within 3 s"), "{answer:?}");
    }
}

/// If a cluster did not answer, the router does not cache the result. The next write repeats the search.
#[tokio::test(start_paused = true)]
async fn unanswered_helm_release_lookup_is_repeated() {
    let (fixture, [a, b]) = within_this_process().await;
    a.apply(record("r", 1)).unwrap();
    b.control().hold_lists(true);
    fixture.write("POST", CONFIG_MAPS, &released("x", "r")).await.refused(503);
    b.control().hold_lists(false);
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &released("x", "r")).await.ok()), "a");
}

/// A user who may write ConfigMaps can forge the record of a pending upgrade.
#[tokio::test]
async fn forged_config_map_record_redirects_no_helm_hook() {
    for held in [true, false] {
        let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(held)).await;
        for path in [CONFIG_MAPS, SECRETS] {
            fixture.get(path).await.ok();
        }
        for member in ["a", "b"] {
            let path = format!("/clusters/{member}{SECRETS}");
            fixture.write("POST", &path, &record_in_secret(&format!("r{member}"), 1)).await.ok();
        }
        let mut decoy = record("r", 1);
        decoy["metadata"]["labels"]["status"] = "pending-upgrade".into();
        fixture.write("POST", &format!("/clusters/b{CONFIG_MAPS}"), &decoy).await.ok();
        let message = fixture.write("POST", CONFIG_MAPS, &hook("bare", None)).await.refused(409);
        assert!(message.contains("the Helm hook lacks the label"), "{message}");
        assert_eq!(values(&fixture, ["a", "b"], "bare"), [Value::Null, Value::Null], "{held}");
    }
}

#[tokio::test]
async fn single_configured_cluster_gets_no_helm_release_lookups() {
    let fixture = Fixture::with(["a"].map(config), placed_in_a(false)).await;
    fixture.member("a").control().reject(Some(Rejection { kinds: vec![RequestKind::List], ..Rejection::all(403) }));
    fixture.write("POST", CONFIG_MAPS, &released("x", "r")).await.ok();
    assert_eq!(asked_for_records(fixture.member("a")), 0);
}

#[tokio::test]
async fn helm_release_without_records_returns_to_the_default_placement() {
    let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(false)).await;
    fixture.member("b").apply(record("r", 1)).unwrap();
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &released("x", "r")).await.ok()), "b");
    fixture.client().send("DELETE", &format!("{CONFIG_MAPS}?labelSelector=owner%3Dhelm"), &[], "").await.ok();
    assert_eq!(cluster(&fixture.write("POST", CONFIG_MAPS, &released("y", "r")).await.ok()), "a");
}

#[tokio::test]
async fn list_of_helm_records_in_several_clusters_has_a_warning() {
    for held in [true, false] {
        let fixture = Fixture::with(["a", "b"].map(config), placed_in_a(held)).await;
        fixture.get(CONFIG_MAPS).await.ok();
        for (member, release) in [("a", "same"), ("a", "only-a"), ("b", "same"), ("b", "only-b")] {
            fixture.write("POST", &format!("/clusters/{member}{CONFIG_MAPS}"), &record(release, 1)).await.ok();
        }
        let same = "helm --kube-context a … or helm --kube-context b …: the release \\\"same\\\" of namespace \
                    \\\"default\\\" is in more than one cluster, and this list has the records of all: a, b";
        for (selector, expected) in [
            ("owner%3Dhelm", same),
            // The selectors of `helm history`, `helm status` and `helm get`.
            ("name%3Dsame,owner%3Dhelm", same),
            ("name%3Donly-a,owner%3Dhelm", ""),
            ("owner%3Dhelm,tributary.dev/cluster%3Da", ""),
            ("name%3Dsame", ""),
        ] {
            for path in [CONFIG_MAPS, "/api/v1/configmaps"] {
                let answer = fixture.get(&format!("{path}?labelSelector={selector}")).await;
                let warnings: Vec<_> = answer.headers.get_all("warning").iter().map(|value| value.as_bytes()).collect();
                let warnings = String::from_utf8(warnings.concat()).unwrap();
                let expected = if expected.is_empty() { String::new() } else { format!("299 - \"{expected}\"") };
                assert_eq!((answer.code, warnings), (200, expected), "{held} {path} {selector}");
            }
        }
        fixture.write("POST", &format!("/clusters/b{CONFIG_MAPS}"), &record("only-a", 1)).await.ok();
        let answer = fixture.get(&format!("{CONFIG_MAPS}?labelSelector=owner%3Dhelm")).await;
        let warning = String::from_utf8_lossy(answer.headers["warning"].as_bytes()).into_owned();
        assert!(
            warning.contains("helm --kube-context CLUSTER …") && warning.contains("default/only-a (a, b)"),
            "{warning}"
        );
    }
}
