//! Tests of the shared mode: the router detects whether a member authorizes only by roles and bindings.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tributary_apimachinery::{ClusterName, RequestInfo, Status, UserInfo};
use tributary_authorization::{Attributes, CompiledRule, Fleet, RbacKind, RbacObject, ResourceAttributes};
use tributary_router::report::{ClusterReport, RightsDecider};
use tributary_router::{ClusterAuthorization, ClusterSetup};
use tributary_simulator::{Authorizer, OWN_USER, SimulatedCluster};

use crate::access::rights::{RBAC, ann, binding, role};
use crate::harness::{Fixture, items, pass, setup, until};
use crate::membership::members::{acting, resource_attributes};

/// The authorizers that a simulated member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Rbac,
    /// A list of users who may do everything, without roles.
    Abac(&'static [&'static str]),
    /// An authorizer that allows every request, without roles.
    AlwaysAllow,
    /// Roles and bindings, and a second authorizer that allows every request.
    AlwaysAllowBesideRbac,
    /// Roles and bindings, and a webhook that denies all requests of a user in a namespace.
    Webhook(&'static str, &'static str),
    /// Roles and bindings, and a webhook that denies all requests of a user in an API version.
    WebhookOfVersion(&'static str, &'static str),
    /// Roles and bindings, and a webhook that the member hides: the status of a SelfSubjectRulesReview does not say
    /// that it is incomplete.
    HiddenWebhook(&'static str, &'static str),
    /// Only roles and bindings. The member refuses SubjectAccessReviews.
    WithoutReviews,
}

pub(crate) struct Chain {
    fleet: Mutex<Fleet>,
    mode: Mutex<Mode>,
    /// The received reviews as texts with user, verb, namespace and name.
    reviewed: Mutex<Vec<String>>,
}

impl Chain {
    /// Makes a member authorize by this mode.
    pub(crate) fn of(member: &SimulatedCluster, mode: Mode) -> Arc<Self> {
        let chain = Self { fleet: Mutex::default(), mode: Mutex::new(mode), reviewed: Mutex::default() };
        chain.learn(member);
        let chain = Arc::new(chain);
        member.control().authorize(Some(Arc::clone(&chain) as Arc<dyn Authorizer>));
        chain
    }

    /// Reads the member's roles and bindings. Later decisions use this copy.
    pub(crate) fn learn(&self, member: &SimulatedCluster) {
        let all = RbacKind::ALL.into_iter().flat_map(|kind| {
            let objects = member.list(&format!("{}.{RBAC}", kind.resource()));
            objects.into_iter().map(move |value| RbacObject::parse(kind, value.to_string().as_bytes()).unwrap())
        });
        self.fleet.lock().replace(&here(), all.collect::<Vec<_>>());
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock() = mode;
    }

    /// Removes and returns the recorded reviews.
    pub(crate) fn reviewed(&self) -> Vec<String> {
        std::mem::take(&mut *self.reviewed.lock())
    }

    pub(crate) fn judge(&self, user: &UserInfo, asked: &Attributes<'_>) -> bool {
        let by_roles = || self.fleet.lock().allows(&here(), user, asked);
        let Attributes::Resource(attributes) = asked else { return true };
        match *self.mode.lock() {
            Mode::Rbac | Mode::WithoutReviews => by_roles(),
            Mode::Abac(users) => users.contains(&&*user.username) || user.username == OWN_USER,
            Mode::AlwaysAllow | Mode::AlwaysAllowBesideRbac => true,
            Mode::Webhook(name, namespace) | Mode::HiddenWebhook(name, namespace) => {
                (name, namespace) != (&*user.username, attributes.namespace) && by_roles()
            }
            Mode::WebhookOfVersion(name, version) => {
                (name, version) != (&*user.username, attributes.version) && by_roles()
            }
        }
    }
}

/// Returns the name of the member in its own [`Fleet`].
fn here() -> ClusterName {
    ClusterName::new("here").unwrap()
}

fn own_groups() -> Vec<String> {
    vec!["system:authenticated".to_owned()]
}

fn listed(rule: &CompiledRule) -> Value {
    let words = |words: &mut dyn Iterator<Item = &str>| words.map(Value::from).collect::<Vec<_>>();
    json!({"verbs": words(&mut rule.verbs()), "apiGroups": words(&mut rule.api_groups()),
        "resources": words(&mut rule.resources()), "resourceNames": words(&mut rule.resource_names())})
}

impl Authorizer for Chain {
    fn refusal(&self, headers: &HeaderMap, method: &Method, target: &str) -> Option<Status> {
        let (name, groups) = acting(headers)?;
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        let info = RequestInfo::parse(method.as_str(), path, query).unwrap();
        let allowed = self.judge(&UserInfo::with_groups(&name, &groups), &Attributes::from_request(&info));
        let resource = info.resource()?;
        let cause = format!("User {name:?} cannot do this");
        (!allowed && !path.contains("/selfsubject"))
            .then(|| Status::forbidden(Some(&resource.resource), resource.name.as_deref().unwrap_or_default(), &cause))
    }

    fn allows(&self, headers: &HeaderMap, asked: &Value) -> bool {
        let (name, groups) = acting(headers).unwrap_or_else(|| (OWN_USER.to_owned(), own_groups()));
        self.judge(&UserInfo::with_groups(&name, &groups), &Attributes::Resource(resource_attributes(asked)))
    }

    fn rules(&self, headers: &HeaderMap, namespace: &str) -> Option<Value> {
        let (name, groups) = acting(headers).unwrap_or_else(|| (OWN_USER.to_owned(), own_groups()));
        let (fleet, user) = (self.fleet.lock(), UserInfo::with_groups(&name, &groups));
        let by_roles = || fleet.rules(&here(), &user, namespace).into_iter().map(listed);
        let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        let mode = *self.mode.lock();
        let rules: Vec<Value> = match mode {
            Mode::Abac(_) | Mode::AlwaysAllow => vec![all],
            Mode::AlwaysAllowBesideRbac => by_roles().chain([all]).collect(),
            _ => by_roles().collect(),
        };
        let incomplete = matches!(mode, Mode::Webhook(..) | Mode::WebhookOfVersion(..));
        Some(json!({"resourceRules": rules, "nonResourceRules": [], "incomplete": incomplete}))
    }

    fn reviewed(&self, spec: &Value) -> Option<bool> {
        let groups: Vec<String> = serde_json::from_value(spec["groups"].clone()).unwrap_or_default();
        let name = spec["user"].as_str().unwrap_or_default();
        let asked = resource_attributes(&spec["resourceAttributes"]);
        let ResourceAttributes { verb, resource, namespace, name: of, .. } = asked;
        let (uid, extra) = (spec["uid"].as_str().unwrap_or_default(), &spec["extra"]);
        let told = if uid.is_empty() && extra.is_null() { String::new() } else { format!(" ({uid} {extra})") };
        self.reviewed.lock().push(format!("{name}{told} {verb} {resource} {namespace}/{of}"));
        let may_ask = *self.mode.lock() != Mode::WithoutReviews;
        may_ask.then(|| self.judge(&UserInfo::with_groups(name, &groups), &Attributes::Resource(asked)))
    }
}

/// Grants Tributary's own account its rights by a role, as docs/shared-mode.md describes.
pub(crate) fn our_own_rights(member: &SimulatedCluster) {
    let verbs: &[&str] = &["create", "get", "impersonate", "list", "watch"];
    member.apply(role("", "tributary", [verbs, &["*"], &["*"], &[]])).unwrap();
    member.apply(binding("", "tributary", ("ClusterRole", "tributary"), OWN_USER)).unwrap();
}

/// Starts the members of [`ann`] with these modes, which the router has to detect.
pub(crate) async fn found_out(modes: [Mode; 3]) -> (Fixture, Vec<Arc<Chain>>) {
    let fixture = ann().await;
    let mut chains = Vec::new();
    let mut setups = Vec::new();
    for (member, mode) in fixture.members.iter().zip(modes) {
        our_own_rights(member);
        chains.push(Chain::of(member, mode));
        let own = setup(member, member.name()).await;
        setups.push(ClusterSetup { authorization: ClusterAuthorization::Auto, ..own });
    }
    fixture.router.set_clusters(setups);
    for chain in &chains {
        until(async || !chain.reviewed.lock().is_empty()).await;
    }
    (fixture, chains)
}

pub(crate) async fn report(fixture: &Fixture, cluster: &str) -> ClusterReport {
    let report = fixture.router.report().await;
    report.clusters.into_iter().find(|own| own.name == cluster).unwrap()
}

/// Waits until the router has detected how a cluster authorizes. Returns the reason that the report shows.
pub(crate) async fn decided(fixture: &Fixture, cluster: &str, expected: RightsDecider) -> String {
    until(async || report(fixture, cluster).await.rights_decider == Some(expected)).await;
    report(fixture, cluster).await.rights_reason.unwrap_or_default()
}

#[tokio::test]
async fn member_with_only_rbac_is_detected_and_gets_sample_reviews() {
    let (fixture, chains) = found_out([Mode::Rbac, Mode::Rbac, Mode::Rbac]).await;
    // In this time the router checks the members again, because their connections are new.
    pass(Duration::from_secs(20)).await;
    for (member, chain) in fixture.members.iter().zip(&chains) {
        assert_eq!(decided(&fixture, member.name(), RightsDecider::Rbac).await, "");
        let reviewed = chain.reviewed();
        assert!(reviewed.iter().any(|line| line.starts_with("root ") && line.contains(" configmaps ")), "{reviewed:?}");
        // The router computes rights from the roles, so reads cause no reviews.
        assert_eq!(items(&fixture.user("ann", &[]).get("/api/v1/configmaps").await.ok()).len(), 6);
        assert_eq!(chain.reviewed(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn member_with_a_non_rbac_authorizer_is_detected() {
    for (mode, why) in [
        (Mode::Abac(&["bob"]), "the cluster's SelfSubjectRulesReview lacks rules of its RBAC objects"),
        (Mode::AlwaysAllow, "the cluster's SelfSubjectRulesReview lacks rules of its RBAC objects"),
        (Mode::AlwaysAllowBesideRbac, "the cluster's SelfSubjectRulesReview has rules that its RBAC objects lack"),
        (Mode::Webhook("ann", "shop"), "the cluster cannot list all rules"),
        (
            Mode::HiddenWebhook("root", ""),
            "the cluster denies a request that its roles and bindings allow: user \"root\" get configmaps",
        ),
        (
            Mode::WithoutReviews,
            "the cluster answers subjectaccessreviews with 403: Tributary's account needs the verb create on them",
        ),
    ] {
        let (fixture, _chains) = found_out([Mode::Rbac, mode, Mode::Rbac]).await;
        assert_eq!(decided(&fixture, "b", RightsDecider::Review).await, why, "{mode:?}");
        decided(&fixture, "a", RightsDecider::Rbac).await;
    }
}

/// A kube-apiserver may reload its authorizers while it runs, without closing a connection.
#[tokio::test]
async fn added_webhook_authorizer_is_detected_within_a_minute() {
    let (fixture, chains) = found_out([Mode::Rbac, Mode::Rbac, Mode::Rbac]).await;
    decided(&fixture, "b", RightsDecider::Rbac).await;
    chains[1].set(Mode::Webhook("ann", "shop"));
    pass(Duration::from_secs(61)).await;
    decided(&fixture, "b", RightsDecider::Review).await;
    decided(&fixture, "a", RightsDecider::Rbac).await;
    chains[1].set(Mode::Rbac);
    pass(Duration::from_secs(61)).await;
    decided(&fixture, "b", RightsDecider::Rbac).await;
}

/// Twenty samples cover only a part of more than a hundred bindings, so a sample does not always contain the user that
/// a webhook denies.
#[tokio::test]
async fn webhook_authorizer_that_denies_one_of_many_users_stays_detected() {
    let (fixture, chains) = found_out([Mode::Rbac, Mode::Rbac, Mode::Rbac]).await;
    let (b, chain) = (fixture.member("b"), &chains[1]);
    for number in 0..100 {
        b.apply(binding("", &format!("u{number}-reads"), ("ClusterRole", "reader"), &format!("u{number}"))).unwrap();
    }
    chain.learn(b);
    decided(&fixture, "b", RightsDecider::Rbac).await;
    chain.set(Mode::HiddenWebhook("u50", ""));
    let is_asked = async || report(&fixture, "b").await.rights_decider == Some(RightsDecider::Review);
    for _ in 0..12 {
        pass(Duration::from_secs(61)).await;
        if is_asked().await {
            break;
        }
    }
    let why = decided(&fixture, "b", RightsDecider::Review).await;
    assert!(why.contains("the cluster denies a request that its roles and bindings allow: user \"u50\""), "{why}");
    // The router also sends samples for other users, whose results match the roles. It must still send reviews.
    for _ in 0..3 {
        pass(Duration::from_secs(61)).await;
        assert!(is_asked().await);
    }
    chain.set(Mode::Rbac);
    pass(Duration::from_secs(61)).await;
    decided(&fixture, "b", RightsDecider::Rbac).await;
}

/// A new connection may reach another kube-apiserver with another authorizer.
#[tokio::test]
async fn authorizer_is_detected_again_after_a_new_connection() {
    let (fixture, chains) = found_out([Mode::Rbac, Mode::Rbac, Mode::Rbac]).await;
    decided(&fixture, "b", RightsDecider::Rbac).await;
    chains[1].set(Mode::Webhook("ann", "shop"));
    fixture.member("b").control().disconnect();
    pass(Duration::from_secs(11)).await;
    decided(&fixture, "b", RightsDecider::Review).await;
}
