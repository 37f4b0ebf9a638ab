//! Tests of clusters that are renamed, replaced, restored, upgraded or configured twice, during open watches and
//! incomplete paged lists.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tributary_proxy::ClientTuning;
use tributary_router::report::CollectionState;
use tributary_router::{ClusterAddress, ClusterSetup};
use tributary_simulator::{Rejection, RequestKind, SimulatedCluster, Simulator};

use crate::harness::{
    ANNOTATION, CONFIG_MAPS, Events, Fixture, SOON, allow, brief, cluster, composite, config, config_map, items, name,
    pass, setup, setup_through, until, vector, version,
};
use crate::membership::renewal::lists;

const FILTER: &str = "fieldSelector=metadata.name!=kube-root-ca.crt";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// Returns the path of the ConfigMaps that the tests create.
fn made() -> String {
    format!("{CONFIG_MAPS}?{FILTER}")
}

/// Returns a Deployment without pods.
fn deployment(name: &str) -> Value {
    json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
}

/// Makes the router read the discovery of all members again.
async fn refresh(fixture: &Fixture) {
    fixture.get("/apis/unknown.io/v1").await.no_route();
    // The router limits the rate of discovery, so a later call must wait.
    pass(Duration::from_secs(3)).await;
}

/// Returns the next `count` events in the form of `brief`, sorted.
async fn told(events: &mut Events, count: usize) -> Vec<String> {
    let mut told = Vec::new();
    for _ in 0..count {
        told.push(events.brief().await);
    }
    told.sort();
    told
}

/// Returns the first page with one object, and the continue token.
async fn first_page(fixture: &Fixture, path: &str) -> (Value, String) {
    let separator = if path.contains('?') { '&' } else { '?' };
    let page = fixture.get(&format!("{path}{separator}limit=1")).await.ok();
    let token = page["metadata"]["continue"].as_str().expect("a second page").to_owned();
    (page, token)
}

/// Returns the remaining objects of a list, and whether they are from the state of the first page. If not, they are
/// from the current state, after the last object of the first page.
async fn rest(fixture: &Fixture, path: &str, token: &str) -> (Vec<String>, bool) {
    let separator = if path.contains('?') { '&' } else { '?' };
    let answer = fixture.get(&format!("{path}{separator}continue={token}")).await;
    if answer.code == 200 {
        return (items(&answer.ok()), true);
    }
    answer.refused(410);
    let fresh = answer.json()["metadata"]["continue"].as_str().expect("a fresh token").to_owned();
    (items(&fixture.get(&format!("{path}{separator}continue={fresh}")).await.ok()), false)
}

#[tokio::test]
async fn watch_sees_a_renamed_cluster_as_removed_and_added() {
    let fixture = Fixture::start(["a", "b"]).await;
    for name in ["x", "y"] {
        fixture.put("a", name, "");
    }
    fixture.put_and_see("b", "z", "").await;
    let (page, token) = first_page(&fixture, &made()).await;
    let from = version(&page);
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={from}", made())).await;
    let renamed = setup(fixture.member("a"), "renamed").await;
    let kept = setup(fixture.member("b"), "b").await;
    fixture.router.set_clusters(vec![renamed, kept]);
    assert_eq!(told(&mut events, 4).await, ["ADDED renamed/x", "ADDED renamed/y", "DELETED a/x", "DELETED a/y"],);
    events.nothing().await;
    assert_eq!(items(&fixture.get(&made()).await.ok()), ["b/z", "renamed/x", "renamed/y"]);
    let (rest, same) = rest(&fixture, &made(), &token).await;
    assert_eq!((items(&page), rest, same), (vec!["a/x".into()], vec!["a/y".into(), "b/z".into()], true));
    // A client that was disconnected during the change receives each object under the new name first, and again after
    // the DELETED event for the old name.
    let mut late = fixture.watch(&format!("{}&watch=1&resourceVersion={from}", made())).await;
    let mut seen = Vec::new();
    for _ in 0..6 {
        seen.push(late.soon().await);
    }
    let briefs: Vec<_> = seen.iter().map(brief).collect();
    assert_eq!(briefs[..2], ["ADDED renamed/x", "ADDED renamed/y"]);
    assert_eq!(briefs[2..], ["DELETED a/x", "ADDED renamed/x", "DELETED a/y", "ADDED renamed/y"]);
    late.nothing().await;
}

#[tokio::test]
async fn flapping_member_causes_no_deletions_and_no_relist() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "0");
    fixture.put_and_see("a", "y", "0").await;
    let from = version(&fixture.get(&made()).await.ok());
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={from}", made())).await;
    let control = fixture.member("a").control();
    control.reset_counters();
    for round in 1..=6 {
        control.stop_listening().await;
        if round % 2 == 0 {
            // After this time the cluster counts as unreachable, and lists have a Warning.
            pass(Duration::from_secs(7)).await;
            assert_eq!(fixture.get(&made()).await.warnings().len(), 1);
        }
        assert_eq!(items(&fixture.get(&made()).await.ok()), ["a/x", "a/y"]);
        control.start_listening().await;
        if round % 3 == 0 {
            control.disconnect();
        }
        fixture.put("a", "x", &round.to_string());
        tokio::time::pause();
        let event = tokio::time::timeout(SOON * 6, events.next()).await.expect("an event").expect("not the end");
        tokio::time::resume();
        assert_eq!((brief(&event), &event["object"]["data"]["v"]), ("MODIFIED a/x".into(), &json!(round.to_string())));
    }
    events.nothing().await;
    let listed = control.request_log().into_iter().filter(|line| {
        line.contains("/configmaps") && !line.contains("limit=1") && !line.contains("watch=1&resourceVersion=")
    });
    assert_eq!(listed.collect::<Vec<_>>(), Vec::<String>::new(), "what is held is gone on with");
    assert!(fixture.get(&made()).await.warnings().is_empty());
}

/// Gives the name `a` to another member. If `above` is true, this member's revisions are higher than those of the first
/// member.
async fn replaced(above: bool) {
    let mut fixture = Fixture::start(["a", "b"]).await;
    let other = Fixture::start(["c"]).await.members.remove(0);
    let many = |member: &tributary_simulator::SimulatedCluster| {
        for number in 0..50 {
            member.apply(crate::harness::config_map("often", &number.to_string())).unwrap();
        }
    };
    many(if above { &other } else { fixture.member("a") });
    fixture.put("a", "both", "1");
    fixture.put("a", "first", "1");
    other.apply(crate::harness::config_map("both", "2")).unwrap();
    let last = other.apply(crate::harness::config_map("second", "2")).unwrap();
    other.delete("configmaps", "default", "often");
    fixture.member("a").delete("configmaps", "default", "often");
    fixture.put_and_see("b", "of-b", "").await;
    let (page, token) = first_page(&fixture, &made()).await;
    let from = version(&page);
    let before: u64 = vector(&from)["a"].as_str().unwrap().parse().unwrap();
    assert_eq!(last > before, above);
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={from}", made())).await;
    let new = setup(&other, "a").await;
    fixture.router.set_clusters(vec![new, setup(fixture.member("b"), "b").await]);
    fixture.members.push(other);
    // An object with an equal name in the new cluster is a different object, so the watch sends both a deletion and an
    // addition.
    let mut told = Vec::new();
    for _ in 0..4 {
        told.push(events.brief().await);
    }
    assert_eq!(told[..2], ["DELETED a/both", "DELETED a/first"]);
    assert_eq!(told[2..], ["ADDED a/both", "ADDED a/second"]);
    events.nothing().await;
    assert_eq!(items(&fixture.get(&made()).await.ok()), ["a/both", "a/second", "b/of-b"]);
    // Versions and continue tokens from before the replacement are invalid.
    let mut old = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(old.soon().await["object"]["code"], 410);
    fixture.get(&format!("{CONFIG_MAPS}?resourceVersion={from}&resourceVersionMatch=Exact")).await.refused(410);
    let (rest, same) = rest(&fixture, &made(), &token).await;
    assert_eq!((items(&page), rest, same), (vec!["a/both".into()], vec!["a/second".into(), "b/of-b".into()], false));
    fixture.put("c", "third", "");
    assert_eq!(events.brief().await, "ADDED a/third");
}

#[tokio::test]
async fn name_reassigned_to_a_cluster_with_higher_revisions_is_detected() {
    replaced(true).await;
}

#[tokio::test]
async fn name_reassigned_to_a_cluster_with_lower_revisions_is_detected() {
    replaced(false).await;
}

#[tokio::test]
async fn restore_is_detected_after_later_writes() {
    let fixture = Fixture::start(["a", "b"]).await;
    let backup = fixture.put("a", "undeleted", "");
    fixture.member("a").delete("configmaps", "default", "undeleted");
    fixture.put("a", "undone", "");
    let seen = fixture.put_and_see("a", "kept", "").await;
    let list = fixture.get(&made()).await.ok();
    let path = format!("{}&watch=1&resourceVersion={}", made(), version(&list));
    let mut events = fixture.watch(&path).await;
    let control = fixture.member("a").control();
    control.stop_listening().await;
    assert!(control.restore(backup));
    while fixture.put("a", "kept", "again") <= seen {}
    // A kube-apiserver that starts after a restore has no older events, so the router must relist the member.
    control.compact();
    control.start_listening().await;
    // The open watch receives the differences between the two states. A watch from an earlier version must begin again.
    let told = [events.brief().await, events.brief().await, events.brief().await];
    for expected in ["DELETED a/undone", "ADDED a/undeleted", "a/kept"] {
        assert!(told.iter().any(|told| told.ends_with(expected)), "{told:?} has no {expected}");
    }
    assert_eq!(fixture.watch(&path).await.soon().await["object"]["code"], 410);
    let past = format!("{}&resourceVersion={}&resourceVersionMatch=Exact", made(), version(&list));
    assert_eq!(fixture.get(&past).await.code, 410, "the log does not have it");
}

#[tokio::test]
async fn paged_list_never_mixes_states_around_a_restore() {
    let fixture = Fixture::start(["a", "b"]).await;
    let backup = fixture.put("a", "kept1", "");
    fixture.put("a", "kept2", "");
    let backup = backup + 1;
    for number in 0..20 {
        fixture.put("a", "undone", &number.to_string());
    }
    fixture.put_and_see("b", "of-b", "").await;
    let (page, token) = first_page(&fixture, &made()).await;
    let from: u64 = vector(&version(&page))["a"].as_str().unwrap().parse().unwrap();
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={}", made(), version(&page))).await;
    assert!(fixture.member("a").control().restore(backup));
    assert_eq!(events.brief().await, "DELETED a/undone");
    let (after, same) = rest(&fixture, &made(), &token).await;
    assert_eq!((after, same), (vec!["a/kept2".into(), "b/of-b".into()], false));
    // Later, the undone revisions belong to other states. The list must not mix the two states.
    loop {
        let revision = fixture.put_and_see("a", "other", "").await;
        let (after, same) = rest(&fixture, &made(), &token).await;
        assert_eq!((after, same), (vec!["a/kept2".into(), "a/other".into(), "b/of-b".into()], false), "{revision}");
        if revision > from {
            break;
        }
    }
    let (page, token) = first_page(&fixture, &made()).await;
    let (after, same) = rest(&fixture, &made(), &token).await;
    assert_eq!(
        [items(&page), after].concat(),
        ["a/kept1", "a/kept2", "a/other", "b/of-b"],
        "and what is handed out now is good ({same})"
    );
    assert!(same);
}

#[tokio::test]
async fn paged_list_never_mixes_a_recreated_cluster_with_the_old() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put("a", "x", "");
    fixture.put("a", "y", "");
    fixture.put_and_see("b", "of-b", "").await;
    let (page, token) = first_page(&fixture, &made()).await;
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={}", made(), version(&page))).await;
    fixture.member("a").control().new_incarnation();
    refresh(&fixture).await;
    until(|| async { !rest(&fixture, &made(), &token).await.1 }).await;
    assert_eq!(rest(&fixture, &made(), &token).await.0, ["a/y", "b/of-b"]);
    // The objects of the recreated cluster are new objects, even if they are equal.
    assert_eq!(told(&mut events, 4).await, ["ADDED a/x", "ADDED a/y", "DELETED a/x", "DELETED a/y"]);
    fixture.put("a", "z", "");
    assert_eq!(events.brief().await, "ADDED a/z");
}

/// A change of a cluster, while the member delays all lists.
#[derive(Clone, Copy, PartialEq)]
enum Changed {
    /// The router gets a new configuration.
    Configuration,
    /// The cluster is recreated, and the router detects it.
    Cluster,
    /// The cluster is recreated, and the router detects it only with the next configuration.
    ClusterUnseen,
}

/// Applies several changes to a cluster before the router can list it. After all changes, the router must treat the
/// cluster as a new cluster.
async fn made_anew_while_reconfigured(changes: &[Changed]) {
    let fixture = Fixture::start(["a"]).await;
    fixture.put_and_see("a", "x", "").await;
    let from = version(&fixture.get(CONFIG_MAPS).await.ok());
    let a = fixture.member("a");
    a.control().hold_lists(true);
    for (number, change) in changes.iter().enumerate() {
        a.control().reset_counters();
        match change {
            Changed::Configuration => {
                let address = ClusterAddress::from_description(&format!("address {number}"));
                fixture.router.set_clusters(vec![ClusterSetup { address, ..setup(a, "a").await }]);
                fixture.router.asked_once(SOON).await;
            }
            Changed::Cluster => {
                a.control().new_incarnation();
                refresh(&fixture).await;
            }
            Changed::ClusterUnseen => {
                a.control().new_incarnation();
                continue;
            }
        }
        until(async || !lists(a).is_empty()).await;
    }
    if changes.ends_with(&[Changed::Configuration]) {
        // The router must not serve the objects of the old cluster as old objects of the new cluster.
        let report = fixture.router.report().await;
        let listed = report.behind.iter().find(|own| own.resource == "configmaps").unwrap();
        assert_eq!(listed.state, CollectionState::Unknown);
    }
    // The new cluster continues with higher revisions, so revisions alone do not reveal that the cluster is new.
    fixture.put("a", "y", "");
    a.control().hold_lists(false);
    until(async || items(&fixture.get(&made()).await.ok()) == ["a/x", "a/y"]).await;
    let mut old = fixture.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(old.soon().await["object"]["code"], 410);
}

#[tokio::test]
async fn cluster_recreated_after_a_reconfiguration_is_a_new_cluster() {
    made_anew_while_reconfigured(&[Changed::Configuration, Changed::Cluster]).await;
}

#[tokio::test]
async fn cluster_recreated_before_its_list_is_a_new_cluster() {
    use Changed::{Cluster, ClusterUnseen, Configuration};
    made_anew_while_reconfigured(&[Configuration, Cluster, Configuration, Configuration]).await;
    made_anew_while_reconfigured(&[Cluster, Configuration, Configuration]).await;
    made_anew_while_reconfigured(&[ClusterUnseen, Configuration, Configuration]).await;
}

/// Any new connection may reach a recreated cluster, or another cluster behind the same load balancer. So each new
/// connection causes a check of the uid.
#[tokio::test]
async fn each_new_connection_checks_the_uid_of_the_cluster() {
    let fixture = Fixture::start(["a"]).await;
    let control = fixture.member("a").control();
    let asked = || control.request_log().iter().filter(|line| line.contains("/namespaces/kube-system")).count();
    // The router also checks the uid each minute. The whole test is shorter than this minute.
    pass(Duration::from_secs(15)).await;
    let before = asked();
    pass(Duration::from_secs(15)).await;
    assert_eq!(asked(), before, "over the connections that there are nobody else answers: {:?}", control.request_log());
    control.disconnect();
    pass(Duration::from_secs(15)).await;
    assert!(asked() > before, "{:?}", control.request_log());
}

#[tokio::test]
async fn open_watch_receives_objects_of_a_newly_served_resource() {
    let fixture = Fixture::start(["a", "b"]).await;
    for member in &fixture.members {
        member.control().serve("deployments.apps", false);
        member.apply(deployment(&format!("of-{}", member.name()))).unwrap();
    }
    refresh(&fixture).await;
    fixture.get(DEPLOYMENTS).await.refused(404);
    fixture.get(&format!("{DEPLOYMENTS}?watch=1")).await.refused(404);
    fixture.member("a").control().serve("deployments.apps", true);
    // Before the router rejects an unknown name, it reads discovery again. The rate of these reads is limited, hence
    // the pause.
    pass(Duration::from_secs(3)).await;
    let list = fixture.get(DEPLOYMENTS).await.ok();
    assert_eq!(items(&list), ["a/of-a"], "a cluster that does not serve it at all is no failure");
    let mut events = fixture.watch(&format!("{DEPLOYMENTS}?watch=1&resourceVersion={}", version(&list))).await;
    fixture.member("b").control().serve("deployments.apps", true);
    refresh(&fixture).await;
    assert_eq!(events.brief().await, "ADDED b/of-b");
    fixture.member("b").apply(deployment("more")).unwrap();
    assert_eq!(events.brief().await, "ADDED b/more");
    let mut late = fixture.watch(&format!("{DEPLOYMENTS}?watch=1&resourceVersion={}", version(&list))).await;
    assert_eq!(told(&mut late, 2).await, ["ADDED b/more", "ADDED b/of-b"]);
}

#[tokio::test]
async fn open_watch_receives_deletions_of_an_unserved_resource() {
    let fixture = Fixture::start(["a", "b"]).await;
    for member in &fixture.members {
        member.apply(deployment(&format!("of-{}", member.name()))).unwrap();
    }
    let (page, token) = first_page(&fixture, DEPLOYMENTS).await;
    let from = version(&page);
    let mut events = fixture.watch(&format!("{DEPLOYMENTS}?watch=1&resourceVersion={from}")).await;
    fixture.member("b").control().serve("deployments.apps", false);
    refresh(&fixture).await;
    assert_eq!(events.brief().await, "DELETED b/of-b");
    let answer = fixture.get(DEPLOYMENTS).await;
    assert_eq!((items(&answer.ok()), answer.warnings()), (vec!["a/of-a".to_owned()], vec![]));
    fixture.get(&format!("{DEPLOYMENTS}/of-b")).await.refused(404);
    assert_eq!(
        rest(&fixture, DEPLOYMENTS, &token).await,
        (vec!["b/of-b".into()], true),
        "the snapshot is gone on with"
    );
    let mut late = fixture.watch(&format!("{DEPLOYMENTS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(late.brief().await, "DELETED b/of-b");
    // This replica never had the resource of `b`, so it cannot send the deletions. The client must list again.
    let other = fixture.restarted(crate::harness::allow()).await;
    let mut elsewhere = other.watch(&format!("{DEPLOYMENTS}?watch=1&resourceVersion={from}")).await;
    assert_eq!(elsewhere.soon().await["object"]["code"], 410);
    other.get(&format!("{DEPLOYMENTS}?resourceVersion={from}")).await.refused(410);
    fixture.member("b").control().serve("deployments.apps", true);
    refresh(&fixture).await;
    assert_eq!(events.brief().await, "ADDED b/of-b");
    // If no cluster serves the resource any more, open watches receive the deletions and then end.
    for member in &fixture.members {
        member.control().serve("deployments.apps", false);
    }
    refresh(&fixture).await;
    assert_eq!(told(&mut events, 2).await, ["DELETED a/of-a", "DELETED b/of-b"]);
    assert_eq!(fixture.get(DEPLOYMENTS).await.code, 404);
}

#[tokio::test]
async fn starting_kube_apiserver_does_not_remove_known_resources() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.member("b").apply(deployment("of-b")).unwrap();
    let list = fixture.get(DEPLOYMENTS).await.ok();
    let mut events = fixture.watch(&format!("{DEPLOYMENTS}?watch=1&resourceVersion={}", version(&list))).await;
    let control = fixture.member("b").control();
    // A kube-apiserver that is starting serves discovery before it has read its CustomResourceDefinitions. A kind that
    // is missing in this discovery must not cause deletions.
    control.ready(false);
    control.serve("deployments.apps", false);
    control.disconnect();
    for _ in 0..3 {
        refresh(&fixture).await;
        let named = fixture.get(&format!("{DEPLOYMENTS}/of-b")).await.ok();
        assert_eq!(cluster(&named), "b");
        assert_eq!(items(&fixture.get(DEPLOYMENTS).await.ok()), ["b/of-b"]);
    }
    events.nothing().await;
    let health = String::from_utf8(fixture.get("/readyz?verbose").await.body.to_vec()).unwrap();
    assert!(health.contains("[-]cluster/b failed: the cluster is not ready"), "{health}");
    control.serve("deployments.apps", true);
    control.ready(true);
    refresh(&fixture).await;
    fixture.member("b").apply(deployment("more")).unwrap();
    tokio::time::pause();
    let event = tokio::time::timeout(SOON * 6, events.next()).await.expect("an event").expect("not the end");
    tokio::time::resume();
    assert_eq!(brief(&event), "ADDED b/more");
    until(|| async { fixture.get(DEPLOYMENTS).await.warnings().is_empty() }).await;
}

#[tokio::test]
async fn cluster_under_two_names_is_listed_once() {
    let fixture = Fixture::start(["a"]).await;
    fixture.put_and_see("a", "x", "").await;
    let list = fixture.get(&made()).await.ok();
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={}", made(), version(&list))).await;
    let member = fixture.member("a");
    let twice = [setup(member, "a").await, setup(member, "twin").await];
    fixture.router.set_clusters(twice.to_vec());
    fixture.router.asked_once(SOON).await;
    assert_eq!(
        fixture.router.same_cluster_twice().map(|(first, second)| format!("{first} {second}")).as_deref(),
        Some("a twin")
    );
    events.nothing().await;
    let answer = fixture.get(&made()).await;
    assert_eq!((items(&answer.ok()), answer.warnings()), (vec!["a/x".to_owned()], vec![]));
    assert_eq!(cluster(&fixture.get(&format!("{CONFIG_MAPS}/x")).await.ok()), "a", "a name is not ambiguous");
    let asked = member.control().requests(RequestKind::Discovery);
    fixture.get(&format!("{CONFIG_MAPS}/nowhere")).await.refused(404);
    assert_eq!(member.control().requests(RequestKind::Discovery), asked, "a twin lacks no kind that the first has");
    assert_eq!(fixture.get(&format!("/clusters/twin{CONFIG_MAPS}/x")).await.ok()["metadata"]["name"], "x");
    let health = String::from_utf8(fixture.get("/readyz?verbose").await.body.to_vec()).unwrap();
    assert!(health.contains("[-]cluster/twin failed: the cluster is the same as a, under a second name"), "{health}");
    // If the first name is removed, the cluster keeps its objects under the second name.
    fixture.router.set_clusters(vec![setup(member, "twin").await]);
    assert_eq!(told(&mut events, 2).await, ["ADDED twin/x", "DELETED a/x"]);
}

/// Starts a relay to the member. Returns its address.
async fn another_address(member: &SimulatedCluster) -> http::Uri {
    let (listener, far) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), member.address());
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut far = TcpStream::connect(far).await.unwrap();
                tokio::io::copy_bidirectional(&mut near, &mut far).await
            });
        }
    });
    format!("https://{address}").parse().unwrap()
}

/// Both addresses present the same certificate, so the router detects that they lead to one cluster.
#[tokio::test]
async fn cluster_at_two_addresses_is_listed_once() {
    let fixture = Fixture::start(["a"]).await;
    fixture.put_and_see("a", "x", "").await;
    let member = fixture.member("a");
    let elsewhere = another_address(member).await;
    let twin = setup_through(member, "twin", &[elsewhere], ClientTuning::default()).await;
    fixture.router.set_clusters(vec![setup(member, "a").await, twin]);
    fixture.router.asked_once(SOON).await;
    let (first, second) = fixture.router.same_cluster_twice().unwrap();
    assert_eq!((first.as_str(), second.as_str()), ("a", "twin"));
    assert_eq!(items(&fixture.get(&made()).await.ok()), ["a/x"]);
}

/// A hostile member may claim the uid of another cluster's kube-system namespace, which is no secret.
#[tokio::test]
async fn member_that_claims_anothers_uid_does_not_hide_its_objects() {
    let fixture = Fixture::start(["victim"]).await;
    fixture.put_and_see("victim", "of-the-victim", "").await;
    let victim = fixture.member("victim");
    // The simulator derives the uid from the name and the seed, so both members have the same uid. Their certificates
    // differ.
    let hostile = Simulator::start(config("victim")).await.unwrap();
    hostile.apply(config_map("own", "")).unwrap();
    fixture.router.set_clusters(vec![setup(&hostile, "a").await, setup(victim, "victim").await]);
    fixture.router.asked_once(SOON).await;
    assert_eq!(fixture.router.same_cluster_twice(), None);
    let list = format!("{CONFIG_MAPS}?resourceVersion=0");
    until(async || items(&fixture.get(&list).await.ok()).contains(&"a/own".to_owned())).await;
    assert!(items(&fixture.get(&list).await.ok()).contains(&"victim/of-the-victim".to_owned()));
    let health = String::from_utf8(fixture.get("/readyz?verbose").await.body.to_vec()).unwrap();
    for part in [
        "[+]cluster/a ok",
        "[+]cluster/victim ok",
        "[-]cluster/a/identity failed: cluster victim and this cluster have the same kube-system uid (",
        "[-]cluster/victim/identity failed: cluster a and this cluster",
        "readyz check passed",
    ] {
        assert!(health.contains(part), "{part}: {health}");
    }
    // Without the hostile cluster, the report has no problem with an identity.
    fixture.router.set_clusters(vec![setup(victim, "victim").await]);
    until(async || !String::from_utf8_lossy(&fixture.get("/readyz?verbose").await.body).contains("identity")).await;
}

/// If a cluster hides its uid, the router cannot detect that an unchanged address leads to another cluster.
#[tokio::test]
async fn cluster_that_withholds_its_uid_is_reported_with_the_remedy() {
    let mut fixture = Fixture::start(["a", "b"]).await;
    let rejection =
        Rejection { kinds: vec![RequestKind::Get], resources: vec!["namespaces".into()], ..Rejection::all(403) };
    fixture.member("a").control().reject(Some(rejection));
    fixture.router = fixture.restarted(allow()).await.router;
    let problems = fixture.router.report().await.clusters.into_iter().map(|own| own.identity_problem);
    let [Some(of_a), None] = &problems.collect::<Vec<_>>()[..] else { panic!("{:?}", fixture.router.report().await) };
    assert!(
        of_a.contains("uid of its namespace kube-system") && of_a.contains("the verb get on this namespace"),
        "{of_a}"
    );
}

#[tokio::test]
async fn cluster_under_two_names_uses_the_alphabetically_first_name() {
    let fixture = Fixture::start(["m"]).await;
    fixture.put_and_see("m", "x", "").await;
    let member = fixture.member("m");
    let (second, first) = (setup(member, "second").await, setup(member, "first").await);
    // The first name has no usable configuration at first.
    let lost = ClusterSetup {
        client: Err("no such file".into()),
        address: ClusterAddress::from_description("lost"),
        ..first.clone()
    };
    fixture.router.set_clusters(vec![lost, second.clone()]);
    fixture.router.asked_once(Duration::from_secs(1)).await;
    until(|| async { items(&fixture.get(&made()).await.ok()) == ["second/x"] }).await;
    let mut events = fixture.watch(&format!("{}&watch=1", made())).await;
    assert_eq!(events.brief().await, "ADDED second/x");
    fixture.router.set_clusters(vec![first, second]);
    assert_eq!(told(&mut events, 2).await, ["ADDED first/x", "DELETED second/x"]);
    assert_eq!(items(&fixture.get(&made()).await.ok()), ["first/x"]);
}

#[tokio::test]
async fn outage_causes_few_discovery_requests_and_its_end_is_detected_soon() {
    let fixture = Fixture::start(["a", "b"]).await;
    fixture.put_and_see("b", "x", "").await;
    let control = fixture.member("b").control();
    control.stop_listening().await;
    let problems = async || {
        let all = fixture.router.report().await.clusters.into_iter();
        all.filter(|cluster| cluster.problem.is_some()).map(|cluster| cluster.name).collect::<Vec<_>>()
    };
    // The router detects a broken connection before the next regular request, which is after 8 seconds at the earliest.
    let started = tokio::time::Instant::now();
    until(async || problems().await == ["b"]).await;
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    control.start_listening().await;
    control.reset_counters();
    tokio::time::pause();
    until(async || problems().await.is_empty()).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    tokio::time::resume();
    let asked = control.requests(RequestKind::Discovery);
    assert!((2..=16).contains(&asked), "{asked} questions in half a minute");
}

/// Returns a ConfigMap with or without the label `app: web`.
fn labelled(name: &str, web: bool) -> Value {
    let mut object = crate::harness::config_map(name, "");
    if web {
        object["metadata"]["labels"] = json!({"app": "web"});
    }
    object
}

/// Applies events like a client that identifies objects only by name. Returns the objects that the client then has.
fn by_name(events: &[Value]) -> Vec<String> {
    let mut held = std::collections::BTreeMap::new();
    for event in events {
        match event["type"].as_str() {
            Some("DELETED") => drop(held.remove(&name(&event["object"]))),
            _ => drop(held.insert(name(&event["object"]), cluster(&event["object"]))),
        }
    }
    held.into_iter().map(|(name, cluster)| format!("{cluster}/{name}")).collect()
}

#[tokio::test]
async fn watch_sends_the_remaining_object_after_its_namesake_leaves_the_selection() {
    let fixture = Fixture::start(["a", "b", "c"]).await;
    let apply = |cluster: &str, web: bool| fixture.member(cluster).apply(labelled("twin", web)).unwrap();
    apply("a", true);
    apply("b", false);
    let revision = apply("c", true);
    fixture.see("c", revision).await;
    let selected = format!("{CONFIG_MAPS}?labelSelector=app%3Dweb");
    let list = fixture.get(&selected).await.ok();
    assert_eq!(items(&list), ["a/twin", "c/twin"]);
    let mut events = fixture.watch(&format!("{selected}&watch=1&resourceVersion={}", version(&list))).await;
    let mut told = Vec::new();
    let mut next = async |events: &mut Events, expected: &[&str]| {
        for expected in expected {
            let event = events.soon().await;
            assert_eq!(brief(&event), *expected);
            told.push(event);
        }
    };
    apply("a", false);
    next(&mut events, &["DELETED a/twin", "ADDED c/twin"]).await;
    apply("b", true);
    next(&mut events, &["ADDED b/twin"]).await;
    fixture.member("c").delete("configmaps", "default", "twin");
    next(&mut events, &["DELETED c/twin", "ADDED b/twin"]).await;
    apply("a", true);
    next(&mut events, &["ADDED a/twin"]).await;
    apply("b", false);
    next(&mut events, &["DELETED b/twin", "ADDED a/twin"]).await;
    apply("a", false);
    next(&mut events, &["DELETED a/twin"]).await;
    events.nothing().await;
    // This object comes last in every resumed stream, so that the test knows the end.
    fixture.member("c").apply(labelled("end", true)).unwrap();
    assert_eq!(events.brief().await, "ADDED c/end");
    // A client that resumes after any event must end with the same names as the uninterrupted client.
    for cut in 0..told.len() {
        let from = version(&told[cut]["object"]);
        let mut resumed = fixture.watch(&format!("{selected}&watch=1&resourceVersion={from}")).await;
        let mut seen = told[..=cut].to_vec();
        loop {
            let event = resumed.soon().await;
            assert_ne!(event["type"], "ERROR", "{event}");
            if brief(&event) == "ADDED c/end" {
                break;
            }
            seen.push(event);
        }
        assert_eq!(by_name(&seen), Vec::<String>::new(), "cut after {cut}: {seen:#?}");
        // A DELETED event has the version before the deletion. A client that resumes after it receives the deletion and
        // the following ADDED event again.
        if brief(&told[cut]).starts_with("DELETED") && cut + 1 < told.len() {
            assert_eq!(brief(&seen[cut + 1]), brief(&told[cut]), "cut after {cut}");
            assert_eq!(brief(&seen[cut + 2]), brief(&told[cut + 1]), "cut after {cut}");
        }
    }
}

#[tokio::test]
async fn watch_sends_the_remaining_object_after_a_cluster_is_removed() {
    let fixture = Fixture::start(["a", "b"]).await;
    for name in ["one", "two", "own"] {
        fixture.put("a", name, "");
    }
    fixture.put("b", "one", "");
    fixture.put_and_see("b", "two", "").await;
    let list = fixture.get(&made()).await.ok();
    let mut events = fixture.watch(&format!("{}&watch=1&resourceVersion={}", made(), version(&list))).await;
    fixture.set_clusters(&["b"]).await;
    let mut told = Vec::new();
    for _ in 0..5 {
        told.push(events.soon().await);
    }
    let briefs: Vec<_> = told.iter().map(brief).collect();
    assert_eq!(briefs, ["DELETED a/one", "ADDED b/one", "DELETED a/own", "DELETED a/two", "ADDED b/two"]);
    assert_eq!(by_name(&told), ["b/one", "b/two"]);
    events.nothing().await;
    // Deletions that a relist discovers must cause the same events as deletions that a watch delivers.
    fixture.set_clusters(&["a", "b"]).await;
    told.clear();
    for _ in 0..3 {
        told.push(events.soon().await);
    }
    assert_eq!(told.iter().map(brief).collect::<Vec<_>>(), ["ADDED a/one", "ADDED a/two", "ADDED a/own"]);
    let control = fixture.member("b").control();
    control.stop_listening().await;
    fixture.member("b").delete("configmaps", "default", "one");
    control.compact();
    control.start_listening().await;
    tokio::time::pause();
    let event = tokio::time::timeout(SOON * 6, events.next()).await.expect("an event").expect("not the end");
    tokio::time::resume();
    assert_eq!([brief(&event), events.brief().await], ["DELETED b/one", "ADDED a/one"]);
}

#[tokio::test]
async fn annotation_contains_the_new_name_of_a_renamed_cluster() {
    let fixture = Fixture::start(["a"]).await;
    fixture.put_and_see("a", "x", "").await;
    fixture.router.set_clusters(vec![setup(fixture.member("a"), "other").await]);
    until(|| async { items(&fixture.get(&made()).await.ok()) == ["other/x"] }).await;
    let object = fixture.get(&format!("{CONFIG_MAPS}/x")).await.ok();
    assert_eq!(object["metadata"]["annotations"][ANNOTATION], "other");
    // A version under the old cluster name is no valid precondition for the new name.
    let mut stale = object.clone();
    stale["metadata"]["resourceVersion"] = composite(&json!({"a": "1"})).into();
    fixture.write("PUT", &format!("{CONFIG_MAPS}/x"), &stale).await.refused(409);
}
