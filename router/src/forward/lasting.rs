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
use tributary_apimachinery::{ClusterName, RequestClass, RequestInfo};
use tributary_proxy::TunnelEnd;

use super::answer::content_type;
use super::send::send;
use crate::body::{Body, Ending, ended_by};
use crate::caller::Caller;
use crate::refusal::{Refusal, RequestRefusal};
use crate::rights::FollowedGrant;
use crate::stream_over::StreamOver;
use crate::topology::Cluster;

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
    let Some(mut over) = over(caller, cluster.name(), info) else {
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
fn over(caller: &Caller, cluster: &ClusterName, info: &RequestInfo) -> Option<BoxFuture<'static, StreamOver>> {
    if !info.class().is_long_running() {
        return None;
    }
    let end = caller.stream_end();
    let grant = caller.rights().zip(info.resource());
    let mut grant = grant.map(|(rights, resource)| FollowedGrant::new(rights, cluster, info.verb, resource));
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
