//! Dispatch policies in force at each entry point (the merged view and each cluster), and their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tributary_answers::refusal::{PolicyCause, PolicyRefusal};
use tributary_apimachinery::{AuditLevel, ClusterName, RequestInfo};
use tributary_policy::{
    Action, DispatchAttributes, DispatchPolicies, DispatchTarget, Outcome, Policy, PolicyDecision, PolicyList,
    RulePosition, Verdict,
};
use tributary_proxy::EndpointSubset;

use super::sender::PolicyInput;
use crate::request_trace::RequestTrace;

/// Name of the object that contains the policies of the merged view, for messages.
const MERGED_OBJECT: &str = "MergedEndpoint \"all\"";

/// Dispatch policies of all entry points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DispatchSettings {
    /// Global policies: each request passes the global policies once, before the policies of its entry point.
    pub global: Vec<Policy>,
    /// Policies of the merged view.
    pub merged: EntryPointPolicies,
    /// Policies of clusters. A request to the merged view passes the policies of each cluster that gets the request, or
    /// whose objects are in the answer.
    pub clusters: BTreeMap<ClusterName, EntryPointPolicies>,
}

/// Dispatch policies of one entry point: the merged view or a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryPointPolicies {
    /// Policies in order. The first policy that matches a request decides. Without policies every request passes.
    pub policies: Vec<Policy>,
    /// True if the cluster gets no requests (`dispatch: DenyAll`). Answers from memory still contain the cluster's
    /// cached objects.
    pub denies_all: bool,
}

impl DispatchSettings {
    pub(crate) fn frozen(&self) -> BTreeSet<ClusterName> {
        let frozen = self.clusters.iter().filter(|(_, place)| place.denies_all);
        frozen.map(|(name, _)| name.clone()).collect()
    }
}

impl EntryPointPolicies {
    fn says_nothing(&self) -> bool {
        self.policies.is_empty() && !self.denies_all
    }
}

#[derive(Debug)]
pub(crate) struct Dispatch {
    global: Option<CompiledPolicies>,
    merged: Option<CompiledPolicies>,
    clusters: BTreeMap<ClusterName, CompiledPolicies>,
}

#[derive(Debug)]
pub(crate) struct CompiledPolicies {
    /// Name of the object that contains the policies, for example `UpstreamCluster "eu"`.
    object: Arc<str>,
    policies: DispatchPolicies,
    denies_all: bool,
    sets_audit_levels: bool,
    /// Name of the list in the object's spec: `dispatchPolicies` or `globalDispatchPolicies`.
    list: PolicyList,
    counters: Vec<PolicyCounters>,
    /// Endpoints of the cluster that each policy selects, in the order of the policies; `None` for all endpoints.
    subsets: Vec<Option<EndpointSubset>>,
    unmatched: Counter,
}

#[derive(Debug)]
struct PolicyCounters {
    dispatched: Counter,
    denied: Counter,
    audited: Counter,
}

impl Dispatch {
    /// Returns the global policies; `None` if the MergedEndpoint has none.
    pub(crate) fn global(&self) -> Option<&CompiledPolicies> {
        self.global.as_ref()
    }

    pub(crate) fn merged(&self) -> Option<&CompiledPolicies> {
        self.merged.as_ref()
    }

    pub(crate) fn cluster(&self, name: &ClusterName) -> Option<&CompiledPolicies> {
        self.clusters.get(name)
    }

    /// Returns the policies of the request's entry point; `None` without policies.
    pub(crate) fn entry_point_policies(&self, info: &RequestInfo) -> Option<&CompiledPolicies> {
        match &info.cluster {
            Some(cluster) => self.cluster(cluster),
            None => self.merged(),
        }
    }

    /// Returns the policies that a request passes on entry: the global policies, then the policies of the entry point.
    pub(crate) fn entered(&self, info: &RequestInfo) -> impl Iterator<Item = &CompiledPolicies> {
        self.global().into_iter().chain(self.entry_point_policies(info))
    }

    /// Returns the refusal of a cluster with `dispatch: DenyAll`; `None` for other clusters.
    pub(crate) fn frozen(&self, name: &ClusterName) -> Option<PolicyRefusal> {
        let place = self.clusters.get(name).filter(|place| place.denies_all)?;
        Some(PolicyRefusal { object: Arc::clone(&place.object), cause: PolicyCause::Frozen })
    }
}

impl CompiledPolicies {
    fn new(
        object: String,
        list: PolicyList,
        settings: EntryPointPolicies,
        counter_family: &Family<PolicyLabels, Counter>,
    ) -> Self {
        let counter = |policy: String, decision| {
            counter_family.get_or_create(&PolicyLabels { object: label(&object), policy, decision }).clone()
        };
        let counters = (0..settings.policies.len()).map(|policy| PolicyCounters {
            dispatched: counter(policy_label(list, policy), "dispatched"),
            denied: counter(policy_label(list, policy), "denied"),
            audited: counter(policy_label(list, policy), "audited"),
        });
        let (unmatched, compile): (_, fn(Vec<Policy>) -> DispatchPolicies) = match list {
            PolicyList::Dispatch => (counter(String::new(), "unmatched"), DispatchPolicies::new),
            // A request that matches no global policy passes, and Tributary does not count the request.
            PolicyList::Global => (Counter::default(), DispatchPolicies::global),
        };
        Self {
            list,
            counters: counters.collect(),
            subsets: settings.policies.iter().map(subset).collect(),
            unmatched,
            sets_audit_levels: settings.policies.iter().any(|policy| policy.outcome.audit_level.is_some()),
            policies: compile(settings.policies),
            denies_all: settings.denies_all,
            object: object.as_str().into(),
        }
    }

    pub(crate) fn list(&self) -> PolicyList {
        self.list
    }

    pub(crate) fn sets_audit_levels(&self) -> bool {
        self.sets_audit_levels
    }

    /// Returns the audit level of the policy that matches a request; `None` if the policy sets no level.
    pub(crate) fn audit_level(&self, attributes: &DispatchAttributes<'_>) -> Option<AuditLevel> {
        match self.policies.decide(attributes).verdict {
            Verdict::Matched { outcome, .. } => outcome.audit_level,
            Verdict::Ungoverned | Verdict::Unmatched => None,
        }
    }

    /// Returns the outcome for an accepted request; `None` if no policy matches the request. Does not count the
    /// request.
    ///
    /// # Errors
    /// The refusal of the request.
    pub(crate) fn judge(&self, input: &PolicyInput<'_>) -> Result<Option<&Outcome>, PolicyRefusal> {
        self.outcome_of(self.decide(input).verdict, &input.acting)
    }

    /// Returns the cluster's endpoints that the policies select for a request; `None` for all. Does not count the
    /// request, and copies nothing.
    ///
    /// # Errors
    /// As [`judge`](Self::judge).
    pub(crate) fn endpoints(&self, input: &PolicyInput<'_>) -> Result<Option<&EndpointSubset>, PolicyRefusal> {
        let verdict = self.decide(input).verdict;
        self.outcome_of(verdict, &input.acting)?;
        Ok(match verdict {
            Verdict::Matched { place, .. } => self.subsets[place.policy].as_ref(),
            Verdict::Ungoverned | Verdict::Unmatched => None,
        })
    }

    /// Applies the policies to a request at its entry point, increments the counters, and records the decision in the
    /// trace. Returns the outcome for the user that [counts](super::sender) for schema and log mode; `None` without a
    /// matching policy, or if it is unknown which user counts. `may_act` returns whether the authenticated user has the
    /// right to impersonate, or `None` if this is unknown. The function calls `may_act` only if the outcome depends on
    /// its result.
    ///
    /// # Errors
    /// As [`judge`](Self::judge).
    pub(crate) fn enter(
        &self,
        input: &PolicyInput<'_>,
        may_act: &dyn Fn() -> Option<bool>,
        trace: Option<&RequestTrace>,
    ) -> Result<Option<&Outcome>, PolicyRefusal> {
        let (acting, authenticated) = (self.policies.decide(&input.acting), self.of_authenticated(input));
        let choosing = self.choosing_verdict((acting.verdict, authenticated), input.limited_user.as_ref(), may_act);
        if let (Verdict::Matched { outcome, .. }, Some(trace)) = (choosing, trace) {
            trace.record_log_mode(outcome.log_mode);
        }
        let verdict = strictest(acting.verdict, authenticated, choosing);
        self.passed(&PolicyDecision { verdict, ..acting }, &input.acting, trace)?;
        self.outcome_of(choosing, &input.acting)
    }

    /// Applies these policies to a request that came in at another entry point.
    ///
    /// # Errors
    /// As [`judge`](Self::judge).
    pub(crate) fn pass(
        &self,
        input: &PolicyInput<'_>,
        trace: Option<&RequestTrace>,
    ) -> Result<Option<&Outcome>, PolicyRefusal> {
        self.passed(&self.decide(input), &input.acting, trace)
    }

    /// Returns the verdict on a request that has already passed its entry point.
    fn decide(&self, input: &PolicyInput<'_>) -> PolicyDecision<'_> {
        let (acting, authenticated) = (self.policies.decide(&input.acting), self.of_authenticated(input));
        // The entry point has already checked the right to impersonate.
        let choosing = match (authenticated, &input.limited_user) {
            (None, Some(limited_user)) => self.policies.decide(limited_user).verdict,
            _ => acting.verdict,
        };
        PolicyDecision { verdict: strictest(acting.verdict, authenticated, choosing), ..acting }
    }

    fn of_authenticated(&self, input: &PolicyInput<'_>) -> Option<Verdict<'_>> {
        input.authenticated.as_ref().map(|own| self.policies.decide(own).verdict)
    }

    /// Returns the verdict that chooses the schema and the access-log mode. The acting user's verdict decides if the
    /// authenticated user may impersonate; otherwise the counted user's verdict. If the right to impersonate is unknown
    /// and the counted user's verdict is a refusal, the result is `Ungoverned`: the request passes the schema of all
    /// requests, if there is one, and is logged normally.
    fn choosing_verdict<'a>(
        &'a self,
        (acting, authenticated): (Verdict<'a>, Option<Verdict<'a>>),
        limited_user: Option<&DispatchAttributes<'_>>,
        may_act: &dyn Fn() -> Option<bool>,
    ) -> Verdict<'a> {
        let choosing = match (limited_user, authenticated) {
            (None, None) => return acting,
            (None, Some(authenticated)) => authenticated,
            (Some(user), _) => self.policies.decide(user).verdict,
        };
        if authenticated.is_none() || given_by(choosing) == given_by(acting) {
            return choosing;
        }
        match may_act() {
            Some(true) => acting,
            // If this policy refused the request, the right to impersonate would stay unknown, because only the request
            // itself starts a review of the right. But an unproven name must choose no schema, because a client can
            // invent any number of names.
            None if is_refusal(&choosing) => Verdict::Ungoverned,
            Some(false) | None => choosing,
        }
    }

    fn passed<'a>(
        &self,
        decision: &PolicyDecision<'a>,
        attributes: &DispatchAttributes<'_>,
        trace: Option<&RequestTrace>,
    ) -> Result<Option<&'a Outcome>, PolicyRefusal> {
        if let Some(place) = decision.audited {
            self.counters[place.policy].audited.inc();
            self.add_to_trace(trace, Some(place), "matches the request, without effect (mode: Audit)");
        }
        let outcome = self.outcome_of(decision.verdict, attributes);
        match (decision.verdict, &outcome) {
            (Verdict::Ungoverned, _) => {}
            (Verdict::Matched { place, .. }, Ok(_)) => {
                self.counters[place.policy].dispatched.inc();
                self.add_to_trace(trace, Some(place), "applies to the request");
            }
            (Verdict::Matched { place, .. }, Err(_)) => {
                self.counters[place.policy].denied.inc();
                self.add_to_trace(trace, Some(place), "denies the request");
            }
            (Verdict::Unmatched, _) => {
                self.unmatched.inc();
                self.add_to_trace(trace, None, "no rule matches");
            }
        }
        outcome
    }

    fn outcome_of<'a>(
        &self,
        verdict: Verdict<'a>,
        attributes: &DispatchAttributes<'_>,
    ) -> Result<Option<&'a Outcome>, PolicyRefusal> {
        let cause = match verdict {
            Verdict::Ungoverned => return Ok(None),
            Verdict::Matched { place, outcome } => match &outcome.action {
                Action::Dispatch { .. } => return Ok(Some(outcome)),
                Action::Deny { message } => PolicyCause::Denied { place, message: message.clone() },
            },
            Verdict::Unmatched => PolicyCause::Unmatched { request: shown(attributes) },
        };
        Err(PolicyRefusal { object: Arc::clone(&self.object), cause })
    }

    fn add_to_trace(&self, trace: Option<&RequestTrace>, place: Option<RulePosition>, what: &str) {
        let Some(trace) = trace.filter(|trace| trace.needs_policies()) else { return };
        trace.record_policy(match place {
            Some(place) => format!("{}: {place} {what}", self.object),
            None => format!("{}: {what}", self.object),
        });
    }
}

/// Returns the first refusal among three verdicts: on the acting user, on the authenticated user if a policy denies
/// that user, and on the limited user.
fn strictest<'a>(acting: Verdict<'a>, authenticated: Option<Verdict<'a>>, choosing: Verdict<'a>) -> Verdict<'a> {
    let denied = authenticated.filter(|verdict| matches!(verdict, Verdict::Matched { .. }));
    let verdicts = [Some(acting), denied, Some(choosing)];
    verdicts.into_iter().flatten().find(is_refusal).unwrap_or(acting)
}

fn is_refusal(verdict: &Verdict<'_>) -> bool {
    match verdict {
        Verdict::Ungoverned => false,
        Verdict::Matched { outcome, .. } => matches!(outcome.action, Action::Deny { .. }),
        Verdict::Unmatched => true,
    }
}

/// Returns the outcome of the policy that matches the request; `None` without such a policy.
fn given_by(verdict: Verdict<'_>) -> Option<&Outcome> {
    match verdict {
        Verdict::Matched { outcome, .. } => Some(outcome),
        Verdict::Ungoverned | Verdict::Unmatched => None,
    }
}

/// Returns the endpoints that a policy selects; `None` for all.
fn subset(policy: &Policy) -> Option<EndpointSubset> {
    match &policy.outcome.action {
        Action::Dispatch { endpoints, .. } if !endpoints.is_empty() => Some(EndpointSubset::new(endpoints)),
        Action::Dispatch { .. } | Action::Deny { .. } => None,
    }
}

/// Formats the requested action for a message, for example `create pods/exec`.
fn shown(attributes: &DispatchAttributes<'_>) -> String {
    match &attributes.target {
        DispatchTarget::NonResource(path) => format!("{} {path}", attributes.verb),
        DispatchTarget::Resource(of) => {
            let below = if of.subresource.is_empty() { String::new() } else { format!("/{}", of.subresource) };
            let group = if of.group.is_empty() { String::new() } else { format!(".{}", of.group) };
            format!("{} {}{group}{below}", attributes.verb, of.resource)
        }
    }
}

/// Labels of the policy counters. Each configured policy has three time series (dispatched, denied, audited), and each
/// object with policies has one for requests that no policy matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabels {
    object: String,
    /// Text of [`policy_label`]; empty for requests that no policy matches.
    policy: String,
    decision: &'static str,
}

/// Stores the policies in force, and notifies receivers of changes.
#[derive(Debug)]
pub(crate) struct DispatchGate {
    settings: Mutex<DispatchSettings>,
    current: ArcSwapOption<Dispatch>,
    changes: watch::Sender<()>,
    counter_family: Family<PolicyLabels, Counter>,
}

impl Default for DispatchGate {
    fn default() -> Self {
        let (settings, current, counter_family) = (Mutex::default(), ArcSwapOption::empty(), Family::default());
        Self { settings, current, changes: watch::Sender::new(()), counter_family }
    }
}

impl DispatchGate {
    /// Replaces the policies. Counters of unchanged policies continue.
    pub(crate) fn set(&self, settings: DispatchSettings) {
        let mut known = self.settings.lock();
        if *known == settings {
            return;
        }
        let none = EntryPointPolicies::default();
        for (name, before) in &known.clusters {
            let object = cluster_object(name);
            self.forget((&object, PolicyList::Dispatch), before, settings.clusters.get(name).unwrap_or(&none));
        }
        self.forget((MERGED_OBJECT, PolicyList::Dispatch), &known.merged, &settings.merged);
        let of_all = |policies: &Vec<Policy>| EntryPointPolicies { policies: policies.clone(), denies_all: false };
        let global = of_all(&settings.global);
        self.forget((MERGED_OBJECT, PolicyList::Global), &of_all(&known.global), &global);
        let place = |object: String, list: PolicyList, settings: &EntryPointPolicies| {
            (!settings.says_nothing())
                .then(|| CompiledPolicies::new(object, list, settings.clone(), &self.counter_family))
        };
        let global = place(MERGED_OBJECT.to_owned(), PolicyList::Global, &global);
        let merged = place(MERGED_OBJECT.to_owned(), PolicyList::Dispatch, &settings.merged);
        let clusters = settings.clusters.iter().filter_map(|(name, own)| {
            let own = place(cluster_object(name), PolicyList::Dispatch, own)?;
            Some((name.clone(), own))
        });
        let clusters: BTreeMap<_, _> = clusters.collect();
        let is_something = global.is_some() || merged.is_some() || !clusters.is_empty();
        self.current.store(is_something.then(|| Arc::new(Dispatch { global, merged, clusters })));
        *known = settings;
        self.changes.send_replace(());
    }

    pub(crate) fn settings(&self) -> DispatchSettings {
        self.settings.lock().clone()
    }

    fn forget(&self, (object, list): (&str, PolicyList), before: &EntryPointPolicies, now: &EntryPointPolicies) {
        let remove = |policy: String, decision| {
            self.counter_family.remove(&PolicyLabels { object: label(object), policy, decision });
        };
        for policy in now.policies.len()..before.policies.len() {
            let label = policy_label(list, policy);
            ["dispatched", "denied", "audited"].into_iter().for_each(|decision| remove(label.clone(), decision));
        }
        if now.says_nothing() && list == PolicyList::Dispatch {
            remove(String::new(), "unmatched");
        }
    }

    pub(crate) fn current(&self) -> Option<Arc<Dispatch>> {
        self.current.load_full()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let help = "Requests by the dispatch policy that took them, and its decision";
        registry.register("tributary_dispatch_policy", help, self.counter_family.clone());
    }
}

/// Returns the name of an object as a metric label without quotes, which would be escaped: `UpstreamCluster/eu`.
fn label(object: &str) -> String {
    object.replacen(' ', "/", 1).replace('"', "")
}

/// Formats the position of a policy for a metric label: its index in `spec.dispatchPolicies`, or `global-` and its
/// index in `spec.globalDispatchPolicies`.
fn policy_label(list: PolicyList, policy: usize) -> String {
    match list {
        PolicyList::Dispatch => policy.to_string(),
        PolicyList::Global => format!("global-{policy}"),
    }
}

fn cluster_object(name: &ClusterName) -> String {
    format!("UpstreamCluster \"{name}\"")
}
