//! Tests of the shared mode with members that limit impersonation to the profile of Tributary's account (constrained
//! impersonation, KEP-5284).

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use serde_json::{Value, json};
use tributary_apimachinery::{Partial, RequestInfo, Status};
use tributary_authorization::{Attributes, GRANTED_WORDS_MAX};
use tributary_router::report::RightsDecider;
use tributary_router::{Policies, ResourcePolicy, SharedMode};
use tributary_simulator::{Authorizer, Rejection, SimulatedCluster, Simulator, SimulatorConfig};

use crate::access::rights::{ann, binding, config_map_of, grant, listed, refuse_rbac, role};
use crate::access::rights_detected::{Mode, decided, found_out};
use crate::harness::{Client, Events, Fixture, SOON, allow, config, items, pass, setup, until, version};
use crate::membership::members::{Rbac, acting};

const SHOP: &str = "/api/v1/namespaces/shop/configmaps";
const SECRETS: &str = "/api/v1/secrets";

/// An authorizer of a member that grants Tributary's account the profile `read`. As in a kube-apiserver, the account is
/// checked before the user.
struct Read(Arc<Rbac>);

impl Authorizer for Read {
    fn refusal(&self, headers: &HeaderMap, method: &Method, target: &str) -> Option<Status> {
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let info = RequestInfo::parse(method.as_str(), path, query).unwrap();
        let is_beyond = |asked: &Attributes<'_>| match asked {
            Attributes::Resource(asked) => {
                !asked.resource.starts_with("selfsubject") && (!info.verb.is_read() || asked.resource == "secrets")
            }
            Attributes::NonResource { .. } => false,
        };
        let asked = Attributes::from_request(&info);
        if acting(headers).is_none() || !is_beyond(&asked) {
            return self.0.refusal(headers, method, target);
        }
        let resource = info.resource().map(|own| own.resource.clone());
        let verb = info.verb.as_str();
        let cause = format!("User \"tributary\" cannot impersonate-on:user-info:{verb} resource at the cluster scope");
        Some(Status::forbidden(resource.as_ref(), "", &cause))
    }

    fn allows(&self, headers: &HeaderMap, attributes: &Value) -> bool {
        self.0.allows(headers, attributes)
    }
}

/// Starts the members of [`ann`]. Tributary's account in `b` has the profile `read`, and Ann may list Secrets of `a`
/// and `b`. The router does not cache Secrets.
async fn bounded(partial: Partial) -> Fixture {
    let fixture = ann().await;
    let mut policies = allow();
    policies.default.partial = partial;
    fixture.router.set_policies(Policies { registered: Some(vec!["configmaps".parse().unwrap()]), ..policies });
    for member in ["a", "b"].map(|name| fixture.member(name)) {
        let secret = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s", "namespace": "shop"}});
        member.apply(secret).unwrap();
        member.apply(role("", "secret-reader", [&["get", "list"], &[""], &["secrets"], &[]])).unwrap();
        member.apply(binding("", "ann-secrets", ("ClusterRole", "secret-reader"), "ann")).unwrap();
        let rbac = Rbac::judge(member);
        if member.name() == "b" {
            member.control().authorize(Some(Arc::new(Read(rbac))));
        }
    }
    let ann = fixture.user("ann", &[]);
    until(async || ann.get("/clusters/a/api/v1/secrets").await.code == 200).await;
    until(async || ann.get("/clusters/b/api/v1/secrets").await.code == 503).await;
    fixture
}

#[tokio::test]
async fn list_omits_a_cluster_that_forbids_the_list_to_tributarys_account() {
    let fixture = bounded(Partial::Allow).await;
    let answer = fixture.user("ann", &[]).get(SECRETS).await;
    assert_eq!(items(&answer.ok()), ["a/s"]);
    let [warning] = &answer.warnings()[..] else { panic!("{:?}", answer.warnings()) };
    for part in
        ["cluster b: secrets are missing: the cluster does not allow Tributary to list secrets", "--name b --profile"]
    {
        assert!(warning.contains(part), "{part}: {warning}");
    }
}

#[tokio::test]
async fn partial_deny_refuses_a_list_beyond_tributarys_account_profile() {
    let fixture = bounded(Partial::Deny).await;
    let ann = fixture.user("ann", &[]);
    let answer = ann.get(SECRETS).await;
    // With Retry-After, clients would repeat the request in vain.
    assert!(!answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
    let message = answer.refused(503);
    assert!(message.starts_with("cluster \"b\" does not allow Tributary to list secrets for you"), "{message}");
    let others = "tributary.dev/cluster!=b";
    assert!(message.contains("--profile read-with-secrets") && message.contains(others), "{message}");
    let of_others = format!("{SECRETS}?labelSelector=tributary.dev%2Fcluster!%3Db");
    assert_eq!(items(&ann.get(&of_others).await.ok()), ["a/s"]);
}

/// If the user lacks the right, the response is the member's own 403, whatever rights Tributary's account has.
#[tokio::test]
async fn request_beyond_the_users_own_rights_gets_the_members_403() {
    let fixture = bounded(Partial::Allow).await;
    let b = fixture.member("b");
    let (ann, path) = (fixture.user("ann", &[]), format!("{SHOP}/one-b"));
    let refused = ann.send("DELETE", &path, &[], "").await.refused(403);
    let words = "configmaps \"one-b\" is forbidden: User \"ann\" cannot delete resource \"configmaps\" in API group \"\" in \
                 the namespace \"shop\"";
    assert_eq!(refused, words);
    assert_eq!(ann.send("DELETE", &format!("/clusters/b{path}"), &[], "").await.refused(403), words);
    // Now the user has the right, so the message asks the cluster's administrator to extend the profile of Tributary's
    // account.
    b.apply(role("", "deleter", [&["delete"], &[""], &["configmaps"], &[]])).unwrap();
    b.apply(binding("", "ann-deletes", ("ClusterRole", "deleter"), "ann")).unwrap();
    until(async || ann.send("DELETE", &path, &[], "").await.code == 503).await;
    let message = ann.send("DELETE", &path, &[], "").await.refused(503);
    assert!(message.contains("does not allow Tributary to delete configmaps for you"), "{message}");
    assert!(message.contains("tributary join CONTEXT --name b --profile write"), "{message}");
    listed(&fixture, "b", "ann", "shop").await;
}

/// Grants a user read access to the report about clusters.
pub(crate) fn observe(member: &SimulatedCluster, user: &str) {
    let mut observer = role("", "observer", [&["get"], &[], &[], &[]]);
    observer["rules"] = json!([{"verbs": ["get"], "nonResourceURLs": ["/tributary/status"]}]);
    member.apply(observer).unwrap();
    member.apply(binding("", &format!("{user}-observes"), ("ClusterRole", "observer"), user)).unwrap();
}

/// Removes `b`, and then configures these clusters, while `b` forbids Tributary's account to read roles. The rights in
/// `b` are unknown then. The router must process the removal first: if it did not, `b` would be the same cluster at a
/// new address, and the old rights would apply until `b` answers.
async fn return_unread(fixture: &Fixture, names: &[&str]) {
    fixture.set_clusters(&["a"]).await;
    listed(fixture, "b", "ann", "unknown").await;
    refuse_rbac(fixture.member("b"), true);
    fixture.set_clusters(names).await;
}

/// Starts two members. `b` forbids Tributary's account to read roles. Two users may list objects in `a`, and `root` is
/// an observer.
#[tokio::test]
async fn warning_names_a_cluster_with_unknown_rights_only_to_observers() {
    let mut policies = allow();
    policies.default.partial = Partial::Deny;
    let fixture = Fixture::shared(["a", "b"], policies, SharedMode::default()).await;
    return_unread(&fixture, &["a", "b"]).await;
    let a = fixture.member("a");
    for user in ["ann", "root"] {
        grant(a, "", user);
    }
    observe(a, "root");
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    until(async || root.get("/readyz?verbose").await.code == 200).await;
    let all = "/api/v1/configmaps";
    let words = "configmaps: your rights in some clusters are unknown until an administrator removes the cause";
    // With Retry-After, client-go would repeat the request ten times, and kubectl would print nothing meanwhile.
    let refused = async |user: &Client| {
        let answer = user.get(all).await;
        assert_eq!(answer.headers.get("retry-after"), None);
        answer.refused(429)
    };
    until(async || ann.get(all).await.refused(429).starts_with(words)).await;
    assert_eq!(
        refused(&ann).await,
        format!("{words}; an administrator sees the clusters and the remedies with tributary status")
    );
    let why = "b (the clusterrolebindings of the cluster cannot be watched: forbidden: Tributary's account may not \
               list or watch this collection; tributary join CONTEXT";
    until(async || root.get(all).await.refused(429).starts_with(&format!("{words}: {why}"))).await;
    refused(&root).await;
    let verbose = root.get("/readyz?verbose").await;
    let text = String::from_utf8_lossy(&verbose.body);
    assert!(text.contains("[-]cluster/b/rights failed: the clusterrolebindings of the cluster cannot"), "{text}");
    ann.get("/readyz?verbose").await.refused(403);
    let problem = fixture.router.report().await.clusters[1].rights_problem.clone().unwrap_or_default();
    assert!(problem.contains("cannot be watched") && problem.contains("docs/shared-mode.md"), "{problem}");
    // If the policy allows partial responses, a Warning tells both users that objects are missing. Only the observer's
    // Warning names the cluster.
    fixture.router.set_policies(allow());
    // The second Warning appears only after the router has read the discovery of `b`.
    until(async || root.get(all).await.warnings().len() == 2).await;
    let unnamed = "your rights in some clusters are not known, and the objects of these clusters are missing";
    let [of_ann, of_root] = [ann.get(all).await.warnings(), root.get(all).await.warnings()];
    assert!(of_ann.len() == 1 && of_ann[0].contains(unnamed), "{of_ann:?}");
    assert!(
        of_root.len() == 2 && of_root[1].contains("cluster b: your rights to list are not known: the"),
        "{of_root:?}"
    );
    refuse_rbac(fixture.member("b"), false);
    until(async || fixture.router.report().await.clusters[1].rights_problem.is_none()).await;
}

/// Starts two members. `b` refuses all requests of Tributary's account, so its kinds and the rights in it are unknown.
#[tokio::test]
async fn refusal_for_an_unknown_kind_names_clusters_only_to_observers() {
    let fixture = Fixture::shared(["a", "b"], allow(), SharedMode::default()).await;
    fixture.set_clusters(&["a"]).await;
    listed(&fixture, "b", "ann", "unknown").await;
    fixture.member("b").control().reject(Some(Rejection::all(403)));
    fixture.set_clusters(&["a", "b"]).await;
    observe(fixture.member("a"), "root");
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    let path = "/apis/example.test/v1/namespaces/shop/foos/f";
    let words = "foos.example.test \"f\": your rights in some clusters are unknown until an administrator removes the \
                 cause";
    until(async || root.get("/readyz?verbose").await.code != 403).await;
    let refused = ann.get(path).await;
    assert_eq!(
        refused.refused(503),
        format!("{words}; an administrator sees the clusters and the remedies with tributary status")
    );
    assert_eq!(refused.headers.get("retry-after"), None);
    until(async || root.get(path).await.refused(503).starts_with(&format!("{words}: b ("))).await;
}

/// The rights in `b` are unknown. The router caches ConfigMaps, and reads Secrets from the clusters. A list of only `a`
/// does not wait for `b`. A user without known rights gets equal responses for both resources.
#[tokio::test]
async fn unknown_rights_affect_only_requests_that_select_the_cluster() {
    let mut policies = Policies { registered: Some(vec!["configmaps".parse().unwrap()]), ..allow() };
    policies.default.partial = Partial::Deny;
    let fixture = Fixture::shared(["a", "b"], policies.clone(), SharedMode::default()).await;
    return_unread(&fixture, &["a", "b"]).await;
    let a = fixture.member("a");
    a.apply(role("", "all", [&["list", "deletecollection"], &[""], &["configmaps", "secrets"], &[]])).unwrap();
    a.apply(binding("", "ann-all", ("ClusterRole", "all"), "ann")).unwrap();
    let [ann, bob] = ["ann", "bob"].map(|name| fixture.user(name, &[]));
    let lists = ["/api/v1/configmaps", SECRETS];
    for list in lists {
        let of_a = format!("{list}?labelSelector=tributary.dev%2Fcluster%3Da");
        until(async || ann.get(&of_a).await.code == 200).await;
        assert_eq!(ann.get(&of_a).await.warnings(), [""; 0], "{list}");
        ann.get(list).await.refused(429);
        ann.get(&format!("{list}?labelSelector=tributary.dev%2Fcluster%21%3Da")).await.refused(429);
    }
    let of_a = "/api/v1/namespaces/shop/secrets?labelSelector=tributary.dev%2Fcluster%3Da";
    ann.send("DELETE", of_a, &[], "").await.ok();
    ann.send("DELETE", "/api/v1/namespaces/shop/secrets", &[], "").await.refused(429);
    for list in lists {
        bob.get(list).await.refused(429);
    }
    policies.default.partial = Partial::Allow;
    fixture.router.set_policies(policies);
    for list in lists {
        until(async || ann.get(list).await.code == 200).await;
        assert_eq!(ann.get(list).await.warnings().len(), 1, "{list}");
        let of_bob = bob.get(list).await;
        assert_eq!((items(&of_bob.ok()).len(), of_bob.warnings().len()), (0, 1), "{list}");
        // The response does not reveal whether a cluster in a selector exists.
        for name in ["a", "b", "nowhere"] {
            let named = bob.get(&format!("{list}?labelSelector=tributary.dev%2Fcluster%3D{name}")).await;
            assert_eq!((items(&named.ok()).len(), named.warnings().len()), (0, 2), "{list} {name}");
        }
    }
}

/// The rights in `b` are unknown, and Eve has no rights in `a`. She may have rights in `b`, so the response must not be
/// a 403.
#[tokio::test]
async fn unknown_rights_do_not_cause_a_403() {
    const UNKNOWN: &str = "299 - \"your rights in some clusters are not known, and the objects of these clusters are \
                           missing\"";
    for names in [&["b"][..], &["a", "b"]] {
        let mut policies = Policies { registered: Some(vec!["configmaps".parse().unwrap()]), ..allow() };
        let fixture = Fixture::shared(["a", "b"], policies.clone(), SharedMode::default()).await;
        let b = fixture.member("b");
        b.apply(config_map_of("shop", "one")).unwrap();
        grant(b, "", "eve");
        return_unread(&fixture, names).await;
        let eve = fixture.user("eve", &[]);
        until(async || eve.get("/api/v1/configmaps").await.code == 200).await;
        let lists = [
            "/api/v1/configmaps",
            "/api/v1/configmaps?limit=1",
            "/api/v1/configmaps?resourceVersion=0",
            "/api/v1/configmaps?labelSelector=tributary.dev%2Fcluster%3Db",
            "/api/v1/namespaces/shop/configmaps",
            "/api/v1/namespaces/shop/configmaps?fieldSelector=metadata.name%3Done",
            SECRETS,
            "/api/v1/namespaces/shop/secrets?limit=1",
        ];
        for list in lists {
            let answer = eve.get(list).await;
            assert_eq!((items(&answer.ok()).len(), &*answer.warnings()[0]), (0, UNKNOWN), "{list}");
        }
        eve.get("/api/v1/namespaces/shop/configmaps/one").await.refused(503);
        eve.get("/api/v1/namespaces/shop/secrets/one").await.refused(503);
        eve.send("DELETE", "/api/v1/namespaces/shop/configmaps/one", &[], "").await.refused(503);
        eve.send("DELETE", "/api/v1/namespaces/shop/configmaps", &[], "").await.refused(429);
        let version = version(&eve.get("/api/v1/configmaps").await.ok());
        let follow = "/api/v1/configmaps?watch=1&resourceVersion=";
        let answer = eve.call("GET", &format!("{follow}{version}"), &[], "").await;
        assert_eq!((answer.status().as_u16(), &answer.headers()["warning"]), (200, &UNKNOWN.parse().unwrap()));
        let mut watch = Events::of(answer);
        watch.nothing().await;
        policies.default.partial = Partial::Deny;
        fixture.router.set_policies(policies.clone());
        for list in lists.into_iter().chain(["/api/v1/configmaps?watch=1"]) {
            eve.get(list).await.refused(429);
        }
        policies.default.partial = Partial::Allow;
        fixture.router.set_policies(policies);
        refuse_rbac(b, false);
        pass(Duration::from_secs(60)).await;
        listed(&fixture, "b", "eve", "all").await;
        until(async || items(&eve.get("/api/v1/configmaps").await.ok()).len() == 1).await;
        until(async || eve.get("/api/v1/configmaps").await.warnings().is_empty()).await;
        // If an informer continues from the empty list, it receives the object as an event, or must list again.
        let event = eve.watch(&format!("{follow}{version}")).await.soon().await["object"].clone();
        assert!(event["metadata"]["name"] == "one" || event["code"] == 410, "{event}");
    }
}

/// A member authorizes by more than roles, and forbids Tributary's account to create SubjectAccessReviews. The roles of
/// the member then decide who is an observer.
#[tokio::test]
async fn observer_reads_the_report_although_a_member_forbids_reviews() {
    let (fixture, _chains) = found_out([Mode::Rbac, Mode::WithoutReviews, Mode::Rbac]).await;
    decided(&fixture, "b", RightsDecider::Review).await;
    for member in &fixture.members {
        observe(member, "root");
    }
    observe(fixture.member("a"), "eve");
    observe(fixture.member("c"), "eve");
    let (root, eve) = (fixture.user("root", &[]), fixture.user("eve", &[]));
    until(async || root.get("/readyz?verbose").await.code == 200).await;
    eve.get("/readyz?verbose").await.refused(403);
    let problem = fixture.router.report().await.clusters[1].rights_problem.clone().unwrap_or_default();
    assert!(
        problem.contains("the cluster answers") && problem.contains("Tributary's account needs the verb create"),
        "{problem}"
    );
}

/// Bob administers `a` and one namespace of `b`, and may not read reports in `b`. He binds himself in his namespace to
/// so many rights that they exceed the router's limit.
#[tokio::test]
async fn user_whose_own_bindings_exceed_the_limit_sees_no_report() {
    const WORDS: usize = 4_000;
    let fixture = Fixture::shared(["a", "b"], allow(), SharedMode::default()).await;
    let (a, b) = (fixture.member("a"), fixture.member("b"));
    observe(a, "bob");
    listed(&fixture, "a", "bob", "none").await;
    listed(&fixture, "b", "bob", "none").await;
    let bob = fixture.user("bob", &[]);
    assert_eq!(bob.get("/readyz?verbose").await.code, 403, "b does not let him");
    let names: Vec<_> = (0..WORDS).map(|number| number.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    b.apply(role("own", "much", [&["get"], &[""], &["configmaps"], &names])).unwrap();
    for number in 0..=GRANTED_WORDS_MAX / WORDS {
        b.apply(binding("own", &format!("much-{number}"), ("Role", "much"), "bob")).unwrap();
    }
    until(async || bob.get("/api/v1/namespaces/own/configmaps/1").await.code == 503).await;
    bob.get("/readyz?verbose").await.refused(403);
}

/// kube-apiserver quotes the requested name in its 403. The name here is a part of the message about a missing right of
/// Tributary's account. Bob himself lacks the right, so the response must not blame the account.
#[tokio::test]
async fn object_name_in_a_403_does_not_blame_tributarys_account() {
    let (fixture, _chains) = found_out([Mode::Rbac, Mode::Rbac, Mode::Rbac]).await;
    decided(&fixture, "a", RightsDecider::Rbac).await;
    let path = "/clusters/a/api/v1/namespaces/bank/configmaps/cannot%20impersonate:";
    let answer = fixture.user("bob", &[]).get(path).await;
    assert_eq!(answer.code, 403, "{}", String::from_utf8_lossy(&answer.body));
}

/// The aggregated API server of a group in one cluster is silent. The objects of this cluster are unknown, both in the
/// shared mode and in the personal mode.
#[tokio::test]
async fn list_names_a_cluster_whose_aggregated_server_is_silent() {
    for partial in [Partial::Allow, Partial::Deny] {
        let default = ResourcePolicy { partial, ..ResourcePolicy::default() };
        let policies = Policies { default, ..Policies::default() };
        let fixture = Fixture::shared(["a"], policies, SharedMode::default()).await;
        let b = Simulator::start(SimulatorConfig { rbac: true, ..config("b") }).await.unwrap();
        b.control().serve_group("apps", false);
        let a = fixture.member("a");
        for member in [a, &b] {
            member
                .apply(role("", "all", [&["get", "list", "watch"], &["", "apps"], &["deployments", "configmaps"], &[]]))
                .unwrap();
            member.apply(binding("", "ann-reads-all", ("ClusterRole", "all"), "ann")).unwrap();
        }
        fixture.router.set_clusters(vec![setup(a, "a").await, setup(&b, "b").await]);
        fixture.router.asked_once(SOON).await;
        listed(&fixture, "b", "ann", "all").await;
        let answer = fixture.user("ann", &[]).get("/apis/apps/v1/deployments").await;
        match partial {
            Partial::Deny => drop(answer.refused(429)),
            Partial::Allow => {
                let warnings = answer.warnings();
                assert!(warnings.iter().any(|warning| warning.contains("cluster b")), "{warnings:?}");
                answer.ok();
            }
        }
    }
}
