//! The shared mode: what users may do in each member, mirrored.

use std::time::Duration;

use serde_json::{Value, json};
use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_authorization::{RbacKind, User, Visible};
use tributary_router::report::RightsCondition;
use tributary_router::{SharedMode, testing};
use tributary_simulator::{Rejection, RequestKind, SimulatedCluster};

use crate::harness::{Fixture, allow, pass, until};

const RBAC: &str = "rbac.authorization.k8s.io";

/// How long what was said last holds where only roles and bindings are not followed, and a little more.
const BEHIND: Duration = Duration::from_secs(5 * 60 + 30);

/// A role of a namespace, or without one a ClusterRole, with one rule: these words each.
fn role(namespace: &str, name: &str, [verbs, groups, resources, names]: [&[&str]; 4]) -> Value {
    let rule = json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names});
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    rbac(kind, namespace, name, json!({"rules": [rule]}))
}

/// A binding of a role to a user: in a namespace, or without one everywhere.
fn binding(namespace: &str, name: &str, (kind, role): (&str, &str), user: &str) -> Value {
    let subject = json!({"kind": "User", "apiGroup": RBAC, "name": user});
    let reference = json!({"apiGroup": RBAC, "kind": kind, "name": role});
    let kind = if namespace.is_empty() { "ClusterRoleBinding" } else { "RoleBinding" };
    rbac(kind, namespace, name, json!({"roleRef": reference, "subjects": [subject]}))
}

fn rbac(kind: &str, namespace: &str, name: &str, mut object: Value) -> Value {
    object["kind"] = kind.into();
    object["apiVersion"] = format!("{RBAC}/v1").into();
    object["metadata"] = json!({"name": name});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = namespace.into();
    }
    object
}

/// Lets a user read ConfigMaps: in a namespace, or without one everywhere.
fn grant(member: &SimulatedCluster, namespace: &str, user: &str) {
    let verbs: &[&str] = &["get", "list", "watch"];
    member.apply(role("", "reader", [verbs, &[""], &["configmaps"], &[]])).unwrap();
    member.apply(binding(namespace, &format!("{user}-reads"), ("ClusterRole", "reader"), user)).unwrap();
}

/// Where a user may list ConfigMaps of a cluster: `all`, `n` and `m`, `none`; `unknown` where that is not known.
fn lists(fixture: &Fixture, cluster: &str, user: &str) -> String {
    let (cluster, user) = (ClusterName::new(cluster).unwrap(), User { name: user, groups: &[] });
    let resource = GroupVersionResource::new("", "v1", "configmaps");
    match testing::rights_in(&fixture.router, &cluster, user, "list", &resource) {
        None => "unknown".to_owned(),
        Some(Visible::Whole) => "all".to_owned(),
        Some(visible) if visible.is_nothing() => "none".to_owned(),
        Some(Visible::Part(part)) => part.namespaces.iter().map(|name| &**name).collect::<Vec<_>>().join(" "),
    }
}

async fn listed(fixture: &Fixture, cluster: &str, user: &str, expected: &str) {
    until(async || lists(fixture, cluster, user) == expected).await;
}

async fn conditions(fixture: &Fixture) -> Vec<Option<RightsCondition>> {
    fixture.router.report().await.clusters.iter().map(|cluster| cluster.rights).collect()
}

/// Lets all requests of RBAC's resources be refused, or none.
fn refuse_rbac(member: &SimulatedCluster, refused: bool) {
    let resources = RbacKind::ALL.map(|kind| format!("{}.{RBAC}", kind.resource())).into();
    member.control().reject(refused.then(|| Rejection { resources, ..Rejection::all(403) }));
}

#[tokio::test]
async fn each_members_rights_are_its_own_and_follow_it() {
    let fixture = Fixture::shared(["a", "b"], allow(), SharedMode::default()).await;
    let (a, b) = (fixture.member("a"), fixture.member("b"));
    listed(&fixture, "a", "ann", "none").await;
    listed(&fixture, "b", "ann", "none").await;
    let mut changes = testing::rights_changes(&fixture.router).unwrap();
    changes.mark_unchanged();
    grant(a, "", "ann");
    grant(b, "shop", "ann");
    grant(b, "default", "ann");
    listed(&fixture, "a", "ann", "all").await;
    listed(&fixture, "b", "ann", "default shop").await;
    assert!(changes.has_changed().unwrap(), "whoever waits is woken");
    assert_eq!((lists(&fixture, "a", "bob"), lists(&fixture, "b", "bob")), ("none".to_owned(), "none".to_owned()));
    // A binding goes, and a role loses its rule.
    b.delete(&format!("rolebindings.{RBAC}"), "shop", "ann-reads").unwrap();
    listed(&fixture, "b", "ann", "default").await;
    a.apply(role("", "reader", [&["get"], &[""], &["configmaps"], &[]])).unwrap();
    listed(&fixture, "a", "ann", "none").await;
    assert_eq!(lists(&fixture, "b", "ann"), "default");
    assert_eq!(conditions(&fixture).await, [Some(RightsCondition::Current); 2]);
}

/// Every way by which what is held comes to another state: a cut, a relist, revisions that go back, another cluster.
#[tokio::test]
async fn what_was_missed_is_made_up_for() {
    let fixture = Fixture::shared(["a"], allow(), SharedMode::default()).await;
    let a = fixture.member("a");
    grant(a, "shop", "ann");
    listed(&fixture, "a", "ann", "shop").await;
    let before = a.control().revision();
    a.control().cut_streams();
    grant(a, "default", "ann");
    listed(&fixture, "a", "ann", "default shop").await;
    assert!(a.control().restore(before));
    listed(&fixture, "a", "ann", "shop").await;
    grant(a, "default", "ann");
    listed(&fixture, "a", "ann", "default shop").await;
    a.control().compact();
    a.delete(&format!("rolebindings.{RBAC}"), "default", "ann-reads").unwrap();
    a.control().expire_watches();
    listed(&fixture, "a", "ann", "shop").await;
}

#[tokio::test]
async fn a_member_whose_roles_were_never_all_read_is_unknown() {
    let fixture = Fixture::shared([], allow(), SharedMode::default()).await;
    let held = tributary_simulator::Simulator::start(tributary_simulator::SimulatorConfig {
        rbac: true,
        ..crate::harness::config("a")
    });
    let fixture = Fixture { members: vec![held.await.unwrap()], ..fixture };
    let a = fixture.member("a");
    grant(a, "", "ann");
    // One of four is missing.
    let resources = vec![format!("roles.{RBAC}")];
    a.control().reject(Some(Rejection { resources, ..Rejection::all(403) }));
    fixture.set_clusters(&["a"]).await;
    fixture.router.asked_once(crate::harness::SOON).await;
    pass(BEHIND).await;
    assert!(a.control().requests_of(RequestKind::List, &format!("clusterroles.{RBAC}")) > 0);
    assert_eq!(lists(&fixture, "a", "ann"), "unknown");
    assert_eq!(conditions(&fixture).await, [Some(RightsCondition::Unread)]);
    a.control().reject(None);
    pass(Duration::from_secs(60)).await;
    listed(&fixture, "a", "ann", "all").await;
}

#[tokio::test]
async fn rights_that_are_not_followed_hold_for_five_minutes() {
    let fixture = Fixture::shared(["a", "b"], allow(), SharedMode::default()).await;
    grant(fixture.member("a"), "", "ann");
    grant(fixture.member("b"), "", "ann");
    listed(&fixture, "a", "ann", "all").await;
    listed(&fixture, "b", "ann", "all").await;
    let a = fixture.member("a");
    refuse_rbac(a, true);
    a.control().cut_streams();
    until(async || conditions(&fixture).await[0] == Some(RightsCondition::Behind)).await;
    assert_eq!(lists(&fixture, "a", "ann"), "all");
    let mut changes = testing::rights_changes(&fixture.router).unwrap();
    changes.mark_unchanged();
    pass(BEHIND).await;
    assert_eq!((lists(&fixture, "a", "ann"), lists(&fixture, "b", "ann")), ("unknown".to_owned(), "all".to_owned()));
    assert!(changes.has_changed().unwrap(), "whoever waits is woken when rights cease to hold");
    assert_eq!(conditions(&fixture).await, [Some(RightsCondition::Outdated), Some(RightsCondition::Current)]);
    refuse_rbac(a, false);
    pass(Duration::from_secs(60)).await;
    listed(&fixture, "a", "ann", "all").await;
}

#[tokio::test]
async fn the_last_rights_of_a_member_that_is_cut_off_hold_for_as_long_as_is_configured() {
    let mode = SharedMode { stale_rights: Duration::from_secs(20 * 60) };
    let fixture = Fixture::shared(["a", "b"], allow(), mode).await;
    let a = fixture.member("a");
    grant(a, "shop", "ann");
    listed(&fixture, "a", "ann", "shop").await;
    a.control().stop_listening().await;
    a.control().disconnect();
    fixture.out_of_reach("a").await;
    pass(BEHIND).await;
    assert_eq!(lists(&fixture, "a", "ann"), "shop", "nobody there can have said otherwise to anybody here");
    pass(Duration::from_secs(16 * 60)).await;
    assert_eq!(lists(&fixture, "a", "ann"), "unknown");
    a.control().start_listening().await;
    pass(Duration::from_secs(60)).await;
    listed(&fixture, "a", "ann", "shop").await;
}

#[tokio::test]
async fn a_cluster_that_leaves_takes_its_rights_with_it() {
    let fixture = Fixture::shared(["a", "b"], allow(), SharedMode::default()).await;
    grant(fixture.member("a"), "", "ann");
    grant(fixture.member("b"), "shop", "ann");
    listed(&fixture, "a", "ann", "all").await;
    listed(&fixture, "b", "ann", "shop").await;
    fixture.set_clusters(&["b"]).await;
    listed(&fixture, "a", "ann", "unknown").await;
    assert_eq!(lists(&fixture, "b", "ann"), "shop");
    // Under its name comes another cluster.
    let other = crate::harness::setup(fixture.member("b"), "a").await;
    fixture.router.set_clusters(vec![other]);
    listed(&fixture, "a", "ann", "shop").await;
    until(async || fixture.member("a").control().open_watches() == 0).await;
}

#[tokio::test]
async fn one_person_alone_needs_no_mirror() {
    let config = |name| tributary_simulator::SimulatorConfig { rbac: true, ..crate::harness::config(name) };
    let fixture = Fixture::with([config("a")], allow()).await;
    fixture.put_and_see("a", "x", "1").await;
    assert_eq!(conditions(&fixture).await, [None]);
    let log = fixture.member("a").control().request_log();
    assert!(!log.iter().any(|line| line.contains(&format!("/apis/{RBAC}/v1/"))), "{log:?}");
}
