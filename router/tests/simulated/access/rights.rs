//! Tests of the shared mode: the rights of users that the router reads from each member, and their effect on responses
//! from memory.

use std::time::Duration;

use futures::FutureExt;
use serde_json::{Value, json};
use tributary_apimachinery::{ClusterName, Filtered, GroupVersionResource, UserInfo};
use tributary_authorization::{GRANTED_WORDS_MAX, NAMED_SUBJECTS_MAX, RbacKind, Visible};
use tributary_router::ClusterAuthorization::{Auto, Live, Rbac};
use tributary_router::report::RightsCondition;
use tributary_router::{ClusterSetup, Policies, SharedMode, testing};
use tributary_simulator::{Rejection, RequestKind, SimulatedCluster};

use crate::access::rights_bounded::observe;
use crate::harness::{Fixture, SOON, allow, config_map, items, pass, until, vector, version};

pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";

/// A little more than the five minutes for which the router uses old rights after the watches of roles and bindings
/// fail.
const BEHIND: Duration = Duration::from_secs(5 * 60 + 30);

/// Returns a role with one rule: a ClusterRole if `namespace` is empty, or else a Role.
pub(crate) fn role(namespace: &str, name: &str, [verbs, groups, resources, names]: [&[&str]; 4]) -> Value {
    let rule = json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": names});
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    rbac(kind, namespace, name, json!({"rules": [rule]}))
}

/// Returns a binding of a role to a user in a namespace, or in all namespaces if `namespace` is empty.
pub(crate) fn binding(namespace: &str, name: &str, (kind, role): (&str, &str), user: &str) -> Value {
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

/// Grants a user read access to ConfigMaps in a namespace, or in all namespaces if `namespace` is empty.
pub(crate) fn grant(member: &SimulatedCluster, namespace: &str, user: &str) {
    let verbs: &[&str] = &["get", "list", "watch"];
    member.apply(role("", "reader", [verbs, &[""], &["configmaps"], &[]])).unwrap();
    member.apply(binding(namespace, &format!("{user}-reads"), ("ClusterRole", "reader"), user)).unwrap();
}

/// Returns the namespaces of a cluster in which a user may list ConfigMaps, for example `n m`. Also returns `all`,
/// `none`, or `unknown`.
pub(crate) fn lists(fixture: &Fixture, cluster: &str, user: &str) -> String {
    let (cluster, user) = (ClusterName::new(cluster).unwrap(), &UserInfo::with_groups(user, &[]));
    let resource = GroupVersionResource::new("", "v1", "configmaps");
    match testing::rights_in(&fixture.router, &cluster, user, "list", &resource) {
        None => "unknown".to_owned(),
        Some(Visible::Whole) => "all".to_owned(),
        Some(visible) if visible.is_nothing() => "none".to_owned(),
        Some(Visible::Part(part)) => part.namespaces.iter().map(|name| &**name).collect::<Vec<_>>().join(" "),
    }
}

pub(crate) async fn listed(fixture: &Fixture, cluster: &str, user: &str, expected: &str) {
    until(async || lists(fixture, cluster, user) == expected).await;
}

pub(crate) fn config_map_of(namespace: &str, name: &str) -> Value {
    let mut object = config_map(name, "");
    object["metadata"]["namespace"] = namespace.into();
    object
}

/// Returns whether a composite version contains the scope of its reader's rights, and its components.
pub(crate) fn scoped(text: &str) -> (bool, Value) {
    match text.strip_prefix("s1.").and_then(|rest| rest.split_once('.')) {
        Some((_, rest)) => (true, vector(rest)),
        None => (false, vector(text)),
    }
}

/// Starts three members with ConfigMaps `one` and `two` in each of the namespaces `shop` and `bank`. Ann may read all
/// of `a`, `shop` of `b`, and nothing in `c`; `root` may read everything.
pub(crate) async fn ann() -> Fixture {
    ann_under(allow()).await
}

/// Like [`ann`], with these policies.
pub(crate) async fn ann_under(policies: Policies) -> Fixture {
    let fixture = Fixture::shared(["a", "b", "c"], policies, SharedMode::default()).await;
    for member in &fixture.members {
        for (namespace, name) in [("bank", "one"), ("bank", "two"), ("shop", "one"), ("shop", "two")] {
            let name = format!("{name}-{}", member.name());
            member.apply(config_map_of(namespace, &name)).unwrap();
        }
        grant(member, "", "root");
    }
    grant(fixture.member("a"), "", "ann");
    grant(fixture.member("b"), "shop", "ann");
    for (cluster, of_ann) in [("a", "all"), ("b", "shop"), ("c", "none")] {
        listed(&fixture, cluster, "ann", of_ann).await;
        listed(&fixture, cluster, "root", "all").await;
    }
    fixture
}

async fn conditions(fixture: &Fixture) -> Vec<Option<RightsCondition>> {
    fixture.router.report().await.clusters.iter().map(|cluster| cluster.rights).collect()
}

/// Makes a member refuse all requests for RBAC objects, or accept them again.
pub(crate) fn refuse_rbac(member: &SimulatedCluster, refused: bool) {
    let resources = RbacKind::ALL.map(|kind| format!("{}.{RBAC}", kind.resource())).into();
    member.control().reject(refused.then(|| Rejection { resources, ..Rejection::all(403) }));
}

#[tokio::test]
async fn rights_in_each_member_follow_its_roles_and_bindings() {
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
    until(async || changes.has_changed().unwrap()).await;
    assert_eq!((lists(&fixture, "a", "bob"), lists(&fixture, "b", "bob")), ("none".to_owned(), "none".to_owned()));
    // A user also loses access if one member deletes a binding, or if a role in another member loses its rule.
    b.delete(&format!("rolebindings.{RBAC}"), "shop", "ann-reads").unwrap();
    listed(&fixture, "b", "ann", "default").await;
    a.apply(role("", "reader", [&["get"], &[""], &["configmaps"], &[]])).unwrap();
    listed(&fixture, "a", "ann", "none").await;
    assert_eq!(lists(&fixture, "b", "ann"), "default");
    assert_eq!(conditions(&fixture).await, [Some(RightsCondition::Current); 2]);
}

/// The test covers all reasons why the router misses changes of rights: a cut stream, a relist, a restore, and another
/// cluster under the same name.
#[tokio::test]
async fn rights_include_changes_missed_during_a_disconnect() {
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
async fn rights_in_a_member_are_unknown_until_all_its_roles_are_read() {
    let fixture = Fixture::shared([], allow(), SharedMode::default()).await;
    let held = tributary_simulator::Simulator::start(tributary_simulator::SimulatorConfig {
        rbac: true,
        ..crate::harness::config("a")
    });
    let fixture = Fixture { members: vec![held.await.unwrap()], ..fixture };
    let a = fixture.member("a");
    grant(a, "", "ann");
    // The router may not read Roles, which are one of the four RBAC resources.
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
async fn rights_expire_five_minutes_after_watches_of_roles_break() {
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
async fn rights_in_an_unreachable_member_expire_after_the_configured_time() {
    let mode = SharedMode { stale_rights: Duration::from_secs(20 * 60), ..SharedMode::default() };
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
async fn rights_in_a_removed_cluster_become_unknown() {
    let fixture = Fixture::shared(["a", "b"], allow(), SharedMode::default()).await;
    grant(fixture.member("a"), "", "ann");
    grant(fixture.member("b"), "shop", "ann");
    listed(&fixture, "a", "ann", "all").await;
    listed(&fixture, "b", "ann", "shop").await;
    fixture.set_clusters(&["b"]).await;
    listed(&fixture, "a", "ann", "unknown").await;
    assert_eq!(lists(&fixture, "b", "ann"), "shop");
    // The name `a` is reassigned to another cluster.
    let other = crate::harness::setup(fixture.member("b"), "a").await;
    fixture.router.set_clusters(vec![other]);
    listed(&fixture, "a", "ann", "shop").await;
    until(async || fixture.member("a").control().open_watches() == 0).await;
}

#[tokio::test]
async fn personal_mode_does_not_read_roles() {
    let config = |name| tributary_simulator::SimulatorConfig { rbac: true, ..crate::harness::config(name) };
    let fixture = Fixture::with([config("a")], allow()).await;
    fixture.put_and_see("a", "x", "1").await;
    assert_eq!(conditions(&fixture).await, [None]);
    let log = fixture.member("a").control().request_log();
    assert!(!log.iter().any(|line| line.contains(&format!("/apis/{RBAC}/v1/"))), "{log:?}");
}

const ALL: &str = "/api/v1/configmaps";
const LIMITED: &str = "299 - \"the list has only the objects that you may list\"";

#[tokio::test]
async fn list_shows_and_names_only_permitted_objects() {
    let fixture = ann().await;
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    let answer = ann.get(ALL).await;
    let list = answer.ok();
    assert_eq!(items(&list), ["a/one-a", "a/two-a", "a/one-a", "a/two-a", "b/one-b", "b/two-b"]);
    assert_eq!(answer.warnings(), [LIMITED]);
    let (is_scoped, components) = scoped(&version(&list));
    assert!(is_scoped && components.get("c").is_none() && components.get("b").is_some(), "{components}");
    assert!(!String::from_utf8_lossy(&answer.body).contains("-c"), "nothing of c is told");
    // A user with all rights gets the same response as the user of the personal mode.
    let answer = root.get(ALL).await;
    let list = answer.ok();
    assert_eq!(items(&list).len(), 12);
    assert_eq!(answer.warnings(), [""; 0]);
    let (is_scoped, components) = scoped(&version(&list));
    assert!(!is_scoped && components.as_object().unwrap().len() == 3, "{components}");
}

#[tokio::test]
async fn continue_token_is_valid_only_while_rights_are_unchanged() {
    let fixture = ann().await;
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    let first = root.get(&format!("{ALL}?limit=5")).await.ok();
    assert_eq!(first["metadata"]["remainingItemCount"], 7, "whoever may see everything is told how much there is");
    let foreign = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let (mut shown, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = ann.get(&format!("{ALL}{query}")).await.ok();
        assert_eq!(page["metadata"].get("remainingItemCount"), None);
        shown.extend(items(&page));
        let Some(next) = page["metadata"]["continue"].as_str().filter(|next| !next.is_empty()) else { break };
        query = format!("?limit=2&continue={next}");
    }
    assert_eq!(shown, ["a/one-a", "a/two-a", "a/one-a", "a/two-a", "b/one-b", "b/two-b"]);
    // The router rejects the continue token of another user, and a token from before a change of rights.
    ann.get(&format!("{ALL}?limit=2&continue={foreign}")).await.refused(410);
    let page = ann.get(&format!("{ALL}?limit=1")).await.ok();
    let next = page["metadata"]["continue"].as_str().unwrap().to_owned();
    grant(fixture.member("b"), "bank", "ann");
    listed(&fixture, "b", "ann", "bank shop").await;
    ann.get(&format!("{ALL}?limit=1&continue={next}")).await.refused(410);
    let exact = format!("{ALL}?resourceVersion={}&resourceVersionMatch=Exact", version(&page));
    ann.get(&exact).await.refused(410);
}

#[tokio::test]
async fn request_forbidden_in_all_clusters_gets_kube_apiservers_403() {
    let fixture = ann().await;
    let (ann, bob) = (fixture.user("ann", &[]), fixture.user("bob", &[]));
    for (path, expected) in [
        (
            ALL,
            "configmaps is forbidden: User \"bob\" cannot list resource \"configmaps\" in API group \"\" at the cluster scope",
        ),
        (
            "/api/v1/namespaces/shop/configmaps",
            "configmaps is forbidden: User \"bob\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"shop\"",
        ),
        (
            "/api/v1/namespaces/shop/configmaps/one-a",
            "configmaps \"one-a\" is forbidden: User \"bob\" cannot get resource \"configmaps\" in API group \"\" in the namespace \"shop\"",
        ),
        (
            "/api/v1/configmaps?watch=1",
            "configmaps is forbidden: User \"bob\" cannot watch resource \"configmaps\" in API group \"\" at the cluster scope",
        ),
        (
            "/apis/apps/v1/deployments",
            "deployments.apps is forbidden: User \"bob\" cannot list resource \"deployments\" in API group \"apps\" at the cluster scope",
        ),
    ] {
        assert_eq!(bob.get(path).await.refused(403), expected);
    }
    // Ann may not see any object of `c`, or any object in the namespace `bank` of `b`.
    for missing in ["shop/configmaps/one-c", "bank/configmaps/one-b", "shop/configmaps/nothing"] {
        ann.get(&format!("/api/v1/namespaces/{missing}")).await.refused(404);
    }
    assert_eq!(ann.get("/api/v1/namespaces/shop/configmaps/one-b").await.ok()["metadata"]["name"], "one-b");
    // If several clusters have an object with the same name, a get is ambiguous only if the caller may get several of
    // these objects.
    for member in &fixture.members {
        member.apply(config_map_of("bank", "same")).unwrap();
    }
    let same = "/api/v1/namespaces/bank/configmaps/same";
    until(async || fixture.user("root", &[]).get(same).await.code == 409).await;
    assert_eq!(crate::harness::cluster(&ann.get(same).await.ok()), "a");
}

/// The name of a missing role can reveal a cluster's plans.
#[tokio::test]
async fn refusal_names_missing_roles_only_of_requested_clusters() {
    let fixture = Fixture::shared(["a", "b"], allow(), SharedMode::default()).await;
    let merger = ("ClusterRole", "acme-merger-reader");
    fixture.member("b").apply(binding("", "early", merger, "bob")).unwrap();
    listed(&fixture, "a", "bob", "none").await;
    let bob = fixture.user("bob", &[]);
    let words = "RBAC: clusterrole.rbac.authorization.k8s.io \"acme-merger-reader\" not found";
    until(async || bob.get(ALL).await.refused(403).ends_with(words)).await;
    let (shop, secrets) = ("/api/v1/namespaces/shop/configmaps", "/api/v1/secrets");
    let selected = |cluster: &str| format!("labelSelector=tributary.dev%2Fcluster%3D{cluster}");
    for (method, path) in [
        ("GET", format!("{ALL}?")),
        ("GET", format!("{ALL}?watch=1&")),
        // The router forwards these requests to the members.
        ("GET", format!("{secrets}?")),
        ("DELETE", format!("{shop}?")),
    ] {
        for (cluster, is_told) in [("a", false), ("b", true)] {
            let message = bob.send(method, &format!("{path}{}", selected(cluster)), &[], "").await.refused(403);
            assert_eq!(message.ends_with(words), is_told, "{method} {path} of {cluster}: {message}");
            assert_eq!(message.contains("merger"), is_told, "{method} {path} of {cluster}: {message}");
        }
    }
}

#[tokio::test]
async fn warning_about_unknown_rights_does_not_name_the_member() {
    let fixture = ann().await;
    let c = fixture.member("c");
    refuse_rbac(c, true);
    c.control().cut_streams();
    until(async || conditions(&fixture).await[2] == Some(RightsCondition::Behind)).await;
    pass(BEHIND).await;
    let (ann, root, bob) = (fixture.user("ann", &[]), fixture.user("root", &[]), fixture.user("bob", &[]));
    let answer = root.get(ALL).await;
    assert_eq!(items(&answer.ok()).len(), 8, "c is left out: {:?}", answer.warnings());
    assert_eq!(
        answer.warnings(),
        ["299 - \"your rights in some clusters are not known, and the objects of these clusters are missing\""]
    );
    assert_eq!(items(&ann.get(ALL).await.ok()).len(), 6);
    let of_bob = bob.get(ALL).await;
    assert_eq!((items(&of_bob.ok()).len(), of_bob.warnings()), (0, answer.warnings()), "he may list all of c, perhaps");
    let words = "your rights in some clusters are unknown until an administrator removes the cause; an \
                 administrator sees the clusters and the remedies with tributary status";
    let answer = root.get("/api/v1/namespaces/shop/configmaps/one-c").await;
    assert_eq!(answer.refused(503), format!("configmaps \"one-c\": {words}"));
    assert_eq!(answer.headers.get("retry-after"), None);
    fixture.router.set_policies(Policies::default());
    assert_eq!(root.get(ALL).await.refused(429), format!("configmaps: {words}"));
    refuse_rbac(c, false);
    pass(Duration::from_secs(60)).await;
    listed(&fixture, "c", "root", "all").await;
    assert_eq!(items(&root.get(ALL).await.ok()).len(), 12);
}

#[tokio::test]
async fn member_with_live_authorization_is_served_only_at_its_own_path() {
    let fixture = ann().await;
    let root = fixture.user("root", &[]);
    let mut watch = root.watch(&format!("{ALL}?watch=1&resourceVersion={}", version(&root.get(ALL).await.ok()))).await;
    let mut setups = Vec::new();
    for (member, authorization) in fixture.members.iter().zip([Auto, Rbac, Live]) {
        let own = crate::harness::setup(member, member.name()).await;
        setups.push(ClusterSetup { authorization, ..own });
    }
    fixture.router.set_clusters(setups);
    listed(&fixture, "c", "root", "unknown").await;
    listed(&fixture, "a", "root", "all").await;
    listed(&fixture, "b", "root", "all").await;
    assert_eq!(conditions(&fixture).await[2], Some(RightsCondition::Live));
    let answer = root.get(ALL).await;
    assert_eq!(items(&answer.ok()).len(), 8, "c is left out: {:?}", answer.warnings());
    assert_eq!(
        answer.warnings(),
        ["299 - \"your rights in some clusters are not known, and the objects of these clusters are missing\""]
    );
    assert!(!String::from_utf8_lossy(&answer.body).contains("-c"), "nothing of c is told");
    assert_eq!(watch.soon().await["type"], "ERROR", "what was shown of it is not followed any more");
    // The path of a cluster has no filter by rights in the router: the member itself authorizes each request.
    root.get("/clusters/c/api/v1/namespaces/shop/configmaps/one-c").await.ok();
    assert_eq!(root.get("/clusters/c/api/v1/configmaps").await.ok()["items"].as_array().map(Vec::len), Some(4));
}

/// The router does not read users' rights in a member with `authorization: Live`, so it does not wait for these rights.
#[tokio::test]
async fn start_does_not_wait_for_members_with_live_authorization() {
    let fixture = Fixture::shared(["a", "b"], allow(), SharedMode::default()).await;
    let mut setups = Vec::new();
    for (member, authorization) in fixture.members.iter().zip([Rbac, Live]) {
        let own = crate::harness::setup(member, member.name()).await;
        setups.push(ClusterSetup { authorization, ..own });
    }
    fixture.router.set_clusters(setups);
    until(async || conditions(&fixture).await[1] == Some(RightsCondition::Live)).await;
    until(async || fixture.router.rights_found_once(SOON).now_or_never().is_some()).await;
}

#[tokio::test]
async fn secrets_are_cached_only_if_a_registry_names_them() {
    const SECRETS: &str = "/api/v1/namespaces/shop/secrets";
    let registered = |texts: &[&str]| Policies {
        registered: Some(texts.iter().map(|text| text.parse().unwrap()).collect()),
        ..allow()
    };
    let fixture = Fixture::shared(["a"], allow(), SharedMode::default()).await;
    let member = fixture.member("a");
    member.apply(role("", "reader", [&["get", "list", "watch"], &[""], &["configmaps", "secrets"], &[]])).unwrap();
    member.apply(binding("", "root-reads", ("ClusterRole", "reader"), "root")).unwrap();
    let mut secret = config_map_of("shop", "key");
    secret["kind"] = "Secret".into();
    member.apply(secret).unwrap();
    listed(&fixture, "a", "root", "all").await;
    let root = fixture.user("root", &[]);
    for reloaded in [None, Some(allow()), Some(registered(&["*"])), Some(registered(&["configmaps", "*"]))] {
        if let Some(policies) = reloaded {
            fixture.router.set_policies(policies);
        }
        assert_eq!(items(&root.get(SECRETS).await.ok()).len(), 1, "the member is asked");
        root.get(&format!("{SECRETS}/key")).await.ok();
        let message = root.get(&format!("{SECRETS}?watch=1")).await.refused(405);
        assert!(message.contains("add the resource to --resources or to a ResourceRegistry"), "{message}");
        assert_eq!(member.control().requests_of(RequestKind::Watch, "secrets"), 0, "nothing of them is held");
    }
    root.watch("/api/v1/namespaces/shop/configmaps?watch=1").await.nothing().await;
    fixture.router.set_policies(registered(&["*", "secrets"]));
    let mut watched = root.watch(&format!("{SECRETS}?watch=1")).await;
    assert_eq!(crate::harness::name(&watched.soon().await["object"]), "key");
    assert_eq!(member.control().requests_of(RequestKind::Watch, "secrets"), 1);
}

#[tokio::test]
async fn right_revoked_during_an_outage_hides_its_objects() {
    let fixture = Fixture::shared(["a", "b"], allow(), SharedMode::default()).await;
    let a = fixture.member("a");
    grant(a, "shop", "ann");
    a.apply(config_map_of("shop", "known")).unwrap();
    let ann = fixture.user("ann", &[]);
    let path = "/api/v1/namespaces/shop/configmaps";
    until(|| async { ann.get(path).await.code == 200 }).await;
    for round in 0..10 {
        a.control().stop_listening().await;
        a.control().disconnect();
        fixture.out_of_reach("a").await;
        a.delete(&format!("rolebindings.{RBAC}"), "shop", "ann-reads").unwrap();
        let hidden = format!("hidden-{round}");
        a.apply(config_map_of("shop", &hidden)).unwrap();
        a.control().start_listening().await;
        until(|| async {
            let answer = ann.get(path).await;
            let told = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(!told.contains(&hidden), "what was made after the loss is shown: {told}");
            answer.code == 403
        })
        .await;
        grant(a, "shop", "ann");
        until(|| async { ann.get(path).await.code == 200 }).await;
    }
}

/// A member grants a user more rights than the router's limit. Users of other members are not affected.
#[tokio::test]
async fn member_that_grants_too_many_rights_affects_only_its_own_objects() {
    const WORDS: usize = 4_000;
    let fixture = ann().await;
    let (b, ann, root) = (fixture.member("b"), fixture.user("ann", &[]), fixture.user("root", &[]));
    let names: Vec<_> = (0..WORDS).map(|number| number.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    b.apply(role("", "endless", [&["use"], &["x"], &["y"], &names])).unwrap();
    for number in 0..=GRANTED_WORDS_MAX / WORDS {
        b.apply(binding("shop", &format!("endless-{number}"), ("ClusterRole", "endless"), "ann")).unwrap();
    }
    let of_a = ["a/one-a", "a/two-a", "a/one-a", "a/two-a"];
    until(async || items(&ann.get(ALL).await.ok()) == of_a).await;
    let answer = ann.get(ALL).await;
    assert!(!answer.warnings().is_empty(), "{answer:?}");
    let named = ann.get("/api/v1/namespaces/shop/configmaps/one-b").await;
    assert_eq!((named.code, named.headers.get("retry-after")), (503, None), "it may be there");
    assert_eq!(items(&root.get(ALL).await.ok()).len(), 12);
    b.delete(&format!("clusterroles.{RBAC}"), "", "endless").unwrap();
    until(async || items(&ann.get(ALL).await.ok()).len() == 6).await;
}

/// The bindings of a member name more subjects than the router's limit. The rights in this member are unknown for all
/// users. Users still see the objects of the other members, and observers see the reason.
#[tokio::test]
async fn rights_in_a_member_with_too_many_subjects_are_unknown() {
    const EACH: usize = 5_000;
    let fixture = ann().await;
    let (b, ann) = (fixture.member("b"), fixture.user("ann", &[]));
    let bindings = NAMED_SUBJECTS_MAX / EACH + 1;
    for number in 0..bindings {
        let mut many = binding("", &format!("many-{number}"), ("ClusterRole", "none"), "");
        let named = (0..EACH).map(|user| json!({"kind": "User", "apiGroup": RBAC, "name": format!("{number}-{user}")}));
        many["subjects"] = named.collect();
        b.apply(many).unwrap();
    }
    let problem = async || fixture.router.report().await.clusters[1].rights_problem.clone();
    until(async || problem().await.is_some_and(|why| why.contains("name more than 250000 subjects"))).await;
    // Processing a quarter of a million names takes so long on a busy machine that other members may count as silent
    // for a moment.
    until(async || items(&ann.get(ALL).await.ok()) == ["a/one-a", "a/two-a", "a/one-a", "a/two-a"]).await;
    assert!(!ann.get(ALL).await.warnings().is_empty());
    // Without these two bindings, the number of subjects is below the limit again.
    for name in ["many-0", "many-1"] {
        b.delete(&format!("clusterrolebindings.{RBAC}"), "", name).unwrap();
    }
    until(async || problem().await.is_none()).await;
    until(async || items(&ann.get(ALL).await.ok()).len() == 6).await;
}

#[tokio::test]
async fn rights_in_a_member_with_too_large_roles_are_unknown() {
    const MIB: usize = 1 << 20;
    let fixture = ann().await;
    let (b, long) = (fixture.member("b"), "x".repeat(MIB));
    observe(fixture.member("a"), "eve");
    observe(fixture.member("c"), "eve");
    for number in 0..65 {
        b.apply(role("", &format!("long-{number}"), [&["use"], &["x"], &["y"], &[&long]])).unwrap();
    }
    until(async || conditions(&fixture).await[1] != Some(RightsCondition::Current)).await;
    pass(BEHIND).await;
    assert_eq!(["a", "b"].map(|cluster| lists(&fixture, cluster, "ann")), ["all", "unknown"]);
    // An administrator of one namespace of `b` can exceed the limit. So the rights in `b` still decide who may read
    // status reports.
    fixture.user("eve", &[]).get("/readyz?verbose").await.refused(403);
    for number in 0..65 {
        b.delete(&format!("clusterroles.{RBAC}"), "", &format!("long-{number}")).unwrap();
    }
    pass(BEHIND).await;
    listed(&fixture, "b", "ann", "shop").await;
}

/// A ResourceRegistry may refuse lists that would be incomplete because of the user's rights. The message is like a
/// cluster's 403.
#[tokio::test]
async fn resource_registry_can_refuse_lists_that_rights_would_limit() {
    let fixture = ann().await;
    fixture.router.set_policies(denying_limited());
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    for path in ["/api/v1/configmaps", "/api/v1/configmaps?watch=1", "/api/v1/configmaps?limit=1"] {
        let refused = ann.get(path).await;
        let verb = if path.contains("watch") { "watch" } else { "list" };
        let words = format!(r#"User "ann" cannot {verb} resource "configmaps" in API group "" at the cluster scope"#);
        assert!(refused.refused(403).contains(&words), "{path}: {refused:?}");
        assert_eq!(refused.warnings(), Vec::<String>::new());
    }
    // A list of one namespace is complete if the user may list the whole namespace in each visible cluster.
    let of_shop = items(&ann.get("/api/v1/namespaces/shop/configmaps").await.ok());
    assert_eq!(of_shop, ["a/one-a", "a/two-a", "b/one-b", "b/two-b"]);
    assert_eq!(ann.get("/api/v1/namespaces/shop/configmaps/one-b").await.code, 200);
    assert_eq!(items(&root.get("/api/v1/configmaps").await.ok()).len(), 12);
}

fn denying_limited() -> Policies {
    let Policies { default, .. } = allow();
    Policies {
        default: tributary_router::ResourcePolicy { filtered: Filtered::Deny, ..default },
        ..Policies::default()
    }
}

/// Ann's list waits for `b`, which the router has not yet read. Meanwhile she loses her right in `a`, and a client
/// creates an object in `a`. The list must not show this object, because a lost right has no effect after two seconds.
#[tokio::test]
async fn waiting_list_omits_objects_whose_right_is_lost_meanwhile() {
    let fixture = ann().await;
    let (a, b) = (fixture.member("a"), fixture.member("b"));
    b.control().hold_lists(true);
    let client = fixture.user("ann", &[]);
    let waiting = tokio::spawn(async move { client.get(ALL).await });
    // When this read has succeeded, Ann's list is in flight, and the router has the objects of `a`.
    let root = fixture.user("root", &[]);
    root.get(&format!("{ALL}?labelSelector=tributary.dev%2Fcluster%3Da")).await.ok();
    a.delete(&format!("clusterrolebindings.{RBAC}"), "", "ann-reads").unwrap();
    listed(&fixture, "a", "ann", "none").await;
    pass(Duration::from_secs(2)).await;
    let revision = a.apply(config_map_of("bank", "made-after-the-loss")).unwrap().to_string();
    until(async || {
        let list = root.get(&format!("{ALL}?labelSelector=tributary.dev%2Fcluster%3Da")).await.ok();
        list.to_string().contains("made-after-the-loss")
    })
    .await;
    assert!(!waiting.is_finished(), "it waits for b");
    b.control().hold_lists(false);
    let answer = waiting.await.unwrap();
    let text = String::from_utf8_lossy(&answer.body);
    assert!(!text.contains("made-after-the-loss"), "at {revision} of a, where ann may list nothing: {text}");
}
