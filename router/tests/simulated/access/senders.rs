//! Tests of the shared mode: which of a request's two identities (the sender or the impersonated user) decides about
//! the schema, the access log entry and the denial.

use http::Request;
use tributary_apimachinery::{ClusterName, body};
use tributary_authentication::Authority;
use tributary_flow_control::{Limited, MaxRequestsInflight, SCHEMA_HEADER, Schema, SchemaKind};
use tributary_policy::{Action, LogMode, Outcome, Policy, Rule};
use tributary_router::report::RightsDecider;
use tributary_router::{
    ClusterAuthorization, ClusterSetup, DispatchSettings, EntryPointPolicies, EntryPointSchemas, FlowSettings,
    RequestContext, RequestTrace, SharedMode,
};

use crate::access::rights::{RBAC, binding, listed, role};
use crate::access::rights_detected::{Chain, Mode, decided, our_own_rights};
use crate::harness::{CONFIG_MAPS, Client, Fixture, allow, setup, until};
use crate::membership::members::Rbac;

const OPS: (&str, &str) = ("impersonate-user", "ops-x");
const ROOT: (&str, &str) = ("impersonate-user", "root");

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Returns a policy for the requests of these users. An empty list means all users.
fn of(users: &[&str], action: Action, log_mode: Option<LogMode>) -> Policy {
    let all = || texts(&["*"]);
    let users = texts(users);
    let rule =
        Rule { verbs: all(), api_groups: all(), resources: all(), non_resource_urls: all(), users, ..Rule::default() };
    Policy { rules: vec![rule], outcome: Outcome { action, log_mode, ..Outcome::default() }, ..Policy::default() }
}

fn passing(users: &[&str], schema: &str, log_mode: Option<LogMode>) -> Policy {
    let action = Action::Dispatch { endpoints: Vec::new(), flow_control_schema: Some(schema.to_owned()) };
    of(users, action, log_mode)
}

fn denying(users: &[&str]) -> Policy {
    of(users, Action::Deny { message: "not you".to_owned() }, None)
}

/// Returns policies. The requests of users `ops-*` use the schema `ops` and are not in the access log. All other
/// requests use the schema `tenants`.
fn ops_and_tenants() -> Vec<Policy> {
    vec![passing(&["ops-*"], "ops", Some(LogMode::Disabled)), passing(&[], "tenants", Some(LogMode::Enabled))]
}

/// Starts members `a` and `b` with these policies, for the merged view and for the path of `a`. Each pair in
/// `be_anybody` is a user and the member in which this user may impersonate all users. `root` may do everything.
async fn fixture(be_anybody: &[(&str, &str)], policies: Vec<Policy>) -> Fixture {
    let fixture = Fixture::shared(["a", "b"], allow(), SharedMode::default()).await;
    for member in &fixture.members {
        member.apply(role("", "be-anybody", [&["impersonate"], &[""], &["users"], &[]])).unwrap();
        member.apply(role("", "all", [&["*"], &["*"], &["*"], &[]])).unwrap();
        member.apply(binding("", "root-all", ("ClusterRole", "all"), "root")).unwrap();
    }
    for (user, member) in be_anybody {
        let name = format!("{user}-is-anybody");
        fixture.member(member).apply(binding("", &name, ("ClusterRole", "be-anybody"), user)).unwrap();
    }
    for member in &fixture.members {
        Rbac::judge(member);
        listed(&fixture, member.name(), "root", "all").await;
    }
    set(&fixture, policies);
    fixture
}

fn set(fixture: &Fixture, policies: Vec<Policy>) {
    let limit = MaxRequestsInflight { max: 1_000, count_long_running: false };
    let kind = SchemaKind::MaxRequestsInflight(Limited { limit, by: Vec::new(), queueing: None });
    let schemas = ["ops", "tenants"].map(|name| Schema { name: name.into(), kind: kind.clone() }).into();
    let place = EntryPointSchemas { schemas, all: None };
    let a = ClusterName::new("a").unwrap();
    let clusters = [(a.clone(), place.clone())].into();
    fixture.router.set_flow_control(FlowSettings { merged: place, clusters }).unwrap();
    let place = EntryPointPolicies { policies, denies_all: false };
    let clusters = [(a, place.clone())].into();
    fixture.router.set_dispatch(DispatchSettings { merged: place, clusters, ..DispatchSettings::default() });
}

/// Returns the status code, and the schema and log mode that the policies chose for the request.
async fn sent(client: &Client, place: &str, headers: &[(&str, &str)]) -> (u16, String, Option<LogMode>) {
    let trace = RequestTrace::default();
    let mut request = Request::get(format!("{place}{CONFIG_MAPS}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body::empty()).unwrap();
    let mut context = RequestContext::for_user(&client.user, &request);
    context.arrival.trace = trace.clone();
    let answer = client.router.handle(request, &context).await.response;
    let schema = answer.headers().get(SCHEMA_HEADER).map(|schema| schema.to_str().unwrap().to_owned());
    (answer.status().as_u16(), schema.unwrap_or_default(), trace.log_mode())
}

fn passed(code: u16, schema: &str) -> (u16, String, Option<LogMode>) {
    let log_mode = if schema == "ops" { LogMode::Disabled } else { LogMode::Enabled };
    (code, schema.to_owned(), Some(log_mode))
}

/// The router selects the policy for flow control and the access log before it checks rights. An attempt to impersonate
/// a user, without the right to do so, must not select this user's policy.
#[tokio::test]
async fn policy_is_selected_by_the_real_user_if_impersonation_is_forbidden() {
    let fixture = fixture(&[("dash", "a"), ("dash", "b"), ("half", "a")], ops_and_tenants()).await;
    let [eve, dash, half, ops] = ["eve", "dash", "half", "ops-y"].map(|name| fixture.user(name, &[]));
    // A dashboard impersonates its users, so their limits apply.
    until(async || sent(&dash, "", &[OPS]).await == passed(403, "ops")).await;
    for place in ["", "/clusters/a"] {
        assert_eq!(sent(&eve, place, &[OPS]).await, passed(403, "tenants"), "{place}");
        assert_eq!(sent(&eve, place, &[]).await, passed(403, "tenants"), "{place}");
        assert_eq!(sent(&ops, place, &[]).await, passed(403, "ops"), "{place}");
        assert_eq!(sent(&dash, place, &[OPS]).await, passed(403, "ops"), "{place}");
        assert_eq!(sent(&dash, place, &[ROOT]).await, passed(200, "tenants"), "{place}");
        // The request of an ops user still uses the schema `ops` if the user tries a forbidden impersonation.
        assert_eq!(sent(&ops, place, &[("impersonate-user", "eve")]).await, passed(403, "ops"), "{place}");
    }
    // The user `half` may impersonate any user, but only in member `a`. So the impersonated user's schema applies to
    // the path of `a`, but not to the merged view.
    until(async || sent(&half, "/clusters/a", &[OPS]).await == passed(403, "ops")).await;
    assert_eq!(sent(&half, "", &[OPS]).await, passed(403, "tenants"));
    // The loss of the right takes effect immediately.
    fixture.member("b").delete(&format!("clusterrolebindings.{RBAC}"), "", "dash-is-anybody").unwrap();
    until(async || sent(&dash, "", &[OPS]).await == passed(403, "tenants")).await;
    assert_eq!(sent(&dash, "/clusters/a", &[OPS]).await, passed(403, "ops"));
}

/// In a cluster that authorizes by reviews, the request itself causes the review of the right to impersonate. Until the
/// review is complete, the impersonated name selects no policy.
#[tokio::test]
async fn policy_is_selected_by_the_real_user_until_impersonation_is_reviewed() {
    let policies = vec![passing(&["ops-*"], "ops", Some(LogMode::Disabled))];
    let fixture = fixture(&[("dash", "a"), ("dash", "b")], policies).await;
    let mut setups = Vec::new();
    for member in &fixture.members {
        our_own_rights(member);
        Chain::of(member, Mode::Webhook("nobody", "shop"));
        let own = setup(member, member.name()).await;
        setups.push(ClusterSetup { authorization: ClusterAuthorization::Review, ..own });
    }
    fixture.router.set_clusters(setups);
    for member in ["a", "b"] {
        decided(&fixture, member, RightsDecider::Review).await;
    }
    let [eve, dash] = ["eve", "dash"].map(|name| fixture.user(name, &[]));
    for (place, number) in ["", "/clusters/a"].into_iter().flat_map(|place| (0..10).map(move |number| (place, number)))
    {
        let name = format!("ops-{number}{}", place.len());
        let answer = sent(&eve, place, &[("impersonate-user", &name)]).await;
        // No policy matches Eve, and no review has allowed her to impersonate this user.
        assert_eq!(answer, (403, String::new(), None), "{place} {name}");
    }
    // After the review, the policy of the impersonated user applies, because the caller has the right to impersonate
    // this user.
    for place in ["", "/clusters/a"] {
        until(async || sent(&dash, place, &[OPS]).await == passed(403, "ops")).await;
    }
}

/// A member answers a TokenReview with any user name and any groups. These names must not select policies of other
/// members.
#[tokio::test]
async fn token_review_identity_selects_only_policies_of_its_member() {
    let fixture = fixture(&[], ops_and_tenants()).await;
    let of_a = |name: &str| {
        let groups = ["system:authenticated".to_owned(), "ops".to_owned()];
        fixture.user_of(name, &groups, Authority::Member(ClusterName::new("a").unwrap()))
    };
    let ops = of_a("ops-x");
    assert_eq!(sent(&ops, "", &[]).await, passed(403, "tenants"));
    assert_eq!(sent(&ops, "/clusters/a", &[]).await, passed(403, "ops"), "the limits are that member's");
    assert_eq!(sent(&fixture.user("ops-x", &[]), "", &[]).await, passed(403, "ops"));
    // In the merged view, the name is not valid, so no policy matches and the router answers 500.
    set(&fixture, vec![passing(&["ops-*"], "ops", None)]);
    assert_eq!(sent(&ops, "", &[]).await.0, 500);
    assert_eq!(sent(&ops, "/clusters/a", &[]).await.0, 403);
    // The groups are also from this member's TokenReview, so a policy for a group applies only at this member's path.
    let mut by_group = passing(&[], "ops", None);
    by_group.rules[0].user_groups = texts(&["ops"]);
    set(&fixture, vec![by_group, passing(&[], "tenants", None)]);
    assert_eq!(sent(&ops, "", &[]).await.1, "tenants");
    assert_eq!(sent(&ops, "/clusters/a", &[]).await.1, "ops");
    // Each cluster names its own ServiceAccounts, so a policy of the merged view may match such a name.
    let robot = "system:serviceaccount:ci:robot";
    set(&fixture, vec![passing(&[robot], "ops", None), passing(&[], "tenants", None)]);
    assert_eq!(sent(&of_a(robot), "", &[]).await.1, "ops");
}

/// A policy that denies a user also denies the user's requests with impersonation. A policy that denies the
/// impersonated user also denies the request.
#[tokio::test]
async fn policy_denial_of_a_user_applies_to_impersonating_requests() {
    let fixture = fixture(&[("dash", "a"), ("dash", "b")], ops_and_tenants()).await;
    let [eve, dash] = ["eve", "dash"].map(|name| fixture.user(name, &[]));
    until(async || sent(&dash, "", &[OPS]).await == passed(403, "ops")).await;
    for place in ["", "/clusters/a"] {
        assert_eq!(sent(&dash, place, &[ROOT]).await.0, 200);
        set(&fixture, vec![denying(&["dash"]), passing(&[], "tenants", None)]);
        let refused = dash.send("GET", &format!("{place}{CONFIG_MAPS}"), &[ROOT], "").await.refused(403);
        assert!(refused.starts_with("not you ("), "{refused}");
        set(&fixture, vec![denying(&["root"]), passing(&[], "tenants", None)]);
        let refused = dash.send("GET", &format!("{place}{CONFIG_MAPS}"), &[ROOT], "").await.refused(403);
        assert!(refused.starts_with("not you ("), "{refused}");
        // Only `root` has a policy. The router knows that Dash may impersonate `root`, so the policy applies. Eve may
        // not.
        set(&fixture, vec![passing(&["root"], "tenants", None)]);
        assert_eq!(sent(&dash, place, &[ROOT]).await.0, 200);
        assert_eq!(sent(&eve, place, &[ROOT]).await.0, 500);
        set(&fixture, ops_and_tenants());
    }
    // An open stream of a newly denied user ends, whichever user is impersonated.
    let mut watch = dash.watch_as(&format!("{CONFIG_MAPS}?watch=1"), &[ROOT]).await;
    set(&fixture, vec![denying(&["dash"]), passing(&[], "tenants", None)]);
    loop {
        let event = watch.soon().await;
        if event["type"] == "ERROR" {
            assert_eq!(event["object"]["code"], 403, "{event}");
            break;
        }
    }
}
