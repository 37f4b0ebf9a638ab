//! Sending of a request to one cluster.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, Uri, header};
use tributary_answers::refusal::{MemberRefusal, Refusal, RequestRefusal};
use tributary_apimachinery::permit::RequestPermit;
use tributary_apimachinery::{Permit, RequestInfo};
use tributary_fleet::topology::Cluster;
use tributary_proxy::headers::Recipient;
use tributary_proxy::{ClusterClient, EndpointSubset, ForwardContext, ForwardError, RequestIdentity, TunnelEnd};
use tributary_rights::SentRequest;
use tributary_sharing::body::{self, Body};

use super::impersonation_forbidden::check_impersonation;
use super::long_running::LongRunningRequest;
use crate::caller::Caller;
use crate::request_trace::BegunStage;

/// Sends a request to one cluster, and streams its answer. The path in `info` and the argument `query` replace path and
/// query of `request`. A long-running request ends when its credentials, rights or policies end.
///
/// # Errors
/// The cause of a missing answer. 429 if the client has too many requests at the cluster, or if the cluster has
/// `dispatch: DenyAll`. 403 by the cluster's policies. 401 and 403 if a long-running request has to end before the
/// answer.
pub(crate) async fn send(
    cluster: &Arc<Cluster>,
    caller: &Caller,
    request: Request<Body>,
    info: &RequestInfo,
    query: Option<&str>,
) -> Result<Response<Body>, Refusal> {
    // The policies are checked first, so that the refusal of a policy has the policy's text.
    let endpoints = match &caller.dispatched {
        Some(dispatched) => dispatched.endpoints(cluster.name())?,
        None => None,
    };
    let mut long_running = LongRunningRequest::begin(cluster, caller, info);
    let is_upgrade = request.headers().contains_key(header::UPGRADE);
    let tunnel_end = long_running.as_mut().filter(|_| is_upgrade).map(LongRunningRequest::tunnel_end);
    let message = OutgoingRequest { request, info, query, endpoints, tunnel_end };
    // The future stays in one place, because each move would copy the future.
    let answer = pin!(send_and_wait(cluster, caller, message));
    match long_running {
        None => answer.await,
        Some(mut long_running) => {
            let answer = long_running.wait_for_answer(answer).await?;
            Ok(long_running.follow(answer))
        }
    }
}

struct OutgoingRequest<'a> {
    request: Request<Body>,
    info: &'a RequestInfo,
    query: Option<&'a str>,
    endpoints: Option<EndpointSubset>,
    tunnel_end: Option<TunnelEnd>,
}

async fn send_and_wait(
    cluster: &Arc<Cluster>,
    caller: &Caller,
    message: OutgoingRequest<'_>,
) -> Result<Response<Body>, Refusal> {
    let OutgoingRequest { mut request, info, query, endpoints, tunnel_end } = message;
    let may_switch = request.headers().contains_key(header::UPGRADE);
    let method = request.method().clone();
    let sent = SentRequest { method: &method, path: &info.path, query };
    let identity = caller.identity(&cluster.setup, &sent).await?;
    let client = addressed(cluster, &mut request, &info.path, query)?;
    let client_of_name = caller.client_of_name(cluster.name());
    let client = client_of_name.unwrap_or(client);
    // The name of the cluster now means a different cluster. The caller may have been authenticated by the earlier
    // cluster, so the request must not be sent.
    if cluster.incarnation().has_ended() {
        return Err(refuse_replaced(cluster));
    }
    // An upgrade needs this permit, too, because the member may answer without a switch. The permit is released when
    // the member has finished the request, even if the client has gone earlier.
    let permit = cluster.reserve_request(info.class(), caller.share_key)?;
    let permit = match caller.admitted.get() {
        Some(of_schema) => RequestPermit::from_guard((permit, Arc::clone(of_schema))),
        None => RequestPermit::from_guard(permit),
    };
    let mut context = ForwardContext::from(identity);
    context.class = info.class();
    context.recipient = if info.is_for_workload() { Recipient::Workload } else { Recipient::Api };
    context.peer = caller.connection;
    context.endpoints = endpoints;
    context.permit = Some(permit.clone());
    context.upgrade = caller.upgrade.clone();
    context.tunnel_end = tunnel_end;
    let mut stage = record_cluster(cluster, caller, &mut request);
    let waiting = caller.awaited.wait_for(cluster.name());
    let answer = client.forward(request, context).await.map_err(|error| not_forwarded(cluster, error))?;
    drop(waiting);
    stage.record_status(answer.status().as_u16());
    drop(stage);
    // The server behind a name with its own credential says nothing about Tributary's account in the cluster.
    let answer = match client_of_name {
        Some(_) => answer,
        None => check_impersonation(cluster, caller, &sent, answer).await?,
    };
    Ok(match answer.status() {
        // After the switch of protocols, the connection counts as a tunnel.
        StatusCode::SWITCHING_PROTOCOLS => answer,
        // The permit lasts until the answer has ended. Usually the proxy keeps the permit. But it does not for a
        // request that may switch protocols, and the body of a 401 or 403 may already be complete in memory. In these
        // cases the body keeps the permit.
        status if may_switch || matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            answer.map(|body| body::attach_permit(body, Permit::from_guard(permit)))
        }
        _ => answer,
    })
}

/// Sends a lookup to one cluster under the client's identity. The result is needed before the answer to the client. The
/// lookup gets a connection even if clients occupy all others, so the callers of this function limit the number of
/// parallel lookups.
///
/// # Errors
/// The cause of a missing answer.
pub(crate) async fn send_lookup(
    cluster: &Arc<Cluster>,
    caller: &Caller,
    mut request: Request<Body>,
    path: &str,
) -> Result<Response<Body>, Refusal> {
    // The policies are checked first, so that a cluster with `dispatch: DenyAll` gets no review of the user's rights.
    if let Some(dispatched) = &caller.dispatched {
        dispatched.check_not_frozen(cluster.name())?;
    }
    let method = request.method().clone();
    let sent = SentRequest { method: &method, path, query: None };
    let identity = caller.identity(&cluster.setup, &sent).await?;
    let mut stage = record_cluster(cluster, caller, &mut request);
    let _waiting = caller.awaited.wait_for(cluster.name());
    let answer = send_as(cluster, identity, request, path).await?;
    stage.record_status(answer.status().as_u16());
    drop(stage);
    check_impersonation(cluster, caller, &sent, answer).await
}

/// Sends a lookup to one cluster under Tributary's own identity. For lookups whose answer is equal for all clients, and
/// visible to all.
///
/// # Errors
/// The cause of a missing answer.
pub(crate) async fn look_up_with_own_account(
    cluster: &Arc<Cluster>,
    request: Request<Body>,
    path: &str,
) -> Result<Response<Body>, Refusal> {
    send_as(cluster, RequestIdentity::Member, request, path).await
}

async fn send_as(
    cluster: &Arc<Cluster>,
    identity: RequestIdentity,
    mut request: Request<Body>,
    path: &str,
) -> Result<Response<Body>, Refusal> {
    let client = addressed(cluster, &mut request, path, None)?;
    Ok(client.send_own_request(request, identity).await.map_err(|error| not_forwarded(cluster, error))?)
}

/// Records the cluster for logs and metrics, and adds the audit ID for the cluster's audit log to the headers. Returns
/// the stage for a traced request.
fn record_cluster(cluster: &Cluster, caller: &Caller, request: &mut Request<Body>) -> BegunStage {
    caller
        .trace
        .as_ref()
        .map(|trace| trace.begin_cluster_request(cluster.name(), request.headers_mut()))
        .unwrap_or_default()
}

/// Sets path and query of a request to a cluster, unless they are already set. Returns the HTTP client for the cluster.
fn addressed<'a>(
    cluster: &'a Cluster,
    request: &mut Request<Body>,
    path: &str,
    query: Option<&str>,
) -> Result<&'a ClusterClient, Refusal> {
    let client = cluster.setup.client.as_ref().map_err(|_| MemberRefusal::RequestsForbidden(cluster.failure()))?;
    if !is_for(request.uri(), path, query) {
        *request.uri_mut() = Uri::try_from(target(path, query)).map_err(|_| RequestRefusal::Path)?;
    }
    Ok(client)
}

fn is_for(uri: &Uri, path: &str, query: Option<&str>) -> bool {
    let rest = uri.path_and_query().and_then(|target| target.as_str().strip_prefix(path));
    match query {
        Some(query) => rest.and_then(|rest| rest.strip_prefix('?')) == Some(query),
        None => rest == Some(""),
    }
}

/// Returns path and query of a request as one text.
pub(super) fn target(path: &str, query: Option<&str>) -> String {
    let mut target = String::with_capacity(path.len() + query.map_or(0, |query| query.len() + 1));
    target.push_str(path);
    if let Some(query) = query {
        target.push('?');
        target.push_str(query);
    }
    target
}

/// Refuses a request for a cluster whose name now means another cluster.
pub(crate) fn refuse_replaced(cluster: &Cluster) -> Refusal {
    not_forwarded(cluster, ForwardError::AnotherCluster { cluster: cluster.name().clone() }).into()
}

/// Makes the refusal of a request that its cluster did not answer. The refusal contains the state of the cluster.
fn not_forwarded(cluster: &Cluster, error: ForwardError) -> MemberRefusal {
    MemberRefusal::Forward { error, is_out_of_reach: cluster.is_out_of_reach(), silent_for: silent_for(cluster) }
}

/// Returns the time since the cluster's last answer, or since its configuration.
fn silent_for(cluster: &Cluster) -> Duration {
    let answered = cluster.setup.client.as_ref().ok().and_then(ClusterClient::since_last_answer);
    answered.unwrap_or_else(|| cluster.age())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_uri_is_reused_only_if_its_path_and_query_match() {
        let has = |uri: &str, path: &str, query: Option<&str>| is_for(&uri.parse().unwrap(), path, query);
        for (path, query) in [
            ("/", None),
            ("/api/v1/pods", None),
            ("/api/v1/pods", Some("")),
            ("/api/v1/pods", Some("labelSelector=a%3Db&x")),
            ("/a%2Fb//c", Some("?")),
            // Tributary's own requests pass the query as a part of the path.
            ("/api/v1/pods?limit=1", None),
        ] {
            let target = target(path, query);
            assert!(has(&target, path, query), "{target}");
            assert!(has(&format!("http://elsewhere:1{target}"), path, query), "{target}");
            for other in ["", "/", "x"] {
                assert!(!has(&format!("/{other}{target}"), path, query), "{other}, {target}");
                assert!(!has(&target, &format!("/{other}{path}"), query), "{other}, {target}");
            }
            assert!(!has(&target, path, Some("other")), "{target}");
            assert!(!has(&format!("{target}x"), path, query), "{target}");
        }
        assert!(!has("/api?a", "/api", None));
        assert!(!has("/api", "/api", Some("")));
        // A URI without a path is not equal to the path `/` with the same query.
        assert!(!has("http://elsewhere:1?a", "/", Some("a")));
    }
}
