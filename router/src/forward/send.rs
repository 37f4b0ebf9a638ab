//! Sending a request on to one cluster.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, Uri};
use tributary_apimachinery::{Reason, RequestClass, Status, Unanswered};
use tributary_proxy::{ClusterClient, ForwardError, Identity, ReachabilityState, Sent};

use crate::body::{self, Body};
use crate::caller::Caller;
use crate::flow::fair_share::Portion;
use crate::topology::Cluster;

/// Sends a request to one cluster, and its answer back, both streamed. `path` and `query` take the place of the request's own.
///
/// # Errors
/// The Status that tells why there is no answer; 429 where the client has as many requests under way at the cluster as it may have.
pub(crate) async fn send(
    cluster: &Arc<Cluster>,
    caller: &Caller,
    mut request: Request<Body>,
    path: &str,
    query: Option<&str>,
) -> Result<Response<Body>, Status> {
    let client = addressed(cluster, &mut request, path, query)?;
    let place = place(cluster, caller, &request)?;
    let answer = client.forward(request, caller.identity().clone()).await.map_err(|error| status(cluster, &error))?;
    Ok(match answer.status() {
        // What is switched has a connection of its own from now on, and is counted as such.
        StatusCode::SWITCHING_PROTOCOLS => answer,
        // The connection is occupied until the answer has ended.
        _ => answer.map(|body| body::holding(body, place)),
    })
}

/// Asks one cluster what this process has to know to answer a client, in the client's name. It finds a connection however many the
/// clients occupy; whoever calls this sees to it that few do so at once.
///
/// # Errors
/// The Status that tells why there is no answer.
pub(crate) async fn ask(
    cluster: &Arc<Cluster>,
    caller: &Caller,
    request: Request<Body>,
    path: &str,
) -> Result<Response<Body>, Status> {
    ask_as(cluster, caller.identity().clone(), request, path).await
}

/// Asks one cluster in our own name, for what is no client's: what it says may be told to all of them.
///
/// # Errors
/// The Status that tells why there is no answer.
pub(crate) async fn ask_as_ourselves(
    cluster: &Arc<Cluster>,
    request: Request<Body>,
    path: &str,
) -> Result<Response<Body>, Status> {
    ask_as(cluster, Identity::Member, request, path).await
}

async fn ask_as(
    cluster: &Arc<Cluster>,
    identity: Identity,
    mut request: Request<Body>,
    path: &str,
) -> Result<Response<Body>, Status> {
    let client = addressed(cluster, &mut request, path, None)?;
    client.ask(request, identity).await.map_err(|error| status(cluster, &error))
}

/// Gives a request its path and query at a cluster. Gives who sends it.
fn addressed<'a>(
    cluster: &'a Cluster,
    request: &mut Request<Body>,
    path: &str,
    query: Option<&str>,
) -> Result<&'a ClusterClient, Status> {
    let client = cluster.setup.client.as_ref().map_err(|_| cannot_be_asked(cluster))?;
    let target = match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    *request.uri_mut() = Uri::try_from(target).map_err(|_| Status::bad_request("the path cannot be forwarded"))?;
    Ok(client)
}

/// The place that a client's request takes among those to the cluster, also where it asks for an upgrade: whether there is one is the
/// member's to say, and its answer may be any other. It is taken before the member can have carried anything out.
fn place(cluster: &Cluster, caller: &Caller, request: &Request<Body>) -> Result<Portion, Status> {
    let class = request.extensions().get::<RequestClass>().copied().unwrap_or_default();
    cluster.place(class, caller.connection)
}

/// 503: nothing can be sent to a cluster that is configured so.
fn cannot_be_asked(cluster: &Cluster) -> Status {
    let message = format!("cluster {}", cluster.trouble());
    Status::unanswered(503, Reason::ServiceUnavailable, message, Unanswered::NotSent { retry_after: None })
}

/// Whether a member has been out of reach for so long that coming again soon is in vain.
pub(crate) fn is_gone(cluster: &Cluster) -> bool {
    let Ok(client) = &cluster.setup.client else { return true };
    let reachability = client.reachability();
    let known = reachability.borrow();
    matches!(known.state, ReachabilityState::Unreachable { .. }) && known.since.elapsed() > BRIDGED
}

/// How long a member may be gone before clients are no longer told to try again in a second. client-go does so ten times for
/// each request: a restart of a kube-apiserver goes unnoticed, but a command for a cluster that is down for good would hang for
/// minutes.
const BRIDGED: Duration = Duration::from_secs(10);

/// The Status of a request that got no answer from its cluster. It says since when the cluster cannot be reached, and carries the
/// advice to come again only where the cluster has certainly not acted on the request and may soon be back.
fn status(cluster: &Cluster, error: &ForwardError) -> Status {
    let code = error.status_code();
    let reason = match code {
        StatusCode::BAD_REQUEST => Reason::BadRequest,
        StatusCode::TOO_MANY_REQUESTS => Reason::TooManyRequests,
        StatusCode::SERVICE_UNAVAILABLE => Reason::ServiceUnavailable,
        StatusCode::GATEWAY_TIMEOUT => Reason::Timeout,
        _ => Reason::InternalError,
    };
    let passes = matches!(code, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
    let unanswered = match error.sent() {
        Sent::No => Unanswered::NotSent { retry_after: (passes && !is_gone(cluster)).then_some(RETRY_AFTER) },
        Sent::Maybe => Unanswered::MaybeSent,
    };
    let mut message = error.to_string();
    if code == StatusCode::SERVICE_UNAVAILABLE && !matches!(error, ForwardError::Unreachable { .. }) {
        message.push_str(&format!("; the last answer was {} s ago", silent_for(cluster).as_secs()));
    }
    Status::unanswered(code.as_u16(), reason, message, unanswered)
}

/// When a client is to come again whose cluster cannot be reached now, in seconds.
const RETRY_AFTER: u32 = 1;

/// How long the cluster has not answered: since its last answer, or since it was configured.
fn silent_for(cluster: &Cluster) -> Duration {
    let answered = cluster.setup.client.as_ref().ok().and_then(ClusterClient::since_last_answer);
    answered.unwrap_or_else(|| cluster.age())
}
