//! Dispatch policies of the request's entry point. The policies may refuse the request, and choose its flow-control
//! schema.

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, header};
use tokio::time::Instant;
use tributary_answers::negotiate::Preferences;
use tributary_answers::refusal::{Refusal, listed};
use tributary_answers::warnings::warning_header;
use tributary_apimachinery::MountTarget;
use tributary_fleet::metrics::Decision;
use tributary_sharing::body::Body;

use super::staged_request::StagedRequest;
use crate::caller::Caller;
use crate::dispatch::{Dispatched, SchemaName};
use crate::request_context::RequestArrival;
use crate::{Router, health, response};

/// Applies the policies, and sets the schema of the request. Without policies, only a request that is or may become
/// long-running needs a decision, because policies that are added later may refuse it.
///
/// # Errors
/// 403, 429 and 500 with the name of the policy; 400 for an impersonated user that is not valid text.
pub(crate) fn apply_policies(
    request: &mut StagedRequest<'_>,
    headers: &HeaderMap,
    caller: &mut Caller,
) -> Result<(), Refusal> {
    let (info, configuration) = (request.received.info, request.configuration);
    let is_followed = configuration.dispatch.is_some() || request.received.may_switch || info.class().is_long_running();
    // Policies do not refuse health checks.
    if is_followed && !health::is_check(info) {
        let user_agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let (sender, dispatch) = (caller.sender(request.user, info)?, configuration.dispatch.clone());
        let may_act = || caller.rights().and_then(|rights| rights.is_impersonation_allowed(info));
        let (gate, trace) = (request.router.dispatch(), caller.trace.as_ref());
        caller.dispatched = Some(Dispatched::pass(gate, dispatch, info, (sender, user_agent), &may_act, trace)?);
    }
    let named = caller.dispatched.as_ref().map_or(&SchemaName::Undecided, |dispatched| dispatched.schema());
    request.schema = configuration.flow_control.schema_of(info, named);
    Ok(())
}

/// Sets the answer's Warning about clusters whose policies refuse the request.
pub(crate) fn record_denied_clusters(request: &mut StagedRequest<'_>, caller: &Caller) {
    request.warning = denied_warning(caller).map(Box::new);
}

/// Returns the Warning about clusters whose policies refuse a request. In shared mode the Warning names no cluster,
/// because a user may not know every cluster.
fn denied_warning(caller: &Caller) -> Option<HeaderValue> {
    let denied = caller.denied_clusters()?;
    let whose = match caller.rights() {
        Some(_) => "some clusters".to_owned(),
        None => listed(&denied.names().collect::<Vec<_>>()),
    };
    warning_header(&format!(
        "the dispatch policies of {whose} refuse this request; the answer omits the objects of these clusters"
    ))
}

impl Router {
    /// Answers a request for a cluster with `dispatch: DenyAll`, before authentication. `None` for other requests.
    /// Costs one atomic load if there are no policies.
    pub fn refuse_frozen(&self, head: &Parts, arrival: &RequestArrival) -> Option<Response<Body>> {
        let started = Instant::now();
        let dispatch = self.dispatch.current()?;
        let MountTarget::Cluster(cluster) = arrival.mount.resolve(head.uri.path()).ok()?.target else { return None };
        let refusal = Refusal::from(dispatch.frozen(&cluster)?);
        let preferences = Preferences::from_headers(&head.headers, head.uri.query());
        let answer = response::status(&refusal.status(), preferences.error_form());
        arrival.trace.record_decision(Decision::Denied);
        self.count_frozen(head, &arrival.reading, answer.status(), started);
        Some(answer)
    }
}
