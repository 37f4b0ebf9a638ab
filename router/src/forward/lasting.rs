//! What passes as it is, and may last: watches of a cluster's own view, logs that are followed, exec, attach,
//! port-forward, what comes from workloads. It ends with what opened it.
//!
//! ```text
//! the user's rights in the member ─▶ FollowedGrant ─┐
//! the credentials' end, the longest age ─▶ Caller ──┴─▶ StreamEnd ─┬─ while the member is asked ─▶ a refusal
//!                                                                  ├─ of a body ────────────────▶ ended_by
//!                                                                  └─ of a tunnel ──────────────▶ TunnelEnd
//! ```

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, header};
use tokio::time::{Instant, sleep_until};
use tributary_apimachinery::{RequestClass, RequestInfo, ResourceRequest, Verb};
use tributary_proxy::TunnelEnd;

use super::answer::content_type;
use super::send::send;
use crate::body::{Body, Ending, ended_by};
use crate::caller::Caller;
use crate::refusal::{Refusal, RequestRefusal};
use crate::rights::FollowedGrant;
use crate::stream_over::StreamOver;
use crate::topology::Cluster;

/// The first version that judges a WebSocket into a Pod as `create`, too.
const CREATES_FROM: (u64, u64, u64) = (1, 35, 0);

/// Sends on what passes as it is, `query` in the place of the request's own. What lasts ends with what opened it.
///
/// # Errors
/// As [`send`]; 401 and 403 where it is over before the member has answered.
pub(crate) async fn pass(
    cluster: &Arc<Cluster>,
    caller: &Caller,
    mut request: Request<Body>,
    info: &RequestInfo,
    query: Option<&str>,
) -> Result<Response<Body>, Refusal> {
    let Some(mut over) = over(caller, cluster, info) else {
        return send(cluster, caller, request, &info.path, query).await;
    };
    let (end, ender) = TunnelEnd::new();
    request.extensions_mut().insert(end);
    let answer = tokio::select! {
        why = &mut over => return Err(RequestRefusal::Over(why).into()),
        answer = send(cluster, caller, request, &info.path, query) => answer?,
    };
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        ender.end_when(over.map(drop).boxed());
        return Ok(answer);
    }
    let lines = info.class() == RequestClass::Watch && is_lines(&answer);
    Ok(answer.map(|body| ended_by(body, lines, over.map(|why| Ending::AtOnce(why.into())).boxed())))
}

/// Ends once a request that lasts is over; `None` for one that lasts as long as it will.
fn over(caller: &Caller, cluster: &Cluster, info: &RequestInfo) -> Option<BoxFuture<'static, StreamOver>> {
    if !info.class().is_long_running() {
        return None;
    }
    let end = caller.stream_end();
    let grant = caller.rights().zip(info.resource());
    let version = cluster.version().map(|version| version.order());
    let mut grant = grant.map(|(rights, resource)| {
        FollowedGrant::new(rights, cluster.name(), judged_verbs(info.verb, resource, version), resource)
    });
    if end.is_none() && grant.is_none() {
        return None;
    }
    Some(Box::pin(async move {
        tokio::select! {
            why = passed(end) => why,
            why = lost(&mut grant) => why,
        }
    }))
}

/// The verbs by which a member judges what is to last. One that lets nobody into a Pod who may only `get` asks for
/// `create` as well: a WebSocket begins as a GET. From 1.35 on kube-apiserver does, unless it is told otherwise
/// (`AuthorizePodWebsocketUpgradeCreatePermission`; `ensureAuthorizedForVerb` in `pkg/registry/core/pod/rest`). Who has
/// lost that right may not come in again, and so is not to stay in.
fn judged_verbs(
    verb: Verb,
    resource: &ResourceRequest,
    version: Option<(u64, u64, u64)>,
) -> impl Iterator<Item = &'static str> {
    let is_of_pod = resource.resource.group.is_empty() && &*resource.resource.resource == "pods";
    let leads_in = matches!(resource.subresource.as_deref(), Some("exec" | "attach" | "portforward"));
    let asks_to_create = version.is_none_or(|version| version >= CREATES_FROM);
    let create = is_of_pod && leads_in && verb != Verb::Create && asks_to_create;
    std::iter::once(verb.as_str()).chain(create.then_some(Verb::Create.as_str()))
}

async fn passed(end: Option<(Instant, StreamOver)>) -> StreamOver {
    match end {
        Some((at, why)) => {
            sleep_until(at).await;
            why
        }
        None => std::future::pending().await,
    }
}

async fn lost(grant: &mut Option<FollowedGrant>) -> StreamOver {
    match grant {
        Some(grant) => grant.lost().await,
        None => std::future::pending().await,
    }
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
            let verbs: Vec<_> = judged_verbs(info.verb, info.resource().unwrap(), version).collect();
            assert_eq!(verbs, expected, "{method} {path} {version:?}");
        }
    }
}
