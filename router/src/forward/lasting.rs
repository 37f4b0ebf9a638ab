//! What passes as it comes, and may last: watches of a cluster's own view, logs that are followed, exec, attach,
//! port-forward, what comes from workloads and from aggregated servers. It ends with what opened it.
//!
//! ```text
//! the user's rights in the member ─▶ FollowedGrant ─┐
//! the policies, as they change ─▶ Dispatched ────────┤
//! the credentials' end, the longest age ─▶ Caller ──┴─▶ Lasting ─┬─ while the member is asked ─▶ a refusal
//!                                                                ├─ of a body ────────────────▶ ended_by
//!                                                                └─ of a tunnel ──────────────▶ TunnelEnd
//! ```
//!
//! Which requests last is known of Kubernetes' own alone. An aggregated server may answer any with a stream that does
//! not end, or with a tunnel (`console` and `vnc` of subresources.kubevirt.io), so each answer is followed that is
//! still being written after a second.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Response, StatusCode, header};
use http_body::Body as _;
use tokio::time::Instant;
use tributary_answers::refusal::{Refusal, RequestRefusal};
use tributary_answers::stream_over::StreamOver;
use tributary_apimachinery::{ClusterName, RequestClass, RequestInfo, Verb, or_never};
use tributary_fleet::topology::Cluster;
use tributary_proxy::{TunnelEnd, TunnelEnder};
use tributary_rights::FollowedGrant;
use tributary_sharing::body::{Body, Ending, ended_by, ended_late_by};

use super::media_type::content_type;
use crate::caller::{Caller, passed};
use crate::dispatch::Dispatched;

/// From when on the answer to a short request is followed. A second: what is taken away has to be gone within two, and
/// nearly all such answers are whole by then.
const FOLLOWED_AFTER: Duration = Duration::from_secs(1);

/// The first version that judges a WebSocket into a Pod as `create`, too.
const CREATES_FROM: (u64, u64, u64) = (1, 35, 0);

/// What a request lasts by.
pub(super) struct Lasting {
    class: RequestClass,
    /// Ends once it is over.
    over: BoxFuture<'static, StreamOver>,
    /// Ends the tunnel, where the request is switched; `None` of one that does not ask for it.
    ender: Option<TunnelEnder>,
}

impl Lasting {
    /// Follows what opens a request from before the member is asked; `None` for one that may last as long as it will.
    pub(super) fn begin(cluster: &Cluster, caller: &Caller, info: &RequestInfo) -> Option<Self> {
        Some(Self { class: info.class(), over: over(caller, cluster, info)?, ender: None })
    }

    /// The end of the tunnel, if the request is switched.
    pub(super) fn tunnel_end(&mut self) -> TunnelEnd {
        let (end, ender) = TunnelEnd::new();
        self.ender = Some(ender);
        end
    }

    /// The member's answer. Whoever may not open what lasts any more does not wait for it; what a short request has
    /// done is told, whatever was taken away meanwhile.
    ///
    /// # Errors
    /// Those of the answer; 401 and 403 where it is over before.
    pub(super) async fn wait_for_answer<T>(
        &mut self,
        answer: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        if !self.class.is_long_running() {
            return answer.await;
        }
        tokio::select! {
            why = &mut self.over => Err(RequestRefusal::Over(why).into()),
            answer = answer => answer,
        }
    }

    /// The same answer, until it is over.
    pub(super) fn follow(self, answer: Response<Body>) -> Response<Body> {
        let Self { class, over, ender } = self;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            if let Some(ender) = ender {
                ender.end_when(over.map(drop).boxed());
            }
            return answer;
        }
        if answer.body().is_end_stream() {
            return answer;
        }
        if !class.is_long_running() {
            let from = Instant::now() + FOLLOWED_AFTER;
            return answer.map(|body| ended_late_by(body, from, over));
        }
        let lines = class == RequestClass::Watch && is_lines(&answer);
        let end = over.map(|why| Ending::AtOnce(why.into()));
        answer.map(|body| ended_by(body, lines, end.boxed()))
    }
}

/// Ends once a request is over that lasts; `None` for one that lasts as long as it will.
fn over(caller: &Caller, cluster: &Cluster, info: &RequestInfo) -> Option<BoxFuture<'static, StreamOver>> {
    let end = caller.stream_end();
    let version = cluster.version().map(|version| version.order());
    let mut grant =
        caller.rights().map(|rights| FollowedGrant::new(rights, cluster.name(), judged_verbs(info, version), info));
    let dispatched = caller.dispatched.clone();
    if end.is_none() && grant.is_none() && dispatched.is_none() {
        return None;
    }
    let name = cluster.name().clone();
    Some(Box::pin(async move {
        tokio::select! {
            why = passed(end) => why,
            why = or_never(grant.as_mut().map(FollowedGrant::lost)) => why,
            why = or_never(dispatched.map(|dispatched| refused(dispatched, &name))) => why,
        }
    }))
}

/// The verbs by which a member judges what is to last. One that lets nobody into a Pod who may only `get` asks for
/// `create` as well: a WebSocket begins as a GET. From 1.35 on kube-apiserver does, unless it is told otherwise
/// (`AuthorizePodWebsocketUpgradeCreatePermission`; `ensureAuthorizedForVerb` in `pkg/registry/core/pod/rest`). Who has
/// lost that right may not come in again, and so is not to stay in.
fn judged_verbs(info: &RequestInfo, version: Option<(u64, u64, u64)>) -> impl Iterator<Item = &'static str> {
    let leads_into_pod = info.resource().is_some_and(|request| {
        let is_of_pod = request.resource.group.is_empty() && &*request.resource.resource == "pods";
        is_of_pod && matches!(request.subresource.as_deref(), Some("exec" | "attach" | "portforward"))
    });
    let asks_to_create = version.is_none_or(|version| version >= CREATES_FROM);
    let create = leads_into_pod && info.verb != Verb::Create && asks_to_create;
    std::iter::once(info.verb.as_str()).chain(create.then_some(Verb::Create.as_str()))
}

async fn refused(dispatched: Arc<Dispatched>, cluster: &ClusterName) -> StreamOver {
    dispatched.refused(cluster).await;
    StreamOver::Policy
}

/// Whether a stream of events has each in a line of its own.
fn is_lines(answer: &Response<Body>) -> bool {
    content_type(answer.headers()).starts_with("application/json")
        && !answer.headers().contains_key(header::CONTENT_ENCODING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_into_a_pod_is_judged_as_its_member_judges_it() {
        let pod = "/api/v1/namespaces/n/pods/p";
        let (old, new) = (Some((1, 34, 9)), Some((1, 35, 0)));
        for (method, path, version, expected) in [
            ("GET", format!("{pod}/exec"), new, &["get", "create"][..]),
            ("GET", format!("{pod}/attach"), new, &["get", "create"]),
            ("GET", format!("{pod}/portforward"), Some((1, 36, 3)), &["get", "create"]),
            // What is not known may be a new one; what it has never granted is not lost.
            ("GET", format!("{pod}/exec"), None, &["get", "create"]),
            ("GET", format!("{pod}/exec"), old, &["get"]),
            ("POST", format!("{pod}/exec"), new, &["create"]),
            ("GET", format!("{pod}/log"), new, &["get"]),
            ("GET", format!("{pod}/proxy/"), new, &["get"]),
            ("GET", "/apis/example.com/v1/namespaces/n/pods/p/exec".to_owned(), new, &["get"]),
            ("GET", "/api/v1/namespaces/n/services/s/portforward".to_owned(), new, &["get"]),
        ] {
            let info = RequestInfo::parse(method, &path, None).unwrap();
            let verbs: Vec<_> = judged_verbs(&info, version).collect();
            assert_eq!(verbs, expected, "{method} {path} {version:?}");
        }
    }
}
