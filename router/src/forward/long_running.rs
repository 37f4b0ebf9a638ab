//! Streamed requests that may be long-running: watches of a cluster's own view, followed logs, exec, attach,
//! port-forward, and streams of workloads and aggregated servers. Each request ends when its credentials, rights or
//! policies end.
//!
//! ```text
//! the user's rights in the member ─▶ FollowedGrant ─┐
//! the policies, as they change ─▶ Dispatched ────────┤
//! the identity at a foreign door ─▶ Caller ──────────┤
//! the credentials' end, the longest age ─▶ Caller ──┴─▶ Lasting ─┬─ before the member's answer ─▶ a refusal
//!                                                                ├─ during a body ────────────▶ ended_by
//!                                                                └─ during a tunnel ──────────▶ TunnelEnd
//! ```
//!
//! Only Kubernetes' own long-running requests are recognizable by their path. An aggregated server may answer any
//! request with an endless stream, or with a tunnel (`console` and `vnc` of subresources.kubevirt.io). So each answer
//! that is still incomplete after a second is checked as well.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Response, StatusCode, header};
use http_body::Body as _;
use tokio::time::Instant;
use tributary_answers::refusal::{Refusal, RequestRefusal};
use tributary_answers::termination_reason::TerminationReason;
use tributary_apimachinery::{ClusterName, RequestClass, RequestInfo, Verb, or_pending};
use tributary_fleet::topology::Cluster;
use tributary_proxy::{TunnelEnd, TunnelEnder};
use tributary_rights::FollowedGrant;
use tributary_sharing::body::{Body, EarlyEnd, end_early, fail_late};

use super::media_type::content_type;
use crate::caller::{Caller, wait_for_stream_end};
use crate::dispatch::Dispatched;

/// Time after which a request that is not long-running is checked like a long-running one. One second: a lost right has
/// to take effect within two seconds, and nearly all such answers are complete after one.
const FOLLOWED_AFTER: Duration = Duration::from_secs(1);

/// First Kubernetes version that also requires `create` for a WebSocket into a Pod.
const CREATES_FROM: (u64, u64, u64) = (1, 35, 0);

/// A long-running request, and the conditions that end the request.
pub(super) struct LongRunningRequest {
    class: RequestClass,
    /// Resolves when the request has to end.
    termination: BoxFuture<'static, TerminationReason>,
    /// Ends the tunnel of an upgraded request; `None` for a request without an upgrade.
    ender: Option<TunnelEnder>,
}

impl LongRunningRequest {
    /// Starts to observe the conditions that end a request, before the member gets the request. `None` if nothing can
    /// end the request.
    pub(super) fn begin(cluster: &Cluster, caller: &Caller, info: &RequestInfo) -> Option<Self> {
        Some(Self { class: info.class(), termination: termination(caller, cluster, info)?, ender: None })
    }

    /// Starts to observe the conditions that end a request to a server of Karmada: credentials and denied users. `None`
    /// if nothing can end the request.
    pub(super) fn at_karmada(caller: &Caller, info: &RequestInfo) -> Option<Self> {
        Some(Self { class: info.class(), termination: caller.termination()?.boxed(), ender: None })
    }

    pub(super) fn tunnel_end(&mut self) -> TunnelEnd {
        let (end, ender) = TunnelEnd::new();
        self.ender = Some(ender);
        end
    }

    /// Waits for the member's answer. For a long-running request, the wait ends early when the request has to end. For
    /// other requests the function returns the answer, even if the rights have ended meanwhile.
    ///
    /// # Errors
    /// Errors of the answer; 401 and 403 if the request has to end before the answer.
    pub(super) async fn wait_for_answer<T>(
        &mut self,
        answer: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        if !self.class.is_long_running() {
            return answer.await;
        }
        tokio::select! {
            why = &mut self.termination => Err(RequestRefusal::Terminated(why).into()),
            answer = answer => answer,
        }
    }

    /// Returns the answer, whose body or tunnel ends when the request has to end.
    pub(super) fn follow(self, answer: Response<Body>) -> Response<Body> {
        let Self { class, termination, ender } = self;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            if let Some(ender) = ender {
                ender.end_when(termination.map(drop).boxed());
            }
            return answer;
        }
        if answer.body().is_end_stream() {
            return answer;
        }
        if !class.is_long_running() {
            let from = Instant::now() + FOLLOWED_AFTER;
            return answer.map(|body| fail_late(body, from, termination));
        }
        let lines = class == RequestClass::Watch && is_lines(&answer);
        let end = termination.map(|why| EarlyEnd::AtOnce(why.into()));
        answer.map(|body| end_early(body, lines, end.boxed()))
    }
}

/// Resolves when the request has to end; `None` if nothing can end the request.
fn termination(
    caller: &Caller,
    cluster: &Cluster,
    info: &RequestInfo,
) -> Option<BoxFuture<'static, TerminationReason>> {
    let end = caller.stream_end();
    let version = cluster.version().map(|version| version.order());
    let mut grant =
        caller.rights().map(|rights| FollowedGrant::new(rights, cluster.name(), authorized_verbs(info, version), info));
    let (dispatched, identity_change) = (caller.dispatched.clone(), caller.identity_change());
    if end.is_none() && grant.is_none() && dispatched.is_none() && identity_change.is_none() {
        return None;
    }
    let name = cluster.name().clone();
    Some(Box::pin(async move {
        tokio::select! {
            why = wait_for_stream_end(end) => why,
            why = or_pending(grant.as_mut().map(FollowedGrant::lost)) => why,
            why = or_pending(dispatched.map(|dispatched| refused(dispatched, &name))) => why,
            why = or_pending(identity_change) => why,
        }
    }))
}

/// Returns the verbs by which a member authorizes a long-running request. From 1.35 on, kube-apiserver also requires
/// `create` for a WebSocket into a Pod, because a WebSocket begins as a GET. The feature gate
/// `AuthorizePodWebsocketUpgradeCreatePermission` can disable this (`ensureAuthorizedForVerb` in
/// `pkg/registry/core/pod/rest`). A user without `create` could not open the request again, so Tributary ends the
/// request.
fn authorized_verbs(info: &RequestInfo, version: Option<(u64, u64, u64)>) -> impl Iterator<Item = &'static str> {
    let leads_into_pod = info.resource().is_some_and(|request| {
        let is_of_pod = request.resource.group.is_empty() && &*request.resource.resource == "pods";
        is_of_pod && matches!(request.subresource.as_deref(), Some("exec" | "attach" | "portforward"))
    });
    let asks_to_create = version.is_none_or(|version| version >= CREATES_FROM);
    let create = leads_into_pod && info.verb != Verb::Create && asks_to_create;
    std::iter::once(info.verb.as_str()).chain(create.then_some(Verb::Create.as_str()))
}

async fn refused(dispatched: Arc<Dispatched>, cluster: &ClusterName) -> TerminationReason {
    dispatched.refused(cluster).await;
    TerminationReason::Policy
}

fn is_lines(answer: &Response<Body>) -> bool {
    content_type(answer.headers()).starts_with("application/json")
        && !answer.headers().contains_key(header::CONTENT_ENCODING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_and_attach_need_the_verbs_of_the_members_kubernetes_version() {
        let pod = "/api/v1/namespaces/n/pods/p";
        let (old, new) = (Some((1, 34, 9)), Some((1, 35, 0)));
        for (method, path, version, expected) in [
            ("GET", format!("{pod}/exec"), new, &["get", "create"][..]),
            ("GET", format!("{pod}/attach"), new, &["get", "create"]),
            ("GET", format!("{pod}/portforward"), Some((1, 36, 3)), &["get", "create"]),
            // A cluster of unknown version may be 1.35 or newer. A right that the cluster never granted cannot be lost.
            ("GET", format!("{pod}/exec"), None, &["get", "create"]),
            ("GET", format!("{pod}/exec"), old, &["get"]),
            ("POST", format!("{pod}/exec"), new, &["create"]),
            ("GET", format!("{pod}/log"), new, &["get"]),
            ("GET", format!("{pod}/proxy/"), new, &["get"]),
            ("GET", "/apis/example.com/v1/namespaces/n/pods/p/exec".to_owned(), new, &["get"]),
            ("GET", "/api/v1/namespaces/n/services/s/portforward".to_owned(), new, &["get"]),
        ] {
            let info = RequestInfo::parse(method, &path, None).unwrap();
            let verbs: Vec<_> = authorized_verbs(&info, version).collect();
            assert_eq!(verbs, expected, "{method} {path} {version:?}");
        }
    }
}
