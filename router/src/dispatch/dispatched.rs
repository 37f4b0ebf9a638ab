//! Decision of the dispatch policies for one request, which later checks and long-running requests need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;
use tributary_answers::refusal::{PolicyRefusal, Refusal};
use tributary_apimachinery::{ClusterName, RequestInfo, RequestedResource};
use tributary_authentication::UserInfo;
use tributary_authorization::ResourceAttributes;
use tributary_policy::{Action, DispatchAttributes, DispatchTarget, Outcome, PolicyList, dispatched_verb};
use tributary_proxy::EndpointSubset;

use super::entry_points::{Dispatch, DispatchGate};
use super::sender::{PolicyInput, PolicySender};
use crate::request_trace::RequestTrace;

/// A request in the form that policies match, and the decision of the policies.
#[derive(Debug)]
pub(crate) struct Dispatched {
    gate: Arc<DispatchGate>,
    /// Policies at the request's arrival. The decision uses these policies for all parts of the request.
    dispatch: Option<Arc<Dispatch>>,
    sender: PolicySender,
    user_agent: String,
    info: RequestInfo,
    schema: SchemaName,
    /// Clusters that refuse the request; set only for a request for a resource of the merged view.
    denied: OnceLock<DeniedClusters>,
}

/// Flow-control schema that the policies choose for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SchemaName {
    /// No policy decides about the schema, for example because there are no policies. The schema of all requests
    /// applies.
    Undecided,
    None,
    /// Name of a schema of the request's entry point (the merged view or a cluster).
    Named(Box<str>),
    /// Name of a schema of the MergedEndpoint, which a global policy has chosen.
    Global(Box<str>),
}

impl SchemaName {
    fn from_outcome(outcome: Option<&Outcome>) -> Self {
        match outcome.map(|outcome| &outcome.action) {
            None => Self::Undecided,
            Some(Action::Dispatch { flow_control_schema: Some(name), .. }) => Self::Named(name.as_str().into()),
            Some(Action::Dispatch { .. } | Action::Deny { .. }) => Self::None,
        }
    }

    /// Combines this choice with the outcome of the next list of policies. A schema that a global policy chooses
    /// replaces the schema of the entry point, so that a request passes a single schema.
    fn with_outcome(self, list: PolicyList, outcome: Option<&Outcome>) -> Self {
        match (list, self, Self::from_outcome(outcome)) {
            (PolicyList::Global, _, Self::Named(name)) => Self::Global(name),
            (PolicyList::Global, schema, _) | (PolicyList::Dispatch, schema @ Self::Global(_), _) => schema,
            (PolicyList::Dispatch, _, own) => own,
        }
    }
}

/// Clusters whose policies refuse a request to the merged view. The answer treats these clusters as if they did not
/// exist.
#[derive(Debug, Default)]
pub(crate) struct DeniedClusters {
    refusals: BTreeMap<ClusterName, PolicyRefusal>,
    /// Clusters that serve or may serve the resource, and do not refuse the request.
    others: BTreeSet<ClusterName>,
}

impl DeniedClusters {
    pub(crate) fn has(&self, cluster: &ClusterName) -> bool {
        self.refusals.contains_key(cluster)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &ClusterName> {
        self.refusals.keys()
    }

    /// Returns the clusters that serve or may serve the resource, and do not refuse the request.
    pub(crate) fn allowed_clusters(&self) -> impl Iterator<Item = &ClusterName> {
        self.others.iter()
    }

    pub(crate) fn refusal(&self, is_requested: impl Fn(&ClusterName) -> bool) -> Option<Refusal> {
        let found = self.refusals.iter().find(|(cluster, _)| is_requested(cluster));
        found.map(|(_, refusal)| refusal.clone().into())
    }
}

impl Dispatched {
    /// Applies the global policies, and the policies of the entry point: a cluster or the merged view. `may_act`
    /// returns whether the caller may impersonate the user in the request, or `None` if the right is unknown. The
    /// function calls `may_act` only if a policy depends on its result.
    ///
    /// # Errors
    /// The refusal of a policy, or of a cluster with `dispatch: DenyAll`.
    pub(crate) fn pass(
        gate: &Arc<DispatchGate>,
        dispatch: Option<Arc<Dispatch>>,
        info: &RequestInfo,
        (sender, user_agent): (PolicySender, &str),
        may_act: &dyn Fn() -> Option<bool>,
        trace: Option<&RequestTrace>,
    ) -> Result<Arc<Self>, Refusal> {
        let mut dispatched = Self {
            gate: Arc::clone(gate),
            dispatch,
            sender,
            user_agent: tributary_policy::user_agent(user_agent).to_owned(),
            info: info.clone(),
            schema: SchemaName::Undecided,
            denied: OnceLock::new(),
        };
        let mut schema = SchemaName::Undecided;
        if let Some(dispatch) = &dispatched.dispatch {
            if let Some(frozen) = info.cluster.as_ref().and_then(|cluster| dispatch.frozen(cluster)) {
                return Err(frozen.into());
            }
            for policies in dispatch.entered(info) {
                let outcome = policies.enter(&dispatched.entry_point_input(), may_act, trace)?;
                schema = schema.with_outcome(policies.list(), outcome);
            }
        }
        dispatched.schema = schema;
        Ok(Arc::new(dispatched))
    }

    fn seen_as<'a>(&'a self, user: &'a UserInfo) -> DispatchAttributes<'a> {
        DispatchAttributes::from_request(&self.info, &user.username, &user.groups, &self.user_agent)
    }

    /// Returns the request in the form that the policies of each target cluster match. Omits the counted user, because
    /// these policies choose neither a schema nor a log mode.
    fn policy_input(&self) -> PolicyInput<'_> {
        let PolicySender { acting, authenticated, .. } = &self.sender;
        let authenticated = authenticated.as_ref().map(|user| self.seen_as(user));
        PolicyInput { acting: self.seen_as(acting), authenticated, limited_user: None }
    }

    /// Returns the request in the form that the policies of the entry point match.
    fn entry_point_input(&self) -> PolicyInput<'_> {
        PolicyInput {
            limited_user: self.sender.limited_user.as_ref().map(|user| self.seen_as(user)),
            ..self.policy_input()
        }
    }

    pub(crate) fn schema(&self) -> &SchemaName {
        &self.schema
    }

    /// Applies the policies of the clusters that serve or may serve the resource, for a request to the merged view.
    pub(crate) fn pass_clusters<'a>(
        &self,
        clusters: impl Iterator<Item = &'a ClusterName>,
        trace: Option<&RequestTrace>,
    ) {
        let Some(dispatch) = &self.dispatch else { return };
        let (input, mut denied) = (self.policy_input(), DeniedClusters::default());
        for cluster in clusters {
            let passed = dispatch.cluster(cluster).map(|place| place.pass(&input, trace));
            match passed {
                Some(Err(refusal)) => drop(denied.refusals.insert(cluster.clone(), refusal)),
                _ => drop(denied.others.insert(cluster.clone())),
            }
        }
        // Policies of clusters are applied once for each request, so `denied` is not set yet.
        let _is_first = self.denied.set(denied);
    }

    pub(crate) fn is_of_clusters(&self) -> bool {
        self.denied.get().is_some()
    }

    /// Returns the clusters whose policies refuse the request; `None` if no cluster refuses.
    pub(crate) fn denied_clusters(&self) -> Option<&DeniedClusters> {
        self.denied.get().filter(|denied| !denied.refusals.is_empty())
    }

    /// Returns whether the global policies or a cluster's policies refuse the lookup `asked`. The request depends on
    /// the result of this lookup.
    pub(crate) fn denies_also(&self, cluster: &ClusterName, attributes: &ResourceAttributes<'_>) -> bool {
        let Some(dispatch) = &self.dispatch else { return false };
        let ResourceAttributes { verb, group, resource, subresource, namespace, name, .. } = *attributes;
        let of = RequestedResource { group, resource, subresource, namespace, name };
        let (verb, target) = (dispatched_verb(&of, verb), DispatchTarget::Resource(of));
        let PolicyInput { acting, authenticated, limited_user } = self.policy_input();
        let authenticated = authenticated.map(|own| DispatchAttributes { verb, target: target.clone(), ..own });
        let acting = DispatchAttributes { verb, target, ..acting };
        let input = PolicyInput { acting, authenticated, limited_user };
        dispatch.global().into_iter().chain(dispatch.cluster(cluster)).any(|policies| policies.judge(&input).is_err())
    }

    /// Checks that Tributary may send lookups to a cluster. The request depends on their results.
    ///
    /// # Errors
    /// 429 if the cluster has `dispatch: DenyAll`.
    pub(crate) fn check_not_frozen(&self, cluster: &ClusterName) -> Result<(), Refusal> {
        match self.gate.current().and_then(|dispatch| dispatch.frozen(cluster)) {
            Some(frozen) => Err(frozen.into()),
            None => Ok(()),
        }
    }

    /// Returns the cluster's endpoints that the request may use; `None` for all.
    ///
    /// # Errors
    /// 429 if the cluster has `dispatch: DenyAll`; the refusal of the cluster's policies.
    pub(crate) fn endpoints(&self, cluster: &ClusterName) -> Result<Option<EndpointSubset>, Refusal> {
        self.check_not_frozen(cluster)?;
        let Some(place) = self.dispatch.as_ref().and_then(|dispatch| dispatch.cluster(cluster)) else {
            return Ok(None);
        };
        Ok(place.endpoints(&self.policy_input())?.cloned())
    }

    /// Resolves once the policies refuse the running request in the cluster. Cancellation is safe.
    pub(crate) async fn refused(&self, cluster: &ClusterName) {
        let mut changes = self.gate.changes();
        while self.is_allowed(cluster) {
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn is_allowed(&self, cluster: &ClusterName) -> bool {
        let Some(dispatch) = self.gate.current() else { return true };
        let further = if self.info.cluster.is_none() { dispatch.cluster(cluster) } else { None };
        dispatch.frozen(cluster).is_none()
            && self.is_allowed_at_entry_point(&dispatch)
            && further.is_none_or(|place| place.judge(&self.policy_input()).is_ok())
    }

    /// Returns whether the global policies and the policies of the entry point accept the request.
    fn is_allowed_at_entry_point(&self, dispatch: &Dispatch) -> bool {
        let input = self.entry_point_input();
        dispatch.entered(&self.info).all(|policies| policies.judge(&input).is_ok())
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.gate.changes()
    }

    /// Returns the clusters among `clusters` whose policies now refuse the request. `None` if the global policies or
    /// the policies of the merged view refuse the request.
    pub(crate) fn denying_now<'a>(
        &self,
        clusters: impl Iterator<Item = &'a ClusterName>,
    ) -> Option<BTreeSet<ClusterName>> {
        let Some(dispatch) = self.gate.current() else { return Some(BTreeSet::new()) };
        if !self.is_allowed_at_entry_point(&dispatch) {
            return None;
        }
        let input = self.policy_input();
        let denies = |cluster: &&ClusterName| dispatch.cluster(cluster).is_some_and(|own| own.judge(&input).is_err());
        Some(clusters.filter(denies).cloned().collect())
    }
}
