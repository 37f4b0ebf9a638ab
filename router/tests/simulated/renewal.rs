//! Other credentials for a cluster, in the middle of everything.

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

/// The path of all namespaces' ConfigMaps.
const ALL: &str = "/api/v1/configmaps";

/// By when what was held goes once a member forbids it: a minute, the time until that is looked for and the member is
/// asked once more, and the time until its answer is looked for.
const FORBIDDEN_GOES_WITHIN: Duration = Duration::from_secs(60 + 10 + 10 + 1);

/// For how long what was held is served once a member forbids it.
const FORBIDDEN_HELD_FOR: Duration = Duration::from_secs(60);

/// By when a cluster's rights are known after its credentials were renewed.
const RIGHTS_KNOWN_WITHIN: Duration = Duration::from_secs(60);

fn made() -> String {
    format!("{CONFIG_MAPS}?{FILTER}")
}

/// Clusters `a` and `b` with an object each, both known to the router, and what the router was told of them.
async fn synced(policies: Policies) -> (Fixture, Vec<ClusterSetup>) {
    synced_with(policies, None).await
}

/// As [`synced`]; `b` may refuse some requests from the beginning.
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

/// All namespaces may neither be listed nor watched, single ones may.
fn forbidden_cluster_wide() -> Rejection {
    Rejection { kinds: vec![RequestKind::List, RequestKind::Watch], cluster_wide_only: true, ..Rejection::all(403) }
}

/// A partial answer is refused.
fn deny() -> Policies {
    Policies { default: ResourcePolicy { partial: Partial::Deny, ..ResourcePolicy::default() }, ..Policies::default() }
}

/// Gives the client another token for its member.
async fn renew(client: &ClusterClient, member: &SimulatedCluster, token: &str) {
    let kubeconfig = Kubeconfig::from_yaml(&member.kubeconfig().replace(member.token(), token)).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    client.set_user(&config).await.unwrap();
}

/// The requests that took a collection of ConfigMaps anew.
pub(crate) fn lists(member: &SimulatedCluster) -> Vec<String> {
    let taken_anew = |line: &String| {
        line.contains("/configmaps?") && !line.ends_with("limit=1") && !line.contains("watch=1&resourceVersion=")
    };
    member.control().request_log().into_iter().filter(taken_anew).collect()
}

#[tokio::test]
async fn renewed_credentials_cost_no_list_no_stream_and_no_wait() {
    let (fixture, setups) = synced(deny()).await;
    let from = version(&fixture.get(&made()).await.ok());
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={from}", made())).await;
    let control = fixture.member("a").control();
    control.reset_counters();
    // A list would never be answered.
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

/// Has `a` reached in another way, while its lists take as long as the test likes. What makes it another way (the
/// address, the CA) is in the fingerprint.
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
    // Nobody waits for it, and what is held of it is served, with the time that it may be old.
    let (mine, others) = (format!("{CONFIG_MAPS}/x"), format!("{CONFIG_MAPS}/y"));
    let told = |answer: &Answer| {
        let warnings = answer.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let begin = "cluster a: configmaps may be stale, last updated ";
        assert!(warnings[0].contains(begin) && warnings[0].contains("its configuration changed"), "{warnings:?}");
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
async fn a_cluster_that_is_reached_otherwise_is_served_as_it_was_until_it_is_listed() {
    for policies in [allow(), deny()] {
        reached_otherwise(policies, None).await;
    }
}

#[tokio::test]
async fn a_cluster_that_is_reached_otherwise_is_served_in_single_namespaces_too() {
    reached_otherwise(allow(), Some(forbidden_cluster_wide())).await;
}

/// Has cluster `a` answer to another credential that may neither list nor watch what `rejection` says, and ends once
/// that shows: within the time in which rights are known, and the moment that is granted to every watch
/// that breaks off.
async fn lessen(fixture: &Fixture, setups: &[ClusterSetup], rejection: Rejection) {
    lessen_for(fixture, setups, rejection, ALL).await;
}

/// As [`lessen`], and ends once that shows in what is read at a path.
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

/// Ends once what was held of cluster `a` is gone: a minute after that forbids it, and when it has said so once more.
async fn given_up(fixture: &Fixture) {
    pass(FORBIDDEN_HELD_FOR).await;
    until(|| async {
        pass(Duration::from_secs(5)).await;
        fixture.get(ALL).await.warnings().iter().any(|text| text.contains("are missing"))
    })
    .await;
}

/// Gives cluster `a` its first credential again, and ends once it has been noticed that the rights are back.
async fn restore(fixture: &Fixture, setups: &[ClusterSetup]) {
    renew(setups[0].client.as_ref().unwrap(), fixture.member("a"), fixture.member("a").token()).await;
    pass(Duration::from_secs(60)).await;
    until(|| async { fixture.get(ALL).await.warnings().is_empty() }).await;
}

/// The one warning of an answer, which names the cluster, the resource and that it is forbidden.
#[track_caller]
fn forbidden(answer: &Answer) -> String {
    forbidden_of("configmaps", answer)
}

/// As [`forbidden`], of another resource.
#[track_caller]
fn forbidden_of(resource: &str, answer: &Answer) -> String {
    let [warning] = &answer.warnings()[..] else { panic!("one warning is due: {:?}", answer.warnings()) };
    let names_all = ["cluster a", resource, "forbidden"].iter().all(|part| warning.contains(part));
    assert!(names_all, "{warning}");
    warning.clone()
}

#[tokio::test]
async fn lesser_rights_show_within_a_minute_and_take_away_what_is_held_after_another() {
    let (fixture, setups) = synced(allow()).await;
    let from = version(&fixture.get(ALL).await.ok());
    let mut events =
        fixture.watch(&format!("{ALL}?watch=1&fieldSelector=metadata.name=x&resourceVersion={from}")).await;
    lessen(&fixture, &setups, Rejection::all(403)).await;
    // Of all and of one namespace, whose own list is forbidden as well.
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
    // Whoever was not there to be told is told at once: by a list, or by the log, which knows that the cluster left.
    fixture.get(&format!("{ALL}?resourceVersion={from}&resourceVersionMatch=NotOlderThan")).await.refused(410);
    let mut late = fixture.watch(&format!("{ALL}?watch=1&fieldSelector=metadata.name=x&resourceVersion={from}")).await;
    assert_eq!(late.brief().await, "DELETED a/x");
    // And greater ones again, as soon as the member is asked again.
    restore(&fixture, &setups).await;
    assert_eq!(items(&fixture.get(&made()).await.ok()), ["a/x", "b/y"]);
    assert_eq!(events.brief().await, "ADDED a/x");
}

#[tokio::test]
async fn rights_that_are_back_in_time_take_nothing_away() {
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

/// A minute after it forbade it, nobody knows yet that the cluster allows it again: it was to be asked later.
#[tokio::test]
async fn rights_that_are_back_when_what_is_held_would_go_take_nothing_away() {
    let (fixture, setups) = synced(allow()).await;
    let from = version(&fixture.get(ALL).await.ok());
    let mut events = fixture.watch(&format!("{ALL}?watch=1&resourceVersion={from}")).await;
    let control = fixture.member("a").control();
    // It is asked once more a little less than a minute after that shows, and would be asked again in another minute.
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
async fn a_namespace_that_may_still_be_read_is_followed_by_its_own_list() {
    let (fixture, setups) = synced(allow()).await;
    let watch = |from: &str| format!("{}&watch=1&resourceVersion={from}", made());
    let from = version(&fixture.get(&made()).await.ok());
    let mut events = fixture.watch(&format!("{}&allowWatchBookmarks=true", watch(&from))).await;
    lessen(&fixture, &setups, Rejection { cluster_wide_only: true, ..Rejection::all(403) }).await;
    // The view of all is no longer where this namespace is followed: the watch ends with a version to go on from.
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
        // What is held of all namespaces goes, and takes nothing of this one away.
        pass(FORBIDDEN_GOES_WITHIN).await;
    }
    forbidden(&fixture.get(ALL).await);
    restore(&fixture, &setups).await;
    fixture.put("a", "x", "back");
    assert_eq!(events.brief().await, "MODIFIED a/x");
}

#[tokio::test]
async fn what_is_given_up_while_a_version_is_waited_for_is_missing_and_not_gone() {
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
        // Two seconds before what is held goes, or three.
        pass(FORBIDDEN_HELD_FOR - Duration::from_secs(2)).await;
        // Nothing was heard of `b` in all this time: its watch shall not be found silent while the version is awaited.
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
                    // The member is asked once more, and once it has answered what is held goes.
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
        // The cluster does not forbid single objects, so Tributary asks it for the object.
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
async fn a_version_is_waited_for_in_the_cacher_that_answers() {
    let quorum = ResourcePolicy { consistency: Consistency::Quorum, ..deny().default };
    let quorum = Policies { default: quorum, ..Policies::default() };
    // Of a view of all namespaces, and of one that is fed by it because `b` forbids to read all.
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
async fn a_write_that_is_waited_for_while_its_cluster_is_reached_otherwise_ends_in_a_warning() {
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
        // Beyond the time for which a write is waited for.
        pass(Duration::from_secs(4)).await;
    };
    let path = made();
    let (list, ()) = tokio::join!(fixture.get(&path), replace);
    assert_eq!(items(&list.ok()), ["a/x", "b/y"]);
    let [warning] = &list.warnings()[..] else { panic!("one warning is due: {:?}", list.warnings()) };
    assert!(
        warning.contains("cluster a: configmaps may be stale") && warning.contains("its configuration changed"),
        "{warning}"
    );
}

/// Has `a` forbid to read all namespaces while it answers no list: the namespace, which may be read, is served as it
/// was held meanwhile. `refused` is what `b` refuses from the beginning.
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
    // However long the list takes: longer than what is held of all namespaces is kept.
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
async fn a_namespace_is_served_as_it_was_held_until_its_own_list_is_there() {
    // Its view begins when the cluster forbids to read all, or is there already because another cluster does.
    for refused in [None, Some(forbidden_cluster_wide())] {
        forbidden_while_nothing_is_listed(refused).await;
    }
}

/// Has `b` forbid to read all namespaces and then `a` be reached in another way,
/// before anybody has read a single namespace.
async fn reached_otherwise_before_a_namespace_is_read(
    policies: Policies,
    prepare: impl Fn(&SimulatedCluster),
) -> Fixture {
    let (fixture, mut setups) = synced(policies).await;
    let control = fixture.member("b").control();
    control.reject(Some(Rejection { resources: vec!["configmaps".to_owned()], ..forbidden_cluster_wide() }));
    control.cut_streams();
    until(|| async { fixture.get(ALL).await.warnings().iter().any(|text| text.contains("cluster b")) }).await;
    // Which namespaces there are is known.
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
async fn a_namespace_is_read_as_it_is_held_of_a_cluster_that_is_reached_otherwise() {
    let fixture = reached_otherwise_before_a_namespace_is_read(deny(), |a| a.control().hold_lists(true)).await;
    let list = at_once(fixture.get(&made())).await;
    assert_eq!(items(&list.ok()), ["a/x", "b/y"]);
    let of_a = list.warnings().into_iter().find(|text| text.contains("cluster a")).expect("a warning");
    assert!(of_a.contains("may be stale, last updated ") && of_a.contains("its configuration changed"), "{of_a}");
    let from = version(&list.ok());
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={from}", made())).await;
    fixture.put("a", "during", "");
    fixture.member("a").control().hold_lists(false);
    assert_eq!(events.brief().await, "ADDED a/during", "the list is a relist, and nobody has to begin anew");
    // What the cluster has is told a moment before it counts as fresh.
    until(|| async { fixture.get(&made()).await.warnings().is_empty() }).await;
    assert_eq!(items(&fixture.get(&made()).await.ok()).len(), 3);
}

#[tokio::test]
async fn a_namespace_is_held_for_a_minute_of_a_cluster_that_forbids_all_once_it_is_reached_otherwise() {
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
async fn a_plugin_that_fails_is_told_among_the_health_checks() {
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
