//! Steps of a forwarded request: headers, identity, transfer, and a retry after a change of credentials.

pub(crate) mod abandoned;
mod bodiless;
pub(crate) mod exchange;
pub(crate) mod member_body;
pub(crate) mod own_request;
pub(crate) mod replay_body;
mod send_terms;
pub(crate) mod unauthorized;
mod watched;

use std::sync::Arc;

use http::header::HeaderName;
use http::{Method, Request, Response, StatusCode};
use tributary_apimachinery::RequestClass;
use tributary_apimachinery::body::Body;

use crate::credentials::CurrentCredentials;
use crate::credentials::user::MemberUser;
use crate::error::ForwardError;
use crate::forward::bodiless::without_body;
use crate::forward::exchange::{Exchanged, Replay};
use crate::forward::send_terms::SendTerms;
use crate::forward::unauthorized::UnauthorizedCause;
use crate::forward_context::ForwardContext;
use crate::headers::{self, UpgradeProtocol};
use crate::member::ClientInner;
use crate::peer::address_header;
use crate::pool::{PoolKey, StreamClass};
use crate::request_loop;
use crate::retry_budget::Cause;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Removes unsafe headers. Adds the headers of the identity and of the member's configuration. `Authorization` and the
/// endpoint's headers are added later, when the endpoint is known.
pub(crate) fn prepare(
    member: &ClientInner,
    request: &mut Request<Body>,
    context: &ForwardContext,
    user: &MemberUser,
) -> Result<Option<UpgradeProtocol>, ForwardError> {
    let upgrade = headers::upgrade_protocol(request.headers())
        .map_err(|problem| ForwardError::UpgradeRefused { cluster: member.name.clone(), problem })?;
    if *request.method() == Method::CONNECT {
        let problem = "CONNECT is not supported, and therefore no WebSocket over HTTP/2".to_owned();
        return Err(ForwardError::UpgradeRefused { cluster: member.name.clone(), problem });
    }
    member.endpoints.check(request.uri()).map_err(|problem| member.bad_path(request.uri(), problem))?;
    headers::prepare_request(request.headers_mut(), upgrade, context.recipient);
    request_loop::append_own_id(request.headers_mut());
    member.set_identity(request.headers_mut(), &context.identity, user)?;
    if let Some(value) = context.peer.and_then(address_header) {
        request.headers_mut().insert(X_FORWARDED_FOR, value);
    }
    Ok(upgrade)
}

/// Returns the pool's kind of connections for a request class. The limits of clients' requests distinguish the same
/// classes.
fn stream_class(class: RequestClass) -> StreamClass {
    match class {
        RequestClass::Short => StreamClass::Short,
        RequestClass::Watch => StreamClass::Watch,
        RequestClass::Streamed => StreamClass::Streamed,
    }
}

/// Sends a prepared request without an upgrade. Retries the request if the cluster rejects the credentials and newer
/// credentials are available.
pub(crate) async fn forward(
    member: &Arc<ClientInner>,
    mut request: Request<Body>,
    context: &ForwardContext,
    mut user: Arc<MemberUser>,
) -> Result<Response<Body>, ForwardError> {
    let (class, destination) = (context.class, context.destination());
    // Removes the extensions that hyper's server has added to the client's request.
    request.extensions_mut().clear();
    if class == RequestClass::Watch {
        without_body(&mut request);
    }
    let terms = SendTerms {
        pool_key: PoolKey { stream_class: stream_class(class), origin: context.origin, peer: context.peer },
        destination: &destination,
        limit: (!class.is_long_running()).then_some(member.tuning.head_timeout),
        permit: context.permit.as_ref(),
    };
    let generation = member.generation();
    let mut replay = Replay::for_request(&mut request, generation);
    let mut replayed = false;
    loop {
        let Exchanged { mut response, credentials, endpoint } =
            member.exchange(request, &mut replay, &terms, &user).await?;
        if response.status() != StatusCode::UNAUTHORIZED || user.is_user_token {
            return member.finish(response);
        }
        let unauthorized_cause = Box::pin(member.unauthorized_cause(&credentials, &endpoint, &context.identity)).await;
        // If the credentials were replaced during the request (`UnauthorizedCause::CredentialsReplaced`), it is unknown
        // which server sent the 401, so the response is checked. Without this check, a malicious workload could act on
        // the request, answer 401 after a change of credentials, and receive the request again.
        let is_api_servers_401 = unauthorized_cause != UnauthorizedCause::CredentialsRejected
            && Box::pin(replay.is_api_servers_401(&mut response)).await;
        let may_repeat = replay.is_idempotent() && !replayed;
        let is_worth_it = is_api_servers_401 && may_repeat;
        let may_retry_succeed =
            Box::pin(may_retry_succeed(member, unauthorized_cause, &user, &credentials, is_worth_it)).await;
        let again = if may_repeat && may_retry_succeed { replay.request() } else { None };
        match again {
            Some(again) => {
                replayed = true;
                request = again;
                let now = member.user_for(&context.identity);
                if !Arc::ptr_eq(&now, &user) {
                    member.clear_identity(request.headers_mut());
                    member.set_identity(request.headers_mut(), &context.identity, &now)?;
                    replay = Replay::for_request(&mut request, generation);
                    user = now;
                }
            }
            None if is_api_servers_401 => {
                return Err(ForwardError::UnknownSender { cluster: member.name.clone() });
            }
            None if unauthorized_cause == UnauthorizedCause::CredentialsRejected => {
                let (cluster, remedy) = (member.name.clone(), user.credentials.remedy());
                return Err(ForwardError::Unauthorized { cluster, remedy });
            }
            None => return member.finish(response),
        }
    }
}

/// Returns whether a retry of the request may succeed. Renews rejected credentials even if the caller does not retry.
/// `is_worth_it`: an API server that did not know valid credentials yet sent the 401, and the caller may retry the
/// request.
async fn may_retry_succeed(
    member: &ClientInner,
    unauthorized_cause: UnauthorizedCause,
    user: &MemberUser,
    used: &Arc<CurrentCredentials>,
    is_worth_it: bool,
) -> bool {
    match unauthorized_cause {
        UnauthorizedCause::CredentialsRejected => user.credentials.renew_after_unauthorized(used).await,
        UnauthorizedCause::CredentialsReplaced => true,
        // The 401 may come from a second server behind the same address, which does not know the credentials yet.
        UnauthorizedCause::OtherServer => is_worth_it && member.retries.withdraw(Cause::Busy),
    }
}
