//! Path of a request: headers, identity, transfer, and a repetition after a change of credentials.

mod bodiless;
pub(crate) mod exchange;
pub(crate) mod given_up;
pub(crate) mod kept_body;
pub(crate) mod member_body;
pub(crate) mod own_question;
pub(crate) mod unauthorized;
mod watched;

use std::sync::Arc;

use http::header::HeaderName;
use http::{Method, Request, Response, StatusCode};
use tributary_apimachinery::RequestClass;
use tributary_apimachinery::body::Body;
use tributary_apimachinery::permit::RequestPermit;

use crate::credentials::Current;
use crate::credentials::identity::RequestIdentity;
use crate::credentials::user::MemberUser;
use crate::endpoints::destination::Destination;
use crate::error::ForwardError;
use crate::forward::bodiless::without_body;
use crate::forward::exchange::Replay;
use crate::forward::unauthorized::About;
use crate::headers::{self, Recipient, UpgradeProtocol};
use crate::member::ClientInner;
use crate::peer::Peer;
use crate::places::Asker;
use crate::pool::{Claim, LaneKind};
use crate::retry_budget::Cause;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Cleans the request's head and adds the identity and the headers of the cluster, except `Authorization` and the
/// endpoint's.
pub(crate) fn prepare(
    member: &ClientInner,
    request: &mut Request<Body>,
    identity: &RequestIdentity,
    user: &MemberUser,
) -> Result<Option<UpgradeProtocol>, ForwardError> {
    let upgrade = headers::upgrade_protocol(request.headers())
        .map_err(|problem| ForwardError::UpgradeRefused { cluster: member.name.clone(), problem })?;
    if *request.method() == Method::CONNECT {
        let problem = "CONNECT, and so websockets over HTTP/2, is not offered".to_owned();
        return Err(ForwardError::UpgradeRefused { cluster: member.name.clone(), problem });
    }
    member.endpoints.check(request.uri()).map_err(|problem| member.bad_path(request.uri(), problem))?;
    let peer = request.extensions().get::<Peer>().copied();
    let recipient = request.extensions().get::<Recipient>().copied().unwrap_or_default();
    headers::prepare_request(request.headers_mut(), upgrade, recipient);
    member.set_identity(request.headers_mut(), identity, user)?;
    if let Some(value) = peer.and_then(Peer::address) {
        request.headers_mut().insert(X_FORWARDED_FOR, value);
    }
    Ok(upgrade)
}

/// Connections for a class of requests. Limits for clients use the same class.
fn lane(class: RequestClass) -> LaneKind {
    match class {
        RequestClass::Short => LaneKind::Short,
        RequestClass::Watch => LaneKind::Watch,
        RequestClass::Opaque => LaneKind::Opaque,
    }
}

/// Sends a prepared request without an upgrade; repeats it if the cluster rejects the credentials and there are new
/// ones.
pub(crate) async fn forward(
    member: &Arc<ClientInner>,
    mut request: Request<Body>,
    identity: RequestIdentity,
    mut user: Arc<MemberUser>,
) -> Result<Response<Body>, ForwardError> {
    let class = request.extensions().get::<RequestClass>().copied().unwrap_or_default();
    let asker = request.extensions().get::<Asker>().copied().unwrap_or_default();
    let peer = request.extensions().get::<Peer>().copied();
    let destination = Destination::from_extensions(request.extensions());
    let place = request.extensions_mut().remove::<RequestPermit>();
    request.extensions_mut().clear();
    if class == RequestClass::Watch {
        without_body(&mut request);
    }
    let claim = Claim { lane: lane(class), asker, peer };
    let limit = (!class.is_long_running()).then_some(member.tuning.head_timeout);
    let generation = member.generation();
    let mut replay = Replay::for_request(&mut request, generation);
    let mut replayed = false;
    loop {
        let (mut response, credentials) =
            member.exchange(request, &mut replay, (claim, &destination), limit, place.as_ref(), &user).await?;
        if response.status() != StatusCode::UNAUTHORIZED || user.is_a_clients {
            return member.finish(response);
        }
        let about = Box::pin(member.about_answer(&credentials, &mut response)).await;
        // A change of credentials does not show who refused: a workload that has acted may wait for it, to get the
        // request again.
        let is_unknown_sender = about != About::Us && Box::pin(replay.is_unknown_sender(&mut response)).await;
        let may_repeat = replay.is_idempotent() && !replayed;
        let is_worth_it = is_unknown_sender && may_repeat;
        let may_be_known = Box::pin(may_be_known(member, about, &user, &credentials, is_worth_it)).await;
        let again = if may_repeat && may_be_known { replay.request() } else { None };
        match again {
            Some(again) => {
                replayed = true;
                request = again;
                let now = member.user.load_full();
                if !Arc::ptr_eq(&now, &user) {
                    member.clear_identity(request.headers_mut());
                    member.set_identity(request.headers_mut(), &identity, &now)?;
                    replay = Replay::for_request(&mut request, generation);
                    user = now;
                }
            }
            None if is_unknown_sender => {
                return Err(ForwardError::UnknownSender { cluster: member.name.clone() });
            }
            None if about == About::Us => {
                let (cluster, remedy) = (member.name.clone(), user.credentials.remedy());
                return Err(ForwardError::Unauthorized { cluster, remedy });
            }
            None => return member.finish(response),
        }
    }
}

/// Whether the cluster may accept a repeated request. Rejected credentials are renewed in any case; `is_worth_it` says
/// whether the request would be repeated for an API server that did not know valid credentials.
async fn may_be_known(
    member: &ClientInner,
    about: About,
    user: &MemberUser,
    used: &Arc<Current>,
    is_worth_it: bool,
) -> bool {
    match about {
        About::Us => user.credentials.renew_after_unauthorized(used).await,
        About::Replaced => true,
        // The credentials may be invalid at a second server behind the address.
        About::Others => is_worth_it && member.retries.withdraw(Cause::Busy),
    }
}
