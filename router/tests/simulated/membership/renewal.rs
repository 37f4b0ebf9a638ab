//! Tests of new credentials for a cluster, combined with other events.

use std::time::Duration;

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use serde_json::json;
use tokio::time::timeout;
use tributary_apimachinery::{Consistency, Partial};
use tributary_proxy::ClusterClient;
use tributary_router::{ClusterAddress, ClusterSetup, Policies, ResourcePolicy};
use tributary_simulator::{Rejection, RequestKind, SimulatedCluster, Simulator};

use crate::harness::{
    Answer, CONFIG_MAPS, Fixture, SOON, allow, at_once, composite, config, config_map_in, items, name, pass,
    quiet_without_time, router, setup, until, vector, version,
};

const FILTER: &str = "fieldSelector=metadata.name!=kube-root-ca.crt";

const ALL: &str = "/api/v1/configmaps";

/// Maximum time from a member's first 403 until the router drops the member's old objects: one minute, the wait for the
/// next check, the additional request, and the wait for the check after it.
const FORBIDDEN_GOES_WITHIN: Duration = Duration::from_secs(60 + 10 + 10 + 1);

/// The time for which the router serves old objects after a member's first 403.
const FORBIDDEN_HELD_FOR: Duration = Duration::from_secs(60);

/// Maximum time after new credentials until the router uses the new credential's rights.
const RIGHTS_KNOWN_WITHIN: Duration = Duration::from_secs(60);

fn made() -> String {
    format!("{CONFIG_MAPS}?{FILTER}")
}

async fn synced(policies: Policies) -> (Fixture, Vec<ClusterSetup>) {
    synced_with(policies, None).await
}

/// Like [`synced`], but `b` rejects requests from the beginning.
async fn synced_with(policies: Policies, refused: Option<Rejection>) -> (Fixture, Vec<ClusterSetup>) {
    let mut members = Vec::new();
    for name in ["a", "b"] {
        members.push(Simulator::start(config(name)).await.unwrap());
    }
    members[1].control().reject(refused);
    let fixture = Fixture { members, router: router(policies) };
    let mut setups = Vec::new();
    for member in &fixture.members {
        setups.push(setup(member, member.name()).await);
    }
    fixture.router.set_clusters(setups.clone());
    fixture.router.asked_once(SOON).await;
    fixture.put_and_see("a", "x", "").await;
    fixture.put_and_see("b", "y", "").await;
    (fixture, setups)
}

/// Returns a rejection (403) of lists and watches of all namespaces. Requests for single namespaces are allowed.
fn forbidden_cluster_wide() -> Rejection {
    Rejection { kinds: vec![RequestKind::List, RequestKind::Watch], cluster_wide_only: true, ..Rejection::all(403) }
}

fn deny() -> Policies {
    Policies { default: ResourcePolicy { partial: Partial::Deny, ..ResourcePolicy::default() }, ..Policies::default() }
}

/// Replaces the token with which the router authenticates at the member.
async fn renew(client: &ClusterClient, member: &SimulatedCluster, token: &str) {
    let kubeconfig = Kubeconfig::from_yaml(&member.kubeconfig().replace(member.token(), token)).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    client.set_user(&config).await.unwrap();
}

/// Returns the requests with which the router listed ConfigMaps again. Watches from a version and lists of one object
/// are left out.
pub(crate) fn lists(member: &SimulatedCluster) -> Vec<String> {
    let taken_anew = |line: &String| {
        line.contains("/configmaps?") && !line.ends_with("limit=1") && !line.contains("watch=1&resourceVersion=")
    };
    member.control().request_log().into_iter().filter(taken_anew).collect()
}

#[tokio::test]
async fn renewed_credentials_cause_no_relist_and_end_no_watch() {
    let (fixture, setups) = synced(deny()).await;
    let from = version(&fixture.get(&made()).await.ok());
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={from}", made())).await;
    let control = fixture.member("a").control();
    control.reset_counters();
    // All lists wait. If the router relisted the member, lists would have a Warning about old objects.
    control.hold_lists(true);
    control.accept("renewed", None);
    renew(setups[0].client.as_ref().unwrap(), fixture.member("a"), "renewed").await;
    fixture.router.set_clusters(setups.clone());
    assert_eq!(name(&fixture.get(&format!("{CONFIG_MAPS}/y")).await.ok()), "y");
    let list = fixture.get(&made()).await;
    assert_eq!((items(&list.ok()), list.warnings()), (vec!["a/x".to_owned(), "b/y".to_owned()], vec![]));
    fixture.put("a", "before", "");
    assert_eq!(events.brief().await, "ADDED a/before");
    let watches = || control.requests_of(RequestKind::Watch, "configmaps");
    pass(RIGHTS_KNOWN_WITHIN).await;
    assert_eq!((watches(), control.open_watches() > 0), (1, true), "{:?}", control.request_log());
    fixture.put("a", "after", "");
    assert_eq!(events.brief().await, "ADDED a/after");
    assert_eq!(lists(fixture.member("a")), Vec::<String>::new());
    events.nothing().await;
}

/// Changes the address of `a`, which changes the fingerprint of its setup, while the member delays all lists.
async fn reached_otherwise(policies: Policies, refused: Option<Rejection>) {
    let (fixture, mut setups) = synced_with(policies, refused).await;
    let from = version(&fixture.get(&made()).await.ok());
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={from}", made())).await;
    let control = fixture.member("a").control();
    control.reset_counters();
    control.hold_lists(true);
    let member = fixture.member("a");
    setups[0] =
        ClusterSetup { address: ClusterAddress::from_description("another address"), ..setup(member, "a").await };
    fixture.router.set_clusters(setups.clone());
    fixture.router.asked_once(SOON).await;
    let is_asked = || !lists(member).is_empty();
    until(|| async { is_asked() }).await;
    // No request waits for the relist. The router serves the old objects with a Warning about their age.
    let (mine, others) = (format!("{CONFIG_MAPS}/x"), format!("{CONFIG_MAPS}/y"));
    let told = |answer: &Answer| {
        let warnings = answer.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let begin = "cluster a: configmaps may be stale, last updated ";
        assert!(warnings[0].contains(begin) && warnings[0].contains("the configuration changed"), "{warnings:?}");
    };
    pass(Duration::from_secs(10)).await;
    at_once(async {
        let other = fixture.get(&others).await;
        assert_eq!((name(&other.ok()), other.warnings()), ("y".to_owned(), vec![]));
        let own = fixture.get(&mine).await;
        assert_eq!(name(&own.ok()), "x");
        told(&own);
        let list = fixture.get(&made()).await;
        assert_eq!(items(&list.ok()), ["a/x", "b/y"]);
        told(&list);
    })
    .await;
    fixture.put("a", "during", "");
    fixture.write("DELETE", &mine, &serde_json::json!({})).await.ok();
    control.hold_lists(false);
    until(|| async { fixture.get(&made()).await.warnings().is_empty() }).await;
    let list = fixture.get(&made()).await.ok();
    assert_eq!(items(&list), ["a/during", "b/y"]);
    let mut told = [events.brief().await, events.brief().await];
    told.sort();
    assert_eq!(told, ["ADDED a/during", "DELETED a/x"]);
    fixture.put("a", "after", "");
    assert_eq!(events.brief().await, "ADDED a/after");
    events.nothing().await;
}

#[tokio::test]
async fn cluster_with_a_new_address_is_served_from_memory_until_listed() {
    for policies in [allow(), deny()] {
        reached_otherwise(policies, None).await;
    }
}

#[tokio::test]
async fn single_namespaces_of_a_cluster_with_a_new_address_are_served() {
    reached_otherwise(allow(), Some(forbidden_cluster_wide())).await;
}

/// Gives the router a credential for `a` that this rejection limits. Returns when the Warnings of responses show the
/// rejection.
async fn lessen(fixture: &Fixture, setups: &[ClusterSetup], rejection: Rejection) {
    lessen_for(fixture, setups, rejection, ALL).await;
}

/// Like [`lessen`], but waits for responses at this path.
async fn lessen_for(fixture: &Fixture, setups: &[ClusterSetup], rejection: Rejection, path: &str) {
    let control = fixture.member("a").control();
    control.accept("lesser", Some(Rejection { kinds: vec![RequestKind::List, RequestKind::Watch], ..rejection }));
    renew(setups[0].client.as_ref().unwrap(), fixture.member("a"), "lesser").await;
    fixture.router.set_clusters(setups.to_vec());
    let mut passed = Duration::ZERO;
    while fixture.get(path).await.warnings().is_empty() {
        assert!(passed < RIGHTS_KNOWN_WITHIN + Duration::from_secs(6), "the lesser rights do not show");
        pass(Duration::from_secs(1)).await;
        passed += Duration::from_secs(1);
    }
}

/// Waits until the router has dropped the old objects of `a`. This happens a minute after the first 403, and after one
/// additional 403.
async fn given_up(fixture: &Fixture) {
    pass(FORBIDDEN_HELD_FOR).await;
    until(|| async {
        pass(Duration::from_secs(5)).await;
        fixture.get(ALL).await.warnings().iter().any(|text| text.contains("are missing"))
    })
    .await;
}

/// Gives the router the first credential of `a` again, and waits until responses have no Warning.
async fn restore(fixture: &Fixture, setups: &[ClusterSetup]) {
    renew(setups[0].client.as_ref().unwrap(), fixture.member("a"), fixture.member("a").token()).await;
    pass(Duration::from_secs(60)).await;
    until(|| async { fixture.get(ALL).await.warnings().is_empty() }).await;
}

/// Returns the only Warning of a response, which must name the cluster, ConfigMaps, and the rejection.
#[track_caller]
fn forbidden(answer: &Answer) -> String {
    forbidden_of("configmaps", answer)
}

#[track_caller]
fn forbidden_of(resource: &str, answer: &Answer) -> String {
    let [warning] = &answer.warnings()[..] else { panic!("one warning is due: {:?}", answer.warnings()) };
    let names_all = ["cluster a", resource, "forbidden"].iter().all(|part| warning.contains(part));
    assert!(names_all, "{warning}");
    warning.clone()
}

#[tokio::test]
async fn forbidden_list_loses_its_objects_after_a_minute_with_a_warning() {
    let (fixture, setups) = synced(allow()).await;
    let from = version(&fixture.get(ALL).await.ok());
    let mut events =
        fixture.watch(&format!("{ALL}?watch=1&fieldSelector=metadata.name=x&resourceVersion={from}")).await;
    lessen(&fixture, &setups, Rejection::all(403)).await;
    // Both the list of all namespaces and the list of one namespace are forbidden.
    for path in [format!("{ALL}?{FILTER},metadata.namespace=default"), made()] {
        let list = fixture.get(&path).await;
        assert_eq!(items(&list.ok()), ["a/x", "b/y"], "{path}");
        assert!(forbidden(&list).contains("may be stale"), "{list:?}");
    }
    events.nothing().await;
    given_up(&fixture).await;
    for path in [format!("{ALL}?{FILTER},metadata.namespace=default"), made()] {
        let list = fixture.get(&path).await;
        assert_eq!(items(&list.ok()), ["b/y"], "{path}");
        assert!(forbidden(&list).contains("are missing"), "{list:?}");
        assert_eq!(vector(&version(&list.ok())).as_object().unwrap().len(), 1, "its component goes with it");
    }
    assert_eq!(events.brief().await, "DELETED a/x");
    // A client that missed the deletion must learn of it: a list at the old version gets 410, and a watch from the old
    // version receives the deletion from the log.
    fixture.get(&format!("{ALL}?resourceVersion={from}&resourceVersionMatch=NotOlderThan")).await.refused(410);
    let mut late = fixture.watch(&format!("{ALL}?watch=1&fieldSelector=metadata.name=x&resourceVersion={from}")).await;
    assert_eq!(late.brief().await, "DELETED a/x");
    // With the first credential, the router reads the objects again.
    restore(&fixture, &setups).await;
    assert_eq!(items(&fixture.get(&made()).await.ok()), ["a/x", "b/y"]);
    assert_eq!(events.brief().await, "ADDED a/x");
}

#[tokio::test]
async fn list_forbidden_for_less_than_a_minute_removes_no_objects() {
    let (fixture, setups) = synced(allow()).await;
    let from = version(&fixture.get(ALL).await.ok());
    let mut events = fixture.watch(&format!("{ALL}?watch=1&resourceVersion={from}")).await;
    let before = lists(fixture.member("a"));
    lessen(&fixture, &setups, Rejection::all(403)).await;
    fixture.member("a").control().accept("lesser", None);
    until(|| async {
        pass(Duration::from_secs(5)).await;
        fixture.get(ALL).await.warnings().is_empty()
    })
    .await;
    pass(FORBIDDEN_GOES_WITHIN).await;
    events.nothing().await;
    assert_eq!(lists(fixture.member("a")), before, "it went on where it was");
}

/// The next regular request to the cluster would be too late: the router would have dropped the old objects. So the
/// router sends one additional request before it drops them.
#[tokio::test]
async fn list_forbidden_for_almost_a_minute_removes_no_objects() {
    let (fixture, setups) = synced(allow()).await;
    let from = version(&fixture.get(ALL).await.ok());
    let mut events = fixture.watch(&format!("{ALL}?watch=1&resourceVersion={from}")).await;
    let control = fixture.member("a").control();
    // The Retry-After moves the regular request to a time after the minute. The additional request happens a little
    // before the end of the minute.
    let retry_after = Some(Duration::from_secs(60));
    lessen(&fixture, &setups, Rejection { retry_after, ..Rejection::all(403) }).await;
    control.reset_counters();
    let is_asked = || control.request_log().iter().any(|line| line.contains("/configmaps"));
    let mut passed = Duration::ZERO;
    while !is_asked() {
        assert!(passed < FORBIDDEN_HELD_FOR, "it is not asked again");
        pass(Duration::from_secs(1)).await;
        passed += Duration::from_secs(1);
    }
    control.accept("lesser", None);
    let before = lists(fixture.member("a"));
    pass(FORBIDDEN_GOES_WITHIN).await;
    until(|| async { fixture.get(ALL).await.warnings().is_empty() }).await;
    events.nothing().await;
    assert_eq!(lists(fixture.member("a")), before, "it went on where it was");
}

#[tokio::test]
async fn readable_namespace_is_served_after_cluster_wide_lists_are_forbidden() {
    let (fixture, setups) = synced(allow()).await;
    let watch = |from: &str| format!("{}&watch=1&resourceVersion={from}", made());
    let from = version(&fixture.get(&made()).await.ok());
    let mut events = fixture.watch(&format!("{}&allowWatchBookmarks=true", watch(&from))).await;
    lessen(&fixture, &setups, Rejection { cluster_wide_only: true, ..Rejection::all(403) }).await;
    // The view of all namespaces can no longer serve this namespace, so the watch ends. Its last bookmark has the
    // version to resume from.
    let mut from = None;
    while let Some(event) = timeout(SOON, events.next()).await.expect("the end") {
        assert_eq!(event["type"], "BOOKMARK");
        from = Some(version(&event["object"]));
    }
    let mut events = fixture.watch(&watch(&from.expect("a bookmark"))).await;
    for _ in 0..2 {
        fixture.put("a", "x", &version(&fixture.get(&made()).await.ok()));
        assert_eq!(events.brief().await, "MODIFIED a/x");
        let list = fixture.get(&made()).await;
        assert_eq!((items(&list.ok()), list.warnings()), (vec!["a/x".to_owned(), "b/y".to_owned()], vec![]));
        // In this time, the view of all namespaces drops its old objects. The view of the single namespace must keep
        // its objects.
        pass(FORBIDDEN_GOES_WITHIN).await;
    }
    forbidden(&fixture.get(ALL).await);
    restore(&fixture, &setups).await;
    fixture.put("a", "x", "back");
    assert_eq!(events.brief().await, "MODIFIED a/x");
}

#[tokio::test]
async fn objects_dropped_during_a_wait_for_a_version_are_reported_missing() {
    let nodes = "/api/v1/nodes";
    for policies in [deny(), allow()] {
        let (fixture, setups) = synced(policies.clone()).await;
        let put = |member: &str, name: &str| {
            let node = json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}});
            fixture.member(member).apply(node).unwrap()
        };
        put("a", "of-a");
        until(|| async { fixture.get(&format!("{nodes}/of-a")).await.code == 200 }).await;
        lessen_for(&fixture, &setups, Rejection::all(403), nodes).await;
        // After this pause, the router drops the old objects within two or three seconds.
        pass(FORBIDDEN_HELD_FOR - Duration::from_secs(2)).await;
        // The watch of `b` was idle in this time. Without this event, `b` could become silent for the router while a
        // read waits for a version.
        put("b", "heard");
        until(|| async { fixture.get(&format!("{nodes}/heard")).await.code == 200 }).await;
        fixture.member("b").control().lag_watches(Duration::from_millis(2500));
        let mut wanted = vector(&version(&fixture.get(nodes).await.ok()));
        wanted["b"] = put("b", "of-b").to_string().into();
        let wanted = format!("resourceVersion={}", composite(&wanted));
        let read = async |path: &str| fixture.get(path).await;
        let list = format!("{nodes}?{wanted}&resourceVersionMatch=NotOlderThan");
        let initial = format!("{list}&watch=1&sendInitialEvents=true&allowWatchBookmarks=true&timeoutSeconds=1");
        let object = format!("{nodes}/of-a?{wanted}");
        let from = version(&fixture.get(nodes).await.ok());
        let mut events =
            fixture.watch(&format!("{nodes}?watch=1&fieldSelector=metadata.name=of-a&resourceVersion={from}")).await;
        let give_up = async {
            pass(Duration::from_millis(2200)).await;
            let told = async {
                let gone = events.brief();
                tokio::pin!(gone);
                loop {
                    // The router sends one additional request to the member, and drops the old objects after the
                    // response.
                    fixture.router.set_policies(policies.clone());
                    tokio::select! {
                        told = &mut gone => break told,
                        () = quiet_without_time() => {}
                    }
                }
            };
            assert_eq!(at_once(told).await, "DELETED a/of-a");
        };
        let (list, initial, object, ()) = tokio::join!(read(&list), read(&initial), read(&object), give_up);
        // Single objects may still be read, so the router reads this object from the cluster.
        assert_eq!(object.ok()["metadata"]["name"], "of-a");
        match policies.default.partial {
            Partial::Deny => {
                for answer in [list, initial] {
                    let message = answer.refused(429);
                    assert!(message.contains('a') && message.contains("nodes"), "{message}");
                }
            }
            Partial::Allow => {
                for answer in [list, initial] {
                    assert_eq!(answer.code, 200, "{answer:?}");
                    assert!(forbidden_of("nodes", &answer).contains("are missing"), "{answer:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn read_at_a_version_waits_for_the_reconfigured_clusters_new_cacher() {
    let quorum = ResourcePolicy { consistency: Consistency::Quorum, ..deny().default };
    let quorum = Policies { default: quorum, ..Policies::default() };
    // In the last two cases, `b` forbids reads of all namespaces, so the read uses a view of a single namespace.
    let cases = [
        (deny(), None),
        (quorum.clone(), None),
        (deny(), Some(forbidden_cluster_wide())),
        (quorum, Some(forbidden_cluster_wide())),
    ];
    for (policies, refused) in cases {
        let asks = policies.default.consistency == Consistency::Quorum;
        let (fixture, mut setups) = synced_with(policies, refused).await;
        let member = fixture.member("a");
        let control = member.control();
        let other =
            ClusterSetup { address: ClusterAddress::from_description("another address"), ..setup(member, "a").await };
        setups[0] = other;
        control.reset_counters();
        control.lag_watches(Duration::from_secs(1));
        let written = fixture.put("a", "written", "").to_string();
        let path = match asks {
            true => made(),
            false => format!(
                "{}&resourceVersion={}&resourceVersionMatch=NotOlderThan",
                made(),
                composite(&json!({"a": written}))
            ),
        };
        let replace = async {
            let is_asked =
                || control.request_log().iter().any(|line| line.contains("/configmaps") && line.ends_with("limit=1"));
            until(|| async { !asks || is_asked() }).await;
            quiet_without_time().await;
            control.hold_lists(true);
            fixture.router.set_clusters(setups.clone());
            until(|| async { !lists(member).is_empty() }).await;
            pass(Duration::from_secs(2)).await;
            control.hold_lists(false);
        };
        let (list, ()) = tokio::join!(fixture.get(&path), replace);
        match list.code {
            200 => assert_eq!(items(&list.ok()), ["a/written", "a/x", "b/y"]),
            _ => drop(list.refused(504)),
        }
    }
}

#[tokio::test]
async fn read_that_waits_for_a_write_warns_when_the_address_changes() {
    let (fixture, mut setups) = synced(deny()).await;
    let member = fixture.member("a");
    setups[0] =
        ClusterSetup { address: ClusterAddress::from_description("another address"), ..setup(member, "a").await };
    member.control().lag_watches(Duration::from_secs(10));
    fixture.write("POST", CONFIG_MAPS, &config_map_in("a", "written", "")).await.ok();
    member.control().reset_counters();
    let replace = async {
        member.control().hold_lists(true);
        fixture.router.set_clusters(setups.clone());
        until(|| async { !lists(member).is_empty() }).await;
        // This pause is longer than a read waits for a write.
        pass(Duration::from_secs(4)).await;
    };
    let path = made();
    let (list, ()) = tokio::join!(fixture.get(&path), replace);
    assert_eq!(items(&list.ok()), ["a/x", "b/y"]);
    let [warning] = &list.warnings()[..] else { panic!("one warning is due: {:?}", list.warnings()) };
    assert!(
        warning.contains("cluster a: configmaps may be stale") && warning.contains("the configuration changed"),
        "{warning}"
    );
}

/// Cluster `a` forbids reads of all namespaces, and delays each list. Until the router has listed a namespace, it
/// serves the namespace's old objects. `refused` is the rejection of `b` from the beginning.
async fn forbidden_while_nothing_is_listed(refused: Option<Rejection>) {
    let (fixture, setups) = synced_with(deny(), refused).await;
    let control = fixture.member("a").control();
    control.hold_lists(true);
    control.accept("lesser", Some(forbidden_cluster_wide()));
    renew(setups[0].client.as_ref().unwrap(), fixture.member("a"), "lesser").await;
    fixture.router.set_clusters(setups.clone());
    let list = || async {
        let list = fixture.get(&made()).await;
        assert_eq!(items(&list.ok()), ["a/x", "b/y"]);
        list.warnings()
    };
    let (mut warnings, mut passed) = (Vec::new(), Duration::ZERO);
    while warnings.is_empty() {
        assert!(passed < RIGHTS_KNOWN_WITHIN + Duration::from_secs(6), "the lesser rights do not show");
        pass(Duration::from_secs(1)).await;
        passed += Duration::from_secs(1);
        warnings = list().await;
    }
    // The list of the namespace may take longer than the minute for which the router keeps old objects. The old objects
    // of this namespace stay until the list is complete.
    for _ in 0..2 {
        let warnings = at_once(list()).await;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("cluster a: configmaps may be stale, last updated "), "{warnings:?}");
        pass(FORBIDDEN_GOES_WITHIN).await;
    }
    control.hold_lists(false);
    until(|| async { list().await.is_empty() }).await;
}

#[tokio::test]
async fn namespace_is_served_from_memory_until_its_own_list_arrives() {
    // With `None`, the view of the namespace starts when `a` forbids reads of all namespaces. With a rejection of `b`,
    // the view has existed before.
    for refused in [None, Some(forbidden_cluster_wide())] {
        forbidden_while_nothing_is_listed(refused).await;
    }
}

/// Cluster `b` forbids reads of all namespaces, and `a` gets a new address. Then a client reads a single namespace for
/// the first time.
async fn reached_otherwise_before_a_namespace_is_read(
    policies: Policies,
    prepare: impl Fn(&SimulatedCluster),
) -> Fixture {
    let (fixture, mut setups) = synced(policies).await;
    let control = fixture.member("b").control();
    control.reject(Some(Rejection { resources: vec!["configmaps".to_owned()], ..forbidden_cluster_wide() }));
    control.cut_streams();
    until(|| async { fixture.get(ALL).await.warnings().iter().any(|text| text.contains("cluster b")) }).await;
    // This request makes the router cache the namespaces of the clusters.
    fixture.get("/api/v1/namespaces").await.ok();
    let member = fixture.member("a");
    prepare(member);
    member.control().reset_counters();
    setups[0] =
        ClusterSetup { address: ClusterAddress::from_description("another address"), ..setup(member, "a").await };
    fixture.router.set_clusters(setups);
    fixture.router.asked_once(SOON).await;
    until(|| async { !lists(member).is_empty() }).await;
    fixture.connect_clients("b").await;
    fixture
}

#[tokio::test]
async fn first_namespaced_read_after_an_address_change_uses_memory() {
    let fixture = reached_otherwise_before_a_namespace_is_read(deny(), |a| a.control().hold_lists(true)).await;
    let list = at_once(fixture.get(&made())).await;
    assert_eq!(items(&list.ok()), ["a/x", "b/y"]);
    let of_a = list.warnings().into_iter().find(|text| text.contains("cluster a")).expect("a warning");
    assert!(of_a.contains("may be stale, last updated ") && of_a.contains("the configuration changed"), "{of_a}");
    let from = version(&list.ok());
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={from}", made())).await;
    fixture.put("a", "during", "");
    fixture.member("a").control().hold_lists(false);
    assert_eq!(events.brief().await, "ADDED a/during", "the list is a relist, and nobody has to begin anew");
    // The watch delivers the object shortly before the router removes the Warning.
    until(|| async { fixture.get(&made()).await.warnings().is_empty() }).await;
    assert_eq!(items(&fixture.get(&made()).await.ok()).len(), 3);
}

#[tokio::test]
async fn namespace_objects_stay_a_minute_after_a_new_address_forbids_them() {
    let forbid_all = |member: &SimulatedCluster| {
        let kinds = vec![RequestKind::List, RequestKind::Watch];
        member.control().reject(Some(Rejection { kinds, ..Rejection::all(403) }));
    };
    let fixture = reached_otherwise_before_a_namespace_is_read(allow(), forbid_all).await;
    let says_so = |answer: &Answer| {
        answer.warnings().iter().any(|text| text.contains("cluster a: configmaps") && text.contains("forbidden"))
    };
    until(|| async { says_so(&fixture.get(ALL).await) }).await;
    let list = fixture.get(&made()).await;
    assert_eq!(items(&list.ok()), ["a/x", "b/y"]);
    given_up(&fixture).await;
    let list = fixture.get(&made()).await;
    assert_eq!(items(&list.ok()), ["b/y"]);
    assert!(says_so(&list), "{list:?}");
}

#[tokio::test]
async fn failing_credential_plugin_is_reported_by_health_checks() {
    let member = Simulator::start(config("a")).await.unwrap();
    let kubeconfig = Kubeconfig::from_yaml(&member.kubeconfig()).unwrap();
    let mut user = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let plugin = serde_json::json!({"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": "/bin/sh", "args": ["-c", "echo not signed in >&2; exit 1"]});
    user.auth_info = AuthInfo { exec: Some(serde_json::from_value(plugin).unwrap()), ..AuthInfo::default() };
    let setup = setup(&member, "a").await;
    let client = setup.client.clone().unwrap();
    client.set_user(&user).await.unwrap();
    let fixture = Fixture { members: vec![member], router: router(allow()) };
    fixture.router.set_clusters(vec![setup]);
    fixture.router.asked_once(SOON).await;
    let checks = fixture.get("/readyz?verbose").await;
    let text = String::from_utf8(checks.body.to_vec()).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("[-]cluster/a/credentials failed: "))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("not signed in") && line.contains("may run again in"), "{line}");
    renew(&client, fixture.member("a"), fixture.member("a").token()).await;
    let checks = fixture.get("/readyz?verbose").await;
    assert!(!String::from_utf8_lossy(&checks.body).contains("credentials failed"), "another user has another state");
}
