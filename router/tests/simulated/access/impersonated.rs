//! Tests of the shared mode with members that have constrained impersonation (KEP-5284), and with users who may
//! impersonate other users only for some requests.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request};
use serde_json::{Value, json};
use tributary_apimachinery::{Status, body};
use tributary_authorization::RbacKind;
use tributary_router::report::{RightsCondition, RightsDecider};
use tributary_router::{Policies, RequestContext, RequestTrace, ResourcePolicy, SharedMode};
use tributary_simulator::{Authorizer, RequestKind, SimulatedCluster};

use crate::access::rights::{RBAC, binding, config_map_of, listed, refuse_rbac, role};
use crate::access::rights_detected::{Chain, Mode, decided, found_out};
use crate::harness::{Answer, Client, Fixture, allow, cluster, items, pass, until};
use crate::membership::members::{Rbac, allow_to};

const SHOP: &str = "/api/v1/namespaces/shop/configmaps";
const BANK: &str = "/api/v1/namespaces/bank/configmaps";
const ALL: &str = "/api/v1/configmaps";
const SECRETS: &str = "/api/v1/secrets";
const ROOT: (&str, &str) = ("impersonate-user", "root");
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Time until the router detects a member's impersonation filter, which it checks each minute, and time until a cached
/// review expires, after a minute.
const FOUND_WITHIN: Duration = Duration::from_secs(70);
const BELIEVED_FOR: Duration = Duration::from_secs(70);

/// Delay of watches, longer than a test, so that they deliver no event.
const LATE: Duration = Duration::from_secs(250);

/// Time after which the router treats a reopened watch without events as current.
const SETTLED_WITHIN: Duration = Duration::from_secs(2);

/// The message of the 403 if Ann may not impersonate `root`.
const NOT_ROOT: &str = "users \"root\" is forbidden: User \"ann\" cannot impersonate resource \"users\" in API group \"\" at the cluster \
                        scope";

/// The maximum time until the router detects that a member is unreachable, or reachable again.
const NOTICED_WITHIN: Duration = Duration::from_secs(60);

/// An authorizer of a member with constrained impersonation.
struct Constrained<A>(Arc<A>);

impl<A: Authorizer> Authorizer for Constrained<A> {
    fn refusal(&self, headers: &HeaderMap, method: &Method, target: &str) -> Option<Status> {
        match headers.get("impersonate-uid") {
            Some(uid) if !headers.contains_key("impersonate-user") => Some(Status::bad_request(format!(
                "requested &user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:[]string(nil), \
                 Extra:map[string][]string(nil)}} without impersonating a user name"
            ))),
            _ => self.0.refusal(headers, method, target),
        }
    }

    fn allows(&self, headers: &HeaderMap, attributes: &Value) -> bool {
        self.0.allows(headers, attributes)
    }

    fn rules(&self, headers: &HeaderMap, namespace: &str) -> Option<Value> {
        self.0.rules(headers, namespace)
    }

    fn reviewed(&self, spec: &Value) -> Option<bool> {
        self.0.reviewed(spec)
    }
}

/// Allows Ann to impersonate `root`. She still needs a right for each kind of request as `root`.
fn be_root(member: &SimulatedCluster) {
    let verbs: &[&str] = &["impersonate:user-info"];
    member.apply(role("", "root-info", [verbs, &[AUTHENTICATION], &["users"], &["root"]])).unwrap();
    member.apply(binding("", "ann-is-root", ("ClusterRole", "root-info"), "ann")).unwrap();
}

/// Starts members `a` and `b`; only `a` has constrained impersonation. `root` may do everything. Roles in both members
/// allow Ann to impersonate `root`, for these verbs on the ConfigMaps in the namespace `shop`.
async fn fixture(verbs: &[&str]) -> (Fixture, Vec<Arc<Rbac>>) {
    let fixture = Fixture::shared(["a", "b"], allow(), SharedMode::default()).await;
    for member in &fixture.members {
        for namespace in ["shop", "bank"] {
            member.apply(json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": namespace}})).unwrap();
            member.apply(config_map_of(namespace, &format!("{namespace}-of-{}", member.name()))).unwrap();
        }
        allow_to(member, "", "root", &["*"]);
        be_root(member);
        let verbs: Vec<_> = verbs.iter().map(|verb| format!("impersonate-on:user-info:{verb}")).collect();
        let verbs: Vec<_> = verbs.iter().map(String::as_str).collect();
        member.apply(role("", "as-root", [&verbs, &[""], &["configmaps"], &[]])).unwrap();
        member.apply(binding("shop", "ann-as-root", ("ClusterRole", "as-root"), "ann")).unwrap();
    }
    let rbac: Vec<_> = fixture.members.iter().map(Rbac::judge).collect();
    fixture.member("a").control().authorize(Some(Arc::new(Constrained(Arc::clone(&rbac[0])))));
    for member in &fixture.members {
        listed(&fixture, member.name(), "root", "all").await;
    }
    pass(FOUND_WITHIN).await;
    (fixture, rbac)
}

async fn as_root(client: &Client, method: &str, path: &str) -> Answer {
    client.send(method, path, &[ROOT], "").await
}

/// Returns the message of a member that forbids the impersonation for a request on ConfigMaps.
fn words(verb: &str, namespace: &str) -> String {
    format!(
        "configmaps is forbidden: User \"ann\" cannot impersonate-on:user-info:{verb} resource \"configmaps\" in API group \"\" in \
         the namespace \"{namespace}\""
    )
}

/// Cuts the watches of a member's roles and bindings, and delays the events after they reopen.
async fn follow_late(member: &SimulatedCluster) {
    let watches = |kind: RbacKind| {
        let resource = format!("{}.{RBAC}", kind.resource());
        member.control().requests_of(RequestKind::Watch, &resource)
    };
    member.control().reset_counters();
    member.control().lag_watches(LATE);
    member.control().cut_streams();
    until(async || RbacKind::ALL.into_iter().all(|kind| watches(kind) > 0)).await;
}

/// Ann may impersonate `root` only for lists and gets in `shop`. She sees the objects there, and only in members with
/// constrained impersonation.
#[tokio::test]
async fn constrained_impersonation_limits_reads_to_the_allowed_requests() {
    let (fixture, _rbac) = fixture(&["list", "get"]).await;
    let ann = fixture.user("ann", &[]);
    until(async || as_root(&ann, "GET", SHOP).await.code == 200).await;
    for path in [SHOP, ALL, &format!("/clusters/a{SHOP}")] {
        let listed = as_root(&ann, "GET", path).await.ok();
        let names: Vec<_> = items(&listed).iter().map(|item| item.rsplit('/').next().unwrap().to_owned()).collect();
        assert_eq!(names, ["shop-of-a"], "{path}");
    }
    as_root(&ann, "GET", &format!("{SHOP}/shop-of-a")).await.ok();
    as_root(&ann, "GET", &format!("{SHOP}/shop-of-b")).await.refused(404);
    as_root(&ann, "GET", &format!("/clusters/b{SHOP}")).await.refused(403);
    assert_eq!(as_root(&ann, "GET", BANK).await.refused(403), words("list", "bank"));
    assert_eq!(as_root(&ann, "GET", &format!("/clusters/a{BANK}")).await.refused(403), words("list", "bank"));
    // The path of a single cluster returns no partial list, so the router refuses a list of all namespaces.
    let everywhere = as_root(&ann, "GET", &format!("/clusters/a{ALL}")).await.refused(403);
    assert!(
        everywhere.contains("impersonate-on:user-info:list") && everywhere.contains("cluster scope"),
        "{everywhere}"
    );
    // The member forbids requests with another verb, as another user, or in additional groups.
    for path in [format!("{SHOP}?watch=1"), format!("/clusters/a{SHOP}?watch=1")] {
        assert_eq!(as_root(&ann, "GET", &path).await.refused(403), words("watch", "shop"));
    }
    let not_bob = "users.authentication.k8s.io \"bob\" is forbidden: User \"ann\" cannot impersonate:user-info resource \"users\" in \
                   API group \"authentication.k8s.io\" at the cluster scope";
    assert_eq!(ann.send("GET", SHOP, &[("impersonate-user", "bob")], "").await.refused(403), not_bob);
    let in_group = ann.send("GET", SHOP, &[ROOT, ("impersonate-group", "dev")], "").await.refused(403);
    assert!(in_group.contains("cannot impersonate:user-info resource \"groups\""), "{in_group}");
    // Without an impersonation header Ann has only her own rights.
    ann.get(SHOP).await.refused(403);
}

/// The audit log must not record an impersonation that no member allows.
#[tokio::test]
async fn impersonation_that_no_member_allows_is_flagged_for_the_audit_log() {
    let (fixture, _rbac) = fixture(&["list", "get"]).await;
    let ann = fixture.user("ann", &[]);
    until(async || as_root(&ann, "GET", SHOP).await.code == 200).await;
    let of_b = format!("/clusters/b{SHOP}");
    for ((name, value), path, code, is_impersonation_denied) in [
        (ROOT, SHOP, 200, false),
        (ROOT, BANK, 403, true),
        (ROOT, &*of_b, 403, true),
        (("impersonate-user", "bob"), SHOP, 403, true),
        (("impersonate-user", "system:anonymous"), SHOP, 403, true),
        // Without impersonation, Ann's own rights forbid the request.
        (("accept", "application/json"), SHOP, 403, false),
    ] {
        let trace = RequestTrace::default();
        let request = Request::get(path).header(name, value).body(body::empty()).unwrap();
        let mut context = RequestContext::for_user(&ann.user, &request);
        context.arrival.trace = trace.clone();
        let answer = ann.router.handle(request, &context).await.response;
        assert_eq!(
            (answer.status().as_u16(), trace.is_impersonation_denied()),
            (code, is_impersonation_denied),
            "{path} {name}: {value}"
        );
    }
}

/// Every user may request public paths, under any identity. The details of health checks are not public.
#[tokio::test]
async fn public_paths_need_no_impersonation_right_but_health_details_do() {
    let (fixture, _rbac) = fixture(&["list"]).await;
    let ann = fixture.user("ann", &[]);
    for (path, is_same_for_all_users) in [
        ("/readyz", true),
        ("/version", true),
        ("/api", true),
        ("/readyz?verbose", false),
        ("/readyz/ping", false),
        ("/livez?verbose", false),
        (SHOP, false),
    ] {
        let trace = RequestTrace::default();
        let request = Request::get(path).header(ROOT.0, ROOT.1).body(body::empty()).unwrap();
        let mut context = RequestContext::for_user(&ann.user, &request);
        context.arrival.trace = trace.clone();
        let answer = ann.router.handle(request, &context).await.response;
        assert_eq!(trace.is_same_for_all_users(), is_same_for_all_users, "{path}: {}", answer.status());
    }
}

/// The router forwards only requests that Ann may send as `root`. The verb, the object and the subresource decide.
#[tokio::test]
async fn constrained_impersonation_sends_only_the_allowed_requests() {
    let (fixture, rbac) = fixture(&["get", "delete"]).await;
    let ann = fixture.user("ann", &[]);
    until(async || as_root(&ann, "GET", &format!("/clusters/a{SHOP}/shop-of-a")).await.code == 200).await;
    rbac.iter().for_each(|own| drop(own.came()));
    for (method, path) in [
        ("GET", format!("/clusters/a{SHOP}")),
        ("GET", format!("/clusters/a{SHOP}/shop-of-a/status")),
        ("PUT", format!("/clusters/a{SHOP}/shop-of-a")),
        ("DELETE", format!("/clusters/a{SHOP}")),
        ("DELETE", format!("/clusters/a{BANK}/bank-of-a")),
        ("DELETE", format!("/clusters/b{SHOP}/shop-of-b")),
        ("DELETE", format!("{BANK}/bank-of-a")),
        ("GET", "/clusters/a/api/v1/namespaces/shop/pods/p/log".to_owned()),
        ("GET", "/clusters/a/metrics".to_owned()),
    ] {
        let answer = as_root(&ann, method, &path).await;
        assert!([403, 404].contains(&answer.code), "{method} {path}: {}", answer.code);
    }
    assert!(rbac.iter().all(|own| own.came().is_empty()));
    // Cluster `b` is hidden from Ann as `root`, so its object looks like a missing object.
    as_root(&ann, "DELETE", &format!("{SHOP}/shop-of-b")).await.refused(404);
    drop(rbac[0].came());
    as_root(&ann, "DELETE", &format!("{SHOP}/shop-of-a")).await.ok();
    let told = rbac[0].came();
    let told: Vec<_> = told.iter().map(|own| (own.user.as_deref(), &*own.line)).collect();
    assert_eq!(told, [(Some("root"), &*format!("DELETE {SHOP}/shop-of-a"))]);
    assert!(rbac[1].came().is_empty());
}

#[tokio::test]
async fn impersonating_watch_ends_when_the_right_to_impersonate_ends() {
    let (fixture, rbac) = fixture(&["list", "watch"]).await;
    let (ann, a) = (fixture.user("ann", &[]), fixture.member("a"));
    until(async || as_root(&ann, "GET", SHOP).await.code == 200).await;
    let mut events = ann.watch_as(&format!("{SHOP}?watch=1"), &[ROOT]).await;
    assert_eq!(events.soon().await["object"]["metadata"]["name"], "shop-of-a");
    a.apply(config_map_of("bank", "hidden")).unwrap();
    a.apply(config_map_of("shop", "shown")).unwrap();
    assert_eq!(events.soon().await["object"]["metadata"]["name"], "shown");
    a.delete("rolebindings.rbac.authorization.k8s.io", "shop", "ann-as-root").unwrap();
    rbac[0].learn(a);
    let last = events.soon().await;
    assert_eq!((&last["type"], &last["object"]["code"]), (&"ERROR".into(), &410.into()), "{last}");
    assert_eq!(as_root(&ann, "GET", SHOP).await.refused(403), words("list", "shop"));
}

/// Member `b` authorizes by more than roles. The router asks it for two rights: the right of the impersonated user, and
/// the caller's right to impersonate the user.
#[tokio::test]
async fn impersonation_is_reviewed_for_caller_and_impersonated_user() {
    let (fixture, chains) = found_out([Mode::Rbac, Mode::Webhook("ann", "bank"), Mode::Rbac]).await;
    decided(&fixture, "b", RightsDecider::Review).await;
    let (b, chain) = (fixture.member("b"), &chains[1]);
    be_root(b);
    let verbs: &[&str] = &["impersonate-on:user-info:list", "impersonate-on:user-info:get"];
    b.apply(role("", "as-root", [verbs, &[""], &["configmaps"], &[]])).unwrap();
    b.apply(binding("", "ann-as-root", ("ClusterRole", "as-root"), "ann")).unwrap();
    chain.learn(b);
    b.control().authorize(Some(Arc::new(Constrained(Arc::<Chain>::clone(chain)))));
    pass(FOUND_WITHIN).await;
    let ann = fixture.user("ann", &[]);
    until(async || as_root(&ann, "GET", SHOP).await.code == 200).await;
    // The webhook denies Ann's requests in the namespace `bank` under any identity.
    assert_eq!(as_root(&ann, "GET", BANK).await.refused(403), words("list", "bank"));
    as_root(&ann, "GET", &format!("/clusters/b{BANK}")).await.refused(403);
    as_root(&ann, "GET", &format!("/clusters/b{SHOP}")).await.ok();
    as_root(&ann, "DELETE", &format!("/clusters/b{SHOP}/one-b")).await.refused(403);
    chain.set(Mode::Webhook("root", "shop"));
    pass(BELIEVED_FOR).await;
    let refused = as_root(&ann, "GET", SHOP).await.refused(403);
    assert!(refused.contains("User \"root\" cannot list"), "{refused}");
}

/// A SelfSubjectAccessReview as an impersonated user is sent to the clusters that allow impersonation for
/// SelfSubjectAccessReviews. Rights to impersonate for other requests have no effect.
#[tokio::test]
async fn access_review_goes_to_clusters_that_allow_impersonation_for_reviews() {
    let (fixture, rbac) = fixture(&["list"]).await;
    let (a, b) = (fixture.member("a"), fixture.member("b"));
    let_be_root(b, &rbac[1], &["ann"]);
    // Only in `a`, `root` may list Pods, and Ann may list Pods as `root`.
    let list_as: &[&str] = &["impersonate-on:user-info:list"];
    for (name, verbs, user) in [("root-pods", &["list"][..], "root"), ("pods-as-root", list_as, "ann")] {
        a.apply(role("", name, [verbs, &[""], &["pods"], &[]])).unwrap();
        a.apply(binding("", name, ("ClusterRole", name), user)).unwrap();
    }
    rbac[0].learn(a);
    let ann = fixture.user("ann", &[]);
    until(async || as_root(&ann, "GET", &format!("/clusters/b{SHOP}")).await.code == 200).await;
    until(async || as_root(&ann, "GET", "/clusters/a/api/v1/namespaces/shop/pods").await.code == 200).await;
    drop(rbac[0].came());
    for (resource, is_allowed) in [("configmaps", true), ("pods", false)] {
        let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
            "spec": {"resourceAttributes": {"verb": "list", "resource": resource, "namespace": "shop"}}});
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let headers = [("content-type", "application/json"), ROOT];
        let answer = ann.send("POST", path, &headers, &review.to_string()).await;
        assert_eq!((answer.code, &answer.ok()["status"]["allowed"]), (201, &json!(is_allowed)), "{resource}");
    }
    assert!(rbac[0].came().is_empty(), "a is not there for the question");
}

/// Writes a new ConfigMap in `shop`. `who` is an impersonation header, and `kind` is the media type.
async fn write(client: &Client, who: (&str, &str), (method, kind): (&str, &str), name: &str) -> Answer {
    let path = format!("{SHOP}/{name}?fieldManager=t");
    client.send(method, &path, &[("content-type", kind), who], &config_map_of("shop", name).to_string()).await
}

/// The router also uses the impersonated identity to find the cluster of a write. A caller who may write but not read
/// as this user gets the same response as a user who may write but not read.
#[tokio::test]
async fn impersonation_without_read_rights_is_handled_like_a_write_only_user() {
    const APPLY: (&str, &str) = ("PATCH", "application/apply-patch+yaml");
    const PUT: (&str, &str) = ("PUT", "application/json");
    const NOBODY_ELSE: (&str, &str) = ("accept", "application/json");
    let (fixture, rbac) = fixture(&["patch", "update"]).await;
    let (a, b) = (fixture.member("a"), fixture.member("b"));
    b.control().authorize(Some(Arc::new(Constrained(Arc::clone(&rbac[1])))));
    for (member, rbac) in fixture.members.iter().zip(&rbac) {
        allow_to(member, "shop", "eve", &["list", "create", "patch", "update"]);
        rbac.learn(member);
        listed(&fixture, member.name(), "eve", "shop").await;
    }
    pass(FOUND_WITHIN).await;
    let placed = ResourcePolicy { placement: Some("b".parse().unwrap()), ..allow().default };
    fixture.router.set_policies(Policies { default: placed, ..allow() });
    let [ann, eve] = ["ann", "eve"].map(|name| fixture.user(name, &[]));
    let merge = [ROOT, ("content-type", "application/merge-patch+json")];
    for name in ["a", "b"] {
        let path = format!("/clusters/{name}{SHOP}/shop-of-{name}");
        until(async || ann.send("PATCH", &path, &merge, "{}").await.code == 200).await;
    }
    // The watch is delayed, so the router has not received the newest object in `a`. Neither user may read this object.
    a.control().lag_watches(LATE);
    a.apply(config_map_of("shop", "given")).unwrap();
    let plain = write(&eve, NOBODY_ELSE, APPLY, "new").await;
    let as_root = write(&ann, ROOT, APPLY, "new").await;
    let [own, expected] = [&as_root, &plain].map(|answer| {
        let mut told = answer.json();
        // A version depends on the rights of the caller, so the comparison omits the version.
        told["metadata"]["resourceVersion"].take();
        told
    });
    assert_eq!((as_root.code, own), (plain.code, expected));
    assert_eq!(as_root.code, 404);
    // The router may receive the object in the meantime. A write then changes the object, and the next write waits for
    // the delayed event (504).
    for how in [APPLY, PUT] {
        for (client, who) in [(&eve, NOBODY_ELSE), (&ann, ROOT)] {
            let answer = write(client, who, how, "given").await;
            match answer.code {
                200 => assert_eq!(cluster(&answer.ok()), "a", "{how:?} {who:?}"),
                504 => {}
                _ => drop(answer.refused(404)),
            }
        }
    }
    let written: Vec<_> = rbac[1].came().into_iter().filter(|own| own.line.starts_with("PUT ")).collect();
    assert!(written.is_empty(), "a second object of the name: {written:?}");
    assert!(["new", "given"].into_iter().all(|name| b.get("configmaps", "shop", name).is_none()));
}

/// A cluster's 403 may name bindings of the impersonated user. The caller gets this message only with the right to send
/// the request as this user.
#[tokio::test]
async fn refusal_hides_clusters_that_allow_only_other_impersonated_requests() {
    const SECRETS_OF_SHOP: &str = "/api/v1/namespaces/shop/secrets";
    const BOB: (&str, &str) = ("impersonate-user", "bob");
    let (fixture, rbac) = fixture(&["list"]).await;
    let (a, b) = (fixture.member("a"), fixture.member("b"));
    a.apply(role("", "bob-info", [&["impersonate:user-info"], &[AUTHENTICATION], &["users"], &["bob"]])).unwrap();
    a.apply(role("", "pods-as-bob", [&["impersonate-on:user-info:get"], &[""], &["pods"], &[]])).unwrap();
    for name in ["bob-info", "pods-as-bob"] {
        a.apply(binding("", name, ("ClusterRole", name), "ann")).unwrap();
    }
    a.apply(binding("shop", "bob-pays", ("Role", "payments-breakglass"), "bob")).unwrap();
    b.apply(role("", "be-bob", [&["impersonate"], &[""], &["users"], &["bob"]])).unwrap();
    b.apply(binding("", "ann-is-bob", ("ClusterRole", "be-bob"), "ann")).unwrap();
    fixture.members.iter().zip(&rbac).for_each(|(member, rbac)| rbac.learn(member));
    let (ann, bob) = (fixture.user("ann", &[]), fixture.user("bob", &[]));
    let said = async |path: &str| ann.send("GET", path, &[BOB], "").await.refused(403);
    until(async || bob.get(SECRETS_OF_SHOP).await.refused(403).contains("payments-breakglass")).await;
    until(async || !said("/clusters/a/api/v1/namespaces/shop/pods/p").await.contains("impersonate")).await;
    until(async || said(SECRETS_OF_SHOP).await.contains("User \"bob\" cannot list")).await;
    let message = said(SECRETS_OF_SHOP).await;
    assert!(!message.contains("payments-breakglass"), "{message}");
    // If Ann may send the request as Bob, the router forwards the member's message.
    let message = said("/api/v1/namespaces/shop/pods/p").await;
    assert!(message.contains("payments-breakglass"), "{message}");
}

/// Grants `root` these verbs on Secrets, and creates a Secret with the member's name.
fn let_root(member: &SimulatedCluster, verbs: &[&str]) {
    let mut secret = config_map_of("shop", &format!("secret-of-{}", member.name()));
    secret["kind"] = "Secret".into();
    member.apply(secret).unwrap();
    member.apply(role("", "root-secrets", [verbs, &[""], &["secrets"], &[]])).unwrap();
    member.apply(binding("", "root-secrets", ("ClusterRole", "root-secrets"), "root")).unwrap();
}

/// A resource that is not cached is read from each member. The router leaves out a member that no longer allows the
/// impersonation, like a member that never allowed it.
#[tokio::test]
async fn live_list_omits_a_member_that_no_longer_allows_the_impersonation() {
    let (fixture, rbac) = crate::membership::members::fixture(["a", "b"]).await;
    let a = fixture.member("a");
    for (member, rbac) in fixture.members.iter().zip(&rbac) {
        let_root(member, &["list"]);
        let_be_root(member, rbac, &["ann", "bob"]);
    }
    let (ann, bob) = (fixture.user("ann", &[]), fixture.user("bob", &[]));
    for user in [&ann, &bob] {
        until(async || {
            let answer = as_root(user, "GET", SECRETS).await;
            answer.code == 200 && items(&answer.ok()).len() == 2
        })
        .await;
    }
    // The router receives the deletion of the binding late, so its rights in memory still allow Ann to impersonate
    // `root`.
    follow_late(a).await;
    a.delete(&format!("clusterrolebindings.{RBAC}"), "", "ann-is-root").unwrap();
    rbac[0].learn(a);
    drop(rbac[0].came());
    let answer = as_root(&ann, "GET", SECRETS).await;
    assert_eq!(items(&answer.ok()), ["b/secret-of-b"]);
    assert!(answer.warnings().is_empty(), "{:?}", answer.warnings());
    assert!(rbac[0].came().is_empty(), "nothing is sent");
    assert_eq!(items(&as_root(&bob, "GET", SECRETS).await.ok()).len(), 2);
    // If the request selects only this member, the response is the member's 403.
    let of_a = format!("{SECRETS}?labelSelector=tributary.dev%2Fcluster%3Da");
    assert_eq!(as_root(&ann, "GET", &of_a).await.refused(403), NOT_ROOT);
}

/// Allows users to impersonate `root` with all rights of `root`.
fn let_be_root(member: &SimulatedCluster, rbac: &Rbac, users: &[&str]) {
    member.apply(role("", "be-root", [&["impersonate"], &[""], &["users"], &["root"]])).unwrap();
    for user in users {
        member.apply(binding("", &format!("{user}-is-root"), ("ClusterRole", "be-root"), user)).unwrap();
    }
    rbac.learn(member);
}

/// The router must not use old rights to impersonate. After an outage, it sends reviews to the member until it has read
/// the roles and bindings again.
#[tokio::test]
async fn impersonation_revoked_during_an_outage_is_refused_afterwards() {
    let (fixture, rbac) = crate::membership::members::fixture(["a"]).await;
    let (a, rbac) = (fixture.member("a"), &rbac[0]);
    let_be_root(a, rbac, &["ann", "bob"]);
    let (ann, bob) = (fixture.user("ann", &[]), fixture.user("bob", &[]));
    let object = format!("/clusters/a{SHOP}/of-a");
    for user in [&ann, &bob] {
        until(async || as_root(user, "GET", &object).await.code == 200).await;
    }
    let condition = async || fixture.router.report().await.clusters[0].rights;
    a.control().stop_listening().await;
    a.control().disconnect();
    fixture.out_of_reach("a").await;
    pass(NOTICED_WITHIN).await;
    until(async || condition().await == Some(RightsCondition::Behind)).await;
    let answer = as_root(&ann, "DELETE", &object).await;
    assert_eq!(answer.headers.get("retry-after"), None);
    let told = answer.refused(503);
    assert!(
        told.contains("cannot be queried now: a (") && told.ends_with("may still impersonate the user; try again"),
        "{told}"
    );
    // When the member becomes reachable, the router cannot yet read its roles and bindings.
    a.delete("clusterrolebindings.rbac.authorization.k8s.io", "", "ann-is-root").unwrap();
    rbac.learn(a);
    refuse_rbac(a, true);
    drop(rbac.came());
    a.control().start_listening().await;
    pass(NOTICED_WITHIN).await;
    until(async || as_root(&bob, "GET", &object).await.code == 200).await;
    until(async || as_root(&ann, "DELETE", &object).await.code == 403).await;
    assert_eq!(as_root(&ann, "DELETE", &object).await.refused(403), NOT_ROOT);
    assert!(rbac.came().iter().all(|own| own.line.starts_with("GET ")));
    // Bob, whom the member still allows to impersonate `root`, succeeds.
    as_root(&bob, "DELETE", &object).await.ok();
    assert_eq!(condition().await, Some(RightsCondition::Behind));
}

/// Like the previous test, with a reachable member whose watches of roles and bindings broke. The router receives the
/// deletion of the binding late. It sends a review for each request until its roles and bindings are complete.
#[tokio::test]
async fn impersonation_revoked_while_role_watches_lag_is_refused() {
    let (fixture, rbac) = crate::membership::members::fixture(["a"]).await;
    let (a, rbac) = (fixture.member("a"), &rbac[0]);
    let_be_root(a, rbac, &["ann", "bob", "eve"]);
    let [ann, bob, eve] = ["ann", "bob", "eve"].map(|name| fixture.user(name, &[]));
    let object = format!("/clusters/a{SHOP}/of-a");
    for user in [&ann, &bob, &eve] {
        until(async || as_root(user, "GET", &object).await.code == 200).await;
    }
    let reviews = || {
        let own = rbac.came_as_ourselves();
        own.iter().filter(|line| line.contains("/subjectaccessreviews")).count()
    };
    follow_late(a).await;
    let before = reviews();
    as_root(&bob, "GET", &object).await.ok();
    assert!(reviews() > before, "it is asked");
    for user in ["ann", "bob"] {
        a.delete(&format!("clusterrolebindings.{RBAC}"), "", &format!("{user}-is-root")).unwrap();
    }
    rbac.learn(a);
    drop(rbac.came());
    // The rights in memory still allow both users to impersonate `root`, and so does the cached review for Bob. The
    // router must not use them, because the watches of roles and bindings broke.
    assert_eq!(as_root(&ann, "DELETE", &object).await.refused(403), NOT_ROOT);
    as_root(&bob, "DELETE", &object).await.refused(403);
    // The watches are open again, but have delivered no event, so the rights in memory are still old.
    pass(SETTLED_WITHIN).await;
    assert_eq!(as_root(&ann, "DELETE", &object).await.refused(403), NOT_ROOT);
    as_root(&bob, "DELETE", &object).await.refused(403);
    assert!(rbac.came().is_empty(), "nothing is sent");
    as_root(&eve, "GET", &object).await.ok();
    // After the delayed events have arrived, the router sends no further reviews to the member.
    a.control().lag_watches(Duration::ZERO);
    a.control().cut_streams();
    until(async || {
        let before = reviews();
        as_root(&eve, "GET", &object).await.ok();
        reviews() == before
    })
    .await;
    assert_eq!(as_root(&ann, "DELETE", &object).await.refused(403), NOT_ROOT);
}
