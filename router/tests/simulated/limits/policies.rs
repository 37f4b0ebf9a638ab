//! Dispatch policies for incoming requests: the requests that they admit, and their effect on open streams.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout};
use tributary_apimachinery::{AuditLevel, ClusterName, RequestInfo};
use tributary_policy::{Action, Mode, Outcome, Policy, Rule};
use tributary_router::{DispatchSettings, EntryPointPolicies, RequestContext, Router, RouterConfig, User};

use crate::access::rights::{ann as anns, binding};
use crate::harness::{CONFIG_MAPS, Events, Fixture, SOON, config_map, config_map_in, items, until, vector, version};

/// Maximum time until a stream ends after a new policy denies it.
const REFUSED_WITHIN: Duration = Duration::from_secs(2);

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn rule(verbs: &[&str], resources: &[&str]) -> Rule {
    let groups = if resources.is_empty() { &[][..] } else { &["*"] };
    Rule { verbs: texts(verbs), api_groups: texts(groups), resources: texts(resources), ..Rule::default() }
}

fn deny(message: &str, rule: Rule) -> Policy {
    let action = Action::Deny { message: message.to_owned() };
    Policy { rules: vec![rule], outcome: Outcome { action, ..Outcome::default() }, ..Policy::default() }
}

fn pass() -> Policy {
    let rule = Rule { non_resource_urls: texts(&["*"]), ..rule(&["*"], &["*"]) };
    Policy { rules: vec![rule], ..Policy::default() }
}

fn of_merged(policies: Vec<Policy>) -> DispatchSettings {
    DispatchSettings { merged: EntryPointPolicies { policies, denies_all: false }, ..DispatchSettings::default() }
}

fn of_cluster(name: &str, policies: Vec<Policy>) -> DispatchSettings {
    let clusters = [(ClusterName::new(name).unwrap(), EntryPointPolicies { policies, denies_all: false })];
    DispatchSettings { clusters: clusters.into(), ..DispatchSettings::default() }
}

fn no_config_maps(name: &str) -> DispatchSettings {
    of_cluster(name, vec![deny("not here", rule(&["*"], &["configmaps"])), pass()])
}

const SAID_BY_A: &str = "not here (UpstreamCluster \"a\": spec.dispatchPolicies[0].rules[0] denies this request)";
const NOT_THERE: &str = "299 - \"the dispatch policies of a refuse this request; the answer omits the objects of \
                         these clusters\"";

/// Starts members, each with an object `of-` and the member's name.
async fn fixture<const N: usize>(names: [&str; N]) -> Fixture {
    let fixture = Fixture::start(names).await;
    for name in names {
        fixture.put_and_see(name, &format!("of-{name}"), "x").await;
    }
    fixture
}

async fn names(fixture: &Fixture) -> Vec<String> {
    items(&fixture.get(CONFIG_MAPS).await.ok())
}

/// Checks that the next event is an ERROR with this code, and that the stream then ends. Returns the time of the end.
async fn ends_with(events: &mut Events, code: u16) -> Instant {
    let event = timeout(SOON, events.soon()).await.expect("an end");
    assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &code.into()), "{event}");
    assert_eq!(events.next().await, None);
    Instant::now()
}

#[tokio::test]
async fn merged_view_refuses_requests_that_its_policies_deny() {
    let fixture = fixture(["a", "b"]).await;
    fixture.router.set_dispatch(of_merged(vec![deny("name what you want", rule(&["list"], &["configmaps"])), pass()]));
    let said = "name what you want (MergedEndpoint \"all\": spec.dispatchPolicies[0].rules[0] denies this request)";
    let refused = fixture.get(CONFIG_MAPS).await;
    assert_eq!(refused.refused(403), said);
    assert_eq!(refused.json()["reason"], "Forbidden");
    fixture.get(&format!("{CONFIG_MAPS}/of-a")).await.ok();
    fixture.get(&format!("/clusters/a{CONFIG_MAPS}")).await.ok();
    fixture.get("/apis").await.ok();
    let shown = fixture.router.metrics().expose();
    let counted = "tributary_dispatch_policy_total{object=\"MergedEndpoint/all\",policy=\"0\",decision=\"denied\"} 1";
    assert!(shown.contains(counted), "{shown}");
    fixture.router.set_dispatch(DispatchSettings::default());
    assert_eq!(names(&fixture).await, ["a/of-a", "b/of-b"]);
    assert!(!fixture.router.metrics().expose().contains("tributary_dispatch_policy_total{"));
}

/// A member may parse an ambiguous query differently from the router. It could then answer a request whose policies the
/// router has not checked.
#[tokio::test]
async fn ambiguous_query_is_sent_to_no_member() {
    let fixture = Fixture::start(["a"]).await;
    let public = Rule { resource_names: texts(&["pub"]), ..rule(&["list"], &["secrets"]) };
    let public = Policy { rules: vec![public], ..Policy::default() };
    let policies = vec![public, deny("not these", rule(&["*"], &["secrets"])), pass()];
    fixture.router.set_dispatch(of_cluster("a", policies));
    let secrets = "/api/v1/namespaces/only-here/secrets";
    let came = || {
        let log = fixture.member("a").control().request_log();
        log.iter().filter(|line| line.contains("only-here")).count()
    };
    let many = format!("watch=1{}", "&".repeat(10_000));
    let text = |name: &str| format!("the query parameter {name:?} is not UTF-8 once it is decoded");
    for (query, words) in [
        ("fieldSelector=metadata.name!=%ff&fieldSelector=metadata.name=pub", text("fieldSelector")),
        ("watch=%ff", text("watch")),
        (many.as_str(), "too many query parameters".to_owned()),
        ("watch=1;limit=1", "the query parameter \"watch\" has a semicolon".to_owned()),
        ("fieldSelector=metadata.name=pub&limit=%zz", "the query parameter \"limit\" has an invalid".to_owned()),
    ] {
        for answer in [
            fixture.get(&format!("/clusters/a{secrets}?{query}")).await,
            fixture.client().at_host_of("a").get(&format!("{secrets}?{query}")).await,
            fixture.get(&format!("{secrets}?{query}")).await,
        ] {
            let said = answer.refused(400);
            assert!(said.starts_with(&words), "{said}");
        }
    }
    assert_eq!(came(), 0);
    // The policies decide about an unambiguous query.
    let named = "fieldSelector=metadata.name%3Dpub";
    fixture.get(&format!("/clusters/a{secrets}?{named}")).await.ok();
    fixture.client().at_host_of("a").get(&format!("{secrets}?{named}")).await.ok();
    assert_eq!(came(), 2);
    assert!(fixture.get(&format!("/clusters/a{secrets}")).await.refused(403).starts_with("not these"));
    // The router does not parse the query of a request to a workload.
    let proxied = "/api/v1/namespaces/only-here/services/s/proxy/?a;b&x=%ff&y=%zz";
    assert_eq!(fixture.get(&format!("/clusters/a{proxied}")).await.code, 200);
    assert_eq!(came(), 3);
}

/// A client may write the name of a service as `name`, `name:port` or `scheme:name:port`.
#[tokio::test]
async fn policy_denies_a_service_proxy_in_each_spelling_of_its_name() {
    let fixture = Fixture::start(["a"]).await;
    let named = Rule { resource_names: texts(&["dashboard"]), ..rule(&["*"], &["services/proxy"]) };
    fixture.router.set_dispatch(of_cluster("a", vec![deny("not this one", named), pass()]));
    let code = async |name: &str| {
        fixture.get(&format!("/clusters/a/api/v1/namespaces/default/services/{name}/proxy/")).await.code
    };
    for name in ["dashboard", "dashboard:80", "dashboard:", "http:dashboard:80", "https:dashboard:", "%64ashboard:80"] {
        assert_eq!(code(name).await, 403, "{name}");
    }
    for name in ["other", "other:80", "http:other:80", "dashboards:80"] {
        assert_eq!(code(name).await, 200, "{name}");
    }
}

/// Returns the requests of the test's clients that a member received. The router itself uses other paths.
fn sent(fixture: &Fixture, member: &str) -> Vec<String> {
    let log = fixture.member(member).control().request_log();
    log.into_iter().filter(|line| line.contains(CONFIG_MAPS) || line.ends_with(" /version")).collect()
}

#[tokio::test]
async fn request_that_matches_no_dispatch_policy_is_not_sent() {
    let fixture = fixture(["a"]).await;
    let before = sent(&fixture, "a");
    for (place, object, settings) in [
        ("", "MergedEndpoint \"all\"", (|policies| of_merged(policies)) as fn(Vec<Policy>) -> DispatchSettings),
        ("/clusters/a", "UpstreamCluster \"a\"", |policies| of_cluster("a", policies)),
    ] {
        fixture
            .router
            .set_dispatch(settings(vec![Policy { rules: vec![rule(&["*"], &["pods"])], ..Policy::default() }]));
        let answer = fixture.get(&format!("{place}{CONFIG_MAPS}")).await;
        let message = format!(
            "no rule of the dispatch policies of {object} matches this request (list configmaps), so it was not \
             forwarded; an administrator can add a policy with such a rule to spec.dispatchPolicies"
        );
        assert_eq!(answer.refused(500), message);
        assert_eq!(fixture.get(&format!("{place}/version")).await.code, 500);
        assert_eq!(sent(&fixture, "a"), before, "{object}");
        assert_eq!(fixture.get("/readyz").await.code, 200, "how this process does is told all the same");
    }
    fixture.router.set_dispatch(DispatchSettings::default());
    for path in ["/clusters/a/version".to_owned(), format!("/clusters/a{CONFIG_MAPS}")] {
        fixture.get(&path).await.ok();
    }
    assert_eq!(sent(&fixture, "a").len(), before.len() + 2, "otherwise it would have been sent");
}

#[derive(Clone, Copy)]
struct Asked {
    path: &'static str,
    user: &'static str,
    group: &'static str,
    agent: &'static str,
}

#[tokio::test]
async fn each_field_of_a_policy_rule_matches_its_attribute() {
    let fixture = Fixture::start(["a"]).await;
    let map = Asked { path: "/api/v1/namespaces/default/configmaps/x", user: "ann", group: "dev", agent: "curl/8" };
    let at = |path| Asked { path, ..map };
    let by = |user| Asked { user, ..map };
    let all = || Rule { non_resource_urls: texts(&["*"]), ..rule(&["*"], &["*"]) };
    let pod = "/api/v1/namespaces/default/pods/x";
    let rows = [
        (Rule { verbs: texts(&["list"]), ..all() }, at(CONFIG_MAPS), map),
        (Rule { api_groups: texts(&["apps"]), ..all() }, at("/apis/apps/v1/namespaces/default/deployments/x"), map),
        (Rule { resources: texts(&["configmaps"]), ..all() }, map, at(pod)),
        (Rule { resources: texts(&["pods/log"]), ..all() }, at("/api/v1/namespaces/default/pods/x/log"), at(pod)),
        (Rule { resource_names: texts(&["x"]), ..all() }, map, at("/api/v1/namespaces/x/configmaps/default")),
        (Rule { namespaces: texts(&["default"]), ..all() }, map, at("/api/v1/namespaces/x/configmaps/default")),
        (Rule { users: texts(&["ops"]), ..all() }, by("ops"), Asked { group: "ops", ..map }),
        (Rule { user_groups: texts(&["ops"]), ..all() }, Asked { group: "ops", ..map }, by("ops")),
        (
            Rule { service_accounts: texts(&["shop/web"]), ..all() },
            by("system:serviceaccount:shop:web"),
            by("system:serviceaccount:web:shop"),
        ),
        (Rule { non_resource_urls: texts(&["/version"]), ..rule(&["*"], &[]) }, at("/version"), at("/apis")),
        (Rule { user_agents: texts(&["kubectl/*"]), ..all() }, Asked { agent: "kubectl/v1", ..map }, map),
    ];
    let ask = async |place: &str, asked: Asked| {
        let client = fixture.user(asked.user, &[asked.group.to_owned()]);
        let headers = [("user-agent", asked.agent)];
        match place {
            "at its host" => client.at_host_of("a").send("GET", asked.path, &headers, "").await,
            _ => client.send("GET", &format!("{place}{}", asked.path), &headers, "").await,
        }
    };
    for (place, settings) in [
        ("", (|policies| of_merged(policies)) as fn(Vec<Policy>) -> DispatchSettings),
        ("/clusters/a", |policies| of_cluster("a", policies)),
        ("at its host", |policies| of_cluster("a", policies)),
    ] {
        for (rule, denied, passed) in &rows {
            fixture.router.set_dispatch(settings(vec![deny("not this", rule.clone()), pass()]));
            let said = ask(place, *denied).await.refused(403);
            assert!(said.starts_with("not this"), "{place}, {rule:?}: {said}");
            let answer = ask(place, *passed).await;
            assert_ne!(answer.code, 403, "{place}, {rule:?}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn dispatch_policy_in_audit_mode_only_counts_requests() {
    let fixture = fixture(["a"]).await;
    let audited = Policy { mode: Mode::Audit, ..deny("not yet", rule(&["list"], &["*"])) };
    for settings in [of_merged(vec![audited.clone()]), of_cluster("a", vec![audited])] {
        fixture.router.set_dispatch(settings);
        let list = fixture.get(CONFIG_MAPS).await;
        assert_eq!(items(&list.ok()), ["a/of-a"]);
        assert!(list.warnings().is_empty(), "{list:?}");
        let shown = fixture.router.metrics().expose();
        assert!(shown.contains("policy=\"0\",decision=\"audited\"} 1"), "{shown}");
    }
}

#[tokio::test]
async fn reads_from_memory_obey_the_policies_of_a_cluster() {
    let fixture = fixture(["a", "b"]).await;
    fixture.router.set_dispatch(no_config_maps("a"));
    let list = fixture.get(CONFIG_MAPS).await;
    assert_eq!(items(&list.ok()), ["b/of-b"]);
    assert_eq!(list.warnings(), [NOT_THERE]);
    assert!(vector(&version(&list.json())).get("a").is_none(), "{list:?}");
    let mut watch = fixture.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    assert_eq!(watch.brief().await, "ADDED b/of-b");
    fixture.put("a", "later", "x");
    watch.nothing().await;
    // The policy denies cluster `a`, so an object that exists only there looks like a missing object.
    let missing = fixture.get(&format!("{CONFIG_MAPS}/of-a")).await;
    assert_eq!(missing.code, 404);
    assert_eq!(missing.warnings(), [NOT_THERE]);
    let deleted = fixture.write("DELETE", &format!("{CONFIG_MAPS}/of-a"), &json!({})).await;
    assert_eq!(deleted.code, 404, "{deleted:?}");
    assert!(fixture.member("a").get("configmaps", "default", "of-a").is_some());
    fixture.get(&format!("{CONFIG_MAPS}/of-b")).await.ok();
    // Other resources are not affected. At the path of the denied cluster, the response contains the policy's message.
    assert!(fixture.get("/api/v1/namespaces").await.warnings().is_empty());
    assert_eq!(fixture.get(&format!("/clusters/a{CONFIG_MAPS}")).await.refused(403), SAID_BY_A);
    // If the policies of all selected clusters deny a request, the response contains the message of one policy.
    let selected = format!("{CONFIG_MAPS}?labelSelector=tributary.dev%2Fcluster%3Da");
    assert_eq!(fixture.get(&selected).await.refused(403), SAID_BY_A);
    let DispatchSettings { mut clusters, merged, .. } = no_config_maps("a");
    clusters.extend(no_config_maps("b").clusters);
    fixture.router.set_dispatch(DispatchSettings { merged, clusters, ..DispatchSettings::default() });
    for path in [CONFIG_MAPS.to_owned(), format!("{CONFIG_MAPS}/of-b"), format!("{CONFIG_MAPS}?watch=1")] {
        assert_eq!(fixture.get(&path).await.refused(403), SAID_BY_A, "{path}");
    }
    let deleted = fixture.write("DELETE", &format!("{CONFIG_MAPS}/of-b"), &json!({})).await;
    assert_eq!(deleted.refused(403), SAID_BY_A);
    let created = fixture.write("POST", CONFIG_MAPS, &config_map("new", "x")).await;
    assert_eq!(created.refused(403), SAID_BY_A);
}

#[tokio::test]
async fn create_that_a_clusters_policy_denies_gets_a_403() {
    let fixture = fixture(["a", "b"]).await;
    fixture.router.set_dispatch(of_cluster("a", vec![deny("not here", rule(&["create"], &["configmaps"])), pass()]));
    let created = fixture.write("POST", CONFIG_MAPS, &config_map_in("a", "new", "x")).await;
    assert_eq!(created.refused(403), SAID_BY_A);
    assert!(fixture.member("a").get("configmaps", "default", "new").is_none());
    let created = fixture.write("POST", CONFIG_MAPS, &config_map_in("b", "new", "x")).await;
    assert_eq!(created.code, 201, "{created:?}");
}

/// The policies deny only writes. The client may read the object, so the response may contain the policy's message.
#[tokio::test]
async fn write_that_a_clusters_policy_denies_gets_the_policys_message() {
    let fixture = fixture(["a", "b"]).await;
    let verbs = ["update", "patch", "delete", "deletecollection"];
    fixture.router.set_dispatch(of_cluster("a", vec![deny("not here", rule(&verbs, &["configmaps"])), pass()]));
    fixture.get(&format!("{CONFIG_MAPS}/of-a")).await.ok();
    let deleted = fixture.write("DELETE", &format!("{CONFIG_MAPS}/of-a"), &json!({})).await;
    assert_eq!(deleted.refused(403), SAID_BY_A);
    let changed = fixture.write("PUT", &format!("{CONFIG_MAPS}/of-a"), &config_map("of-a", "y")).await;
    assert_eq!(changed.refused(403), SAID_BY_A);
    let deleted = fixture.write("DELETE", CONFIG_MAPS, &json!({})).await;
    assert_eq!(deleted.warnings(), [NOT_THERE], "{deleted:?}");
    until(async || names(&fixture).await == ["a/of-a"]).await;
}

/// A new policy applies immediately. A watch ends when a policy hides or shows objects.
#[tokio::test]
async fn open_watch_ends_when_policies_change_its_objects() {
    let fixture = fixture(["a", "b"]).await;
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let from = |list: &serde_json::Value| format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(list));
    let mut watch = fixture.watch(&from(&list)).await;
    fixture.router.set_dispatch(of_cluster("a", vec![deny("no pods", rule(&["*"], &["pods"])), pass()]));
    watch.nothing().await;
    let set = Instant::now();
    fixture.router.set_dispatch(no_config_maps("a"));
    assert!(ends_with(&mut watch, 410).await - set < REFUSED_WITHIN);
    // A client that was disconnected has objects that are hidden now, so it cannot resume.
    ends_with(&mut fixture.watch(&from(&list)).await, 410).await;
    let limited = fixture.get(CONFIG_MAPS).await.ok();
    assert_eq!(items(&limited), ["b/of-b"]);
    let mut watch = fixture.watch(&from(&limited)).await;
    watch.nothing().await;
    fixture.router.set_dispatch(DispatchSettings::default());
    assert_eq!(timeout(SOON, watch.next()).await.expect("an end"), None, "it ends, to go on with more");
    let mut watch = fixture.watch(&from(&limited)).await;
    assert_eq!(watch.brief().await, "ADDED a/of-a");
    watch.nothing().await;
    // A policy of the merged view denies watches: the open watch ends, and the client cannot resume.
    fixture.router.set_dispatch(of_merged(vec![deny("no watches", rule(&["watch"], &["*"])), pass()]));
    ends_with(&mut watch, 403).await;
}

#[tokio::test]
async fn watch_that_omits_a_denied_cluster_resumes_with_an_added_cluster() {
    let fixture = fixture(["a", "b", "c"]).await;
    fixture.set_clusters(&["a", "b"]).await;
    until(async || names(&fixture).await == ["a/of-a", "b/of-b"]).await;
    fixture.router.set_dispatch(no_config_maps("a"));
    assert_eq!(names(&fixture).await, ["b/of-b"]);
    let list = fixture.get(CONFIG_MAPS).await.ok();
    let path = format!("{CONFIG_MAPS}?watch=1&resourceVersion={}", version(&list));
    let mut watch = fixture.watch(&path).await;
    watch.nothing().await;
    fixture.set_clusters(&["a", "b", "c"]).await;
    assert_eq!(timeout(SOON, watch.next()).await.expect("an end"), None);
    assert_eq!(fixture.watch(&path).await.brief().await, "ADDED c/of-c");
}

#[tokio::test]
async fn stream_of_a_cluster_ends_when_a_policy_denies_it() {
    let fixture = fixture(["a"]).await;
    for settings in [no_config_maps("a"), frozen("a")] {
        let mut watch = fixture.watch(&format!("/clusters/a{CONFIG_MAPS}?watch=1")).await;
        assert_eq!(watch.soon().await["type"], "ADDED");
        let set = Instant::now();
        fixture.router.set_dispatch(settings);
        while timeout(SOON, watch.next()).await.expect("an end").is_some() {}
        assert!(set.elapsed() < REFUSED_WITHIN, "{:?}", set.elapsed());
        fixture.router.set_dispatch(DispatchSettings::default());
    }
}

fn frozen(name: &str) -> DispatchSettings {
    let clusters =
        [(ClusterName::new(name).unwrap(), EntryPointPolicies { denies_all: true, ..EntryPointPolicies::default() })];
    DispatchSettings { clusters: clusters.into(), ..DispatchSettings::default() }
}

#[tokio::test]
async fn cluster_with_dispatch_deny_all_is_served_only_from_memory() {
    let fixture = fixture(["a", "b"]).await;
    fixture.router.set_dispatch(frozen("a"));
    let said = "UpstreamCluster \"a\" has dispatch: DenyAll: no request is sent to this cluster until an \
                administrator removes this setting";
    let own = fixture.get(&format!("/clusters/a{CONFIG_MAPS}")).await;
    assert_eq!(own.refused(429), said);
    assert!(!own.headers.contains_key("retry-after"));
    let list = fixture.get(CONFIG_MAPS).await;
    assert_eq!(items(&list.ok()), ["a/of-a", "b/of-b"]);
    assert!(list.warnings().is_empty());
    fixture.get(&format!("{CONFIG_MAPS}/of-a")).await.ok();
    let deleted = fixture.write("DELETE", &format!("{CONFIG_MAPS}/of-a"), &json!({})).await;
    assert_eq!(deleted.refused(429), said);
    assert!(fixture.member("a").get("configmaps", "default", "of-a").is_some());
    let deleted = fixture.write("DELETE", &format!("{CONFIG_MAPS}/of-b"), &json!({})).await;
    assert_eq!(deleted.code, 200, "{deleted:?}");
    fixture.router.set_dispatch(DispatchSettings::default());
    fixture.get(&format!("/clusters/a{CONFIG_MAPS}")).await.ok();
}

/// With `dispatch: DenyAll`, a cluster also gets no requests that Tributary sends with its own account on behalf of a
/// client. Token reviews are an exception, because users of all clusters may need them.
#[tokio::test]
async fn cluster_with_dispatch_deny_all_gets_token_reviews_but_no_discovery() {
    let fixture = fixture(["a", "b"]).await;
    let logs = |part: &str| {
        let count = |member: &str| {
            let log = fixture.member(member).control().request_log();
            log.iter().filter(|line| line.ends_with(part)).count()
        };
        ["a", "b"].map(count)
    };
    let legacy = "/apis/apps/v1";
    let before = logs(legacy);
    fixture.get(legacy).await.ok();
    assert_eq!(logs(legacy), [before[0] + 1, before[1]], "the first that serves it is asked");
    fixture.router.set_dispatch(frozen("a"));
    fixture.get(legacy).await.ok();
    assert_eq!(logs(legacy), [before[0] + 1, before[1] + 1]);
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let answer = fixture.router.review_token(&ClusterName::new("a").unwrap(), b"{}".to_vec()).await;
    assert_eq!(logs(reviews), [1, 0], "{answer:?}");
}

/// Precedent 20 of docs/precedents.md: a WebSocket client opens an exec by GET, so a policy for `create` must also
/// match the GET.
#[tokio::test]
async fn policy_denies_exec_by_get_and_by_post() {
    let fixture = fixture(["a"]).await;
    let denied = || deny("ask the people on call", rule(&["create"], &["pods/exec"]));
    let said = |object: &str| {
        format!("ask the people on call ({object}: spec.dispatchPolicies[0].rules[0] denies this request)")
    };
    let exec = "/api/v1/namespaces/default/pods/web/exec?command=sh";
    for method in ["GET", "POST"] {
        fixture.router.set_dispatch(of_merged(vec![denied(), pass()]));
        let answer = fixture.write(method, exec, &json!({})).await;
        assert_eq!(answer.refused(403), said("MergedEndpoint \"all\""));
        fixture.router.set_dispatch(of_cluster("a", vec![denied(), pass()]));
        let answer = fixture.write(method, &format!("/clusters/a{exec}"), &json!({})).await;
        assert_eq!(answer.refused(403), said("UpstreamCluster \"a\""), "{method}");
    }
}

/// As in kube-apiserver, a rule for a user matches requests that impersonate this user.
#[tokio::test]
async fn policy_rules_match_the_impersonated_user() {
    let fixture = fixture(["a"]).await;
    let rule = Rule { users: texts(&["bob"]), user_groups: texts(&["staff"]), ..rule(&["*"], &["*"]) };
    fixture.router.set_dispatch(of_cluster("a", vec![deny("not bob", rule), pass()]));
    let own = format!("/clusters/a{CONFIG_MAPS}");
    let client = fixture.client();
    client.get(&own).await.ok();
    let as_bob = |groups: &'static str| [("impersonate-user", "bob"), ("impersonate-group", groups)];
    assert_eq!(client.send("GET", &own, &as_bob("others"), "").await.code, 200);
    client.send("GET", &own, &as_bob("staff"), "").await.refused(403);
}

/// Rules also match groups that a cluster adds implicitly, such as `system:authenticated`.
#[tokio::test]
async fn policy_rules_match_the_implicit_groups_of_users() {
    let fixture = fixture(["a"]).await;
    let own = format!("/clusters/a{CONFIG_MAPS}");
    let account = "system:serviceaccount:shop:robot";
    for (group, user, code) in [
        ("system:authenticated", None, 403),
        ("system:authenticated", Some("bob"), 403),
        ("system:authenticated", Some("system:anonymous"), 200),
        ("system:unauthenticated", Some("system:anonymous"), 403),
        ("system:serviceaccounts:shop", Some(account), 403),
        ("system:serviceaccounts:shop", Some("bob"), 200),
    ] {
        let rule = Rule { user_groups: texts(&[group]), ..rule(&["*"], &["*"]) };
        fixture.router.set_dispatch(of_cluster("a", vec![deny("not these", rule), pass()]));
        let headers: Vec<_> = user.map(|user| ("impersonate-user", user)).into_iter().collect();
        let answer = fixture.client().send("GET", &own, &headers, "").await;
        assert_eq!(answer.code, code, "{group} {user:?}: {answer:?}");
    }
}

#[tokio::test]
async fn users_see_only_objects_that_policies_and_rights_allow() {
    let fixture = anns().await;
    let (ann, root) = (fixture.user("ann", &[]), fixture.user("root", &[]));
    let all = "/api/v1/configmaps";
    let before = items(&ann.get(all).await.ok());
    assert!(before.iter().any(|item| item.starts_with("a/")) && before.iter().any(|item| item.starts_with("b/")));
    let denied = Rule { users: texts(&["ann"]), ..rule(&["list", "watch"], &["configmaps"]) };
    let list = ann.get(all).await.ok();
    let mut of_ann = ann.watch(&format!("{all}?watch=1&resourceVersion={}", version(&list))).await;
    let list = root.get(all).await.ok();
    let mut of_root = root.watch(&format!("{all}?watch=1&resourceVersion={}", version(&list))).await;
    fixture.router.set_dispatch(of_cluster("a", vec![deny("not ann", denied.clone()), pass()]));
    ends_with(&mut of_ann, 410).await;
    of_root.nothing().await;
    let shown = ann.get(all).await;
    let expected: Vec<_> = before.iter().filter(|item| !item.starts_with("a/")).cloned().collect();
    assert_eq!(items(&shown.ok()), expected);
    let said = "the dispatch policies of some clusters refuse this request; the answer omits the objects of these \
                clusters";
    assert!(shown.warnings().iter().any(|warning| warning.contains(said)), "{:?}", shown.warnings());
    // The watch stays open, because it contains only the remaining clusters.
    let mut of_ann = ann.watch(&format!("{all}?watch=1&resourceVersion={}", version(&shown.json()))).await;
    of_ann.nothing().await;
    crate::harness::pass(Duration::from_secs(31)).await;
    of_ann.nothing().await;
    fixture.router.set_dispatch(DispatchSettings::default());
    assert_eq!(timeout(SOON, of_ann.next()).await.expect("an end"), None);
    // If the policies of all clusters deny a request, the response contains a message from a cluster that the user may
    // know.
    let DispatchSettings { mut clusters, merged, .. } = of_cluster("a", vec![deny("not ann", denied.clone()), pass()]);
    clusters.extend(of_cluster("b", vec![deny("not ann", denied.clone()), pass()]).clusters);
    fixture.router.set_dispatch(DispatchSettings { merged, clusters, ..DispatchSettings::default() });
    let message = ann.get(all).await.refused(403);
    assert_eq!(message, "not ann (UpstreamCluster \"a\": spec.dispatchPolicies[0].rules[0] denies this request)");
    // Ann may not know that cluster `c` exists, so no response may contain its policy's message.
    let everybody = Rule { users: Vec::new(), ..denied };
    fixture.router.set_dispatch(of_cluster("c", vec![deny("nobody", everybody), pass()]));
    assert_eq!(items(&ann.get(all).await.ok()), before);
    let events = ann.get(&format!("{all}?labelSelector=tributary.dev%2Fcluster%3Dc")).await;
    assert!(!events.refused(403).contains("nobody"), "{events:?}");
}

/// If a policy denies the request, the response must not reveal the cluster, even if the user also lacks the rights.
#[tokio::test]
async fn refusal_hides_missing_roles_in_a_policy_denied_cluster() {
    let fixture = anns().await;
    let (bob, all) = (fixture.user("bob", &[]), "/api/v1/configmaps");
    let merger = ("ClusterRole", "acme-merger-reader");
    fixture.member("c").apply(binding("", "early", merger, "bob")).unwrap();
    until(async || bob.get(all).await.refused(403).contains("merger")).await;
    fixture.router.set_dispatch(no_config_maps("c"));
    for (method, path) in [("GET", all), ("DELETE", "/api/v1/namespaces/shop/configmaps")] {
        let message = bob.send(method, path, &[], "").await.refused(403);
        assert!(!message.contains("merger"), "{method}: {message}");
    }
}

/// The policies of the merged view determine the audit level of requests to the merged view, and the policies of a
/// cluster that of requests to its path. No policy applies to health checks.
#[tokio::test]
async fn audit_level_is_from_the_policies_of_the_requested_endpoint() {
    let at = |level, rule: Rule| {
        let outcome = Outcome { audit_level: level, ..Outcome::default() };
        Policy { rules: vec![rule], outcome, ..Policy::default() }
    };
    let of_paths = |paths: &[&str]| Rule { verbs: texts(&["*"]), non_resource_urls: texts(paths), ..Rule::default() };
    let merged = vec![
        at(Some(AuditLevel::RequestResponse), rule(&["create"], &["configmaps"])),
        at(None, rule(&["list"], &["pods"])),
        at(Some(AuditLevel::None), of_paths(&["*"])),
    ];
    let of_a =
        vec![at(Some(AuditLevel::Metadata), rule(&["*"], &["*"])), at(Some(AuditLevel::Request), of_paths(&["*"]))];
    let router = Router::new(RouterConfig::default());
    let level = |method: &str, path: &str| {
        let request = http::Request::builder().method(method).uri(path).body(()).unwrap();
        let context = RequestContext::for_user(&User::named("test", "ann"), &request);
        let info = RequestInfo::parse(method, path, None).unwrap();
        router.audit_level(&request.into_parts().0, &info, &context)
    };
    assert_eq!(level("POST", CONFIG_MAPS), None, "there are no policies");
    let mut settings = of_merged(merged);
    settings.clusters = of_cluster("a", of_a).clusters;
    router.set_dispatch(settings);
    for (method, path, expected) in [
        ("POST", CONFIG_MAPS, Some(AuditLevel::RequestResponse)),
        ("GET", CONFIG_MAPS, None),
        ("GET", "/api/v1/pods", None),
        ("GET", "/version", Some(AuditLevel::None)),
        ("POST", "/clusters/a/api/v1/namespaces/default/configmaps", Some(AuditLevel::Metadata)),
        ("GET", "/clusters/a/version", Some(AuditLevel::Request)),
        ("GET", "/clusters/a/healthz", Some(AuditLevel::Request)),
        ("POST", "/clusters/b/api/v1/namespaces/default/configmaps", None),
        ("GET", "/healthz", None),
        ("GET", "/livez/ping", None),
        ("GET", "/readyz", None),
    ] {
        assert_eq!(level(method, path), expected, "{method} {path}");
    }
}

fn of_all_places(policies: Vec<Policy>) -> DispatchSettings {
    DispatchSettings { global: policies, ..DispatchSettings::default() }
}

/// If a global policy denies a request, the router evaluates no other policies.
#[tokio::test]
async fn global_policy_applies_at_each_path_and_is_counted_once() {
    let fixture = fixture(["a", "b"]).await;
    let lists = fixture.client().at_host_of("a");
    let denial = deny("name what you want", rule(&["list"], &["configmaps"]));
    let mut settings = of_all_places(vec![denial]);
    // These policies admit every request, but the global policy denies it first.
    settings.merged.policies = vec![pass()];
    settings.clusters = of_cluster("a", vec![pass()]).clusters;
    fixture.router.set_dispatch(settings);
    let said =
        "name what you want (MergedEndpoint \"all\": spec.globalDispatchPolicies[0].rules[0] denies this request)";
    let denied = |shown: &str| {
        let line =
            "tributary_dispatch_policy_total{object=\"MergedEndpoint/all\",policy=\"global-0\",decision=\"denied\"} ";
        shown.lines().find_map(|shown| shown.strip_prefix(line)?.parse::<u32>().ok()).unwrap()
    };
    for (number, answer) in [
        fixture.get(CONFIG_MAPS).await,
        fixture.get(&format!("/clusters/a{CONFIG_MAPS}")).await,
        fixture.get(&format!("/clusters/b{CONFIG_MAPS}")).await,
        lists.get(CONFIG_MAPS).await,
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(answer.refused(403), said, "{number}");
    }
    assert_eq!(denied(&fixture.router.metrics().expose()), 4);
    // If the global policy does not match, a request is admitted, even at an endpoint without policies.
    for path in ["", "/clusters/a", "/clusters/b"] {
        let pods = fixture.get(&format!("{path}/api/v1/namespaces/default/pods")).await;
        assert!(pods.code != 403 && pods.code != 500, "{path}: {pods:?}");
    }
    fixture.get(&format!("{CONFIG_MAPS}/of-a")).await.ok();
    fixture.get(&format!("/clusters/a{CONFIG_MAPS}/of-a")).await.ok();
    let shown = fixture.router.metrics().expose();
    assert!(!shown.contains("object=\"MergedEndpoint/all\",policy=\"\",decision=\"unmatched\"} 1"), "{shown}");
    fixture.router.set_dispatch(DispatchSettings::default());
    assert_eq!(names(&fixture).await, ["a/of-a", "b/of-b"]);
    assert!(!fixture.router.metrics().expose().contains("tributary_dispatch_policy_total{"));
}

#[tokio::test]
async fn global_policy_does_not_override_a_denial_of_an_endpoint() {
    let fixture = fixture(["a"]).await;
    let mut settings = of_all_places(vec![pass()]);
    settings.merged.policies = vec![deny("not here", rule(&["list"], &["configmaps"])), pass()];
    settings.clusters = no_config_maps("a").clusters;
    fixture.router.set_dispatch(settings);
    let of_merged = "not here (MergedEndpoint \"all\": spec.dispatchPolicies[0].rules[0] denies this request)";
    assert_eq!(fixture.get(CONFIG_MAPS).await.refused(403), of_merged);
    assert_eq!(fixture.get(&format!("/clusters/a{CONFIG_MAPS}")).await.refused(403), SAID_BY_A);
}

#[tokio::test]
async fn open_watches_end_when_a_global_policy_denies_them() {
    let fixture = fixture(["a", "b"]).await;
    let mut merged = fixture.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    let mut own = fixture.watch(&format!("/clusters/a{CONFIG_MAPS}?watch=1")).await;
    for _ in 0..2 {
        assert_eq!(merged.soon().await["type"], "ADDED");
    }
    assert_eq!(own.soon().await["type"], "ADDED");
    fixture.router.set_dispatch(of_all_places(vec![deny("no pods", rule(&["*"], &["pods"]))]));
    merged.nothing().await;
    let set = Instant::now();
    fixture.router.set_dispatch(of_all_places(vec![deny("no watches", rule(&["watch"], &["*"]))]));
    ends_with(&mut merged, 403).await;
    while timeout(SOON, own.next()).await.expect("an end").is_some() {}
    assert!(set.elapsed() < REFUSED_WITHIN, "{:?}", set.elapsed());
}

#[tokio::test]
async fn global_dispatch_policy_in_audit_mode_only_counts_requests() {
    let fixture = fixture(["a"]).await;
    let audited = Policy { mode: Mode::Audit, ..deny("not yet", rule(&["list"], &["*"])) };
    fixture.router.set_dispatch(of_all_places(vec![audited]));
    for path in [CONFIG_MAPS.to_owned(), format!("/clusters/a{CONFIG_MAPS}")] {
        fixture.get(&path).await.ok();
    }
    let shown = fixture.router.metrics().expose();
    assert!(shown.contains("policy=\"global-0\",decision=\"audited\"} 2"), "{shown}");
}
