//! Upgraded requests: exec, attach, port-forward and the `proxy` subresource.
//!
//! Each upgraded request gets a separate HTTP/1.1 connection. Bytes are copied only after both the client's and the
//! cluster's connection have switched protocols. Any response except a matching 101 is an ordinary response. Then no
//! byte of the client after its request reaches the cluster (CVE-2018-1002105, CVE-2020-8559). The number of a user's
//! upgrade requests without a 101 is limited, unless kube-apiserver itself switches protocols (`failed_upgrades.rs`).

pub(crate) mod tunnel;

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::OnUpgrade;
use tributary_apimachinery::body::{self, Body};
use tributary_apimachinery::{Permit, explain, or_pending};

use crate::client_upgrade::ClientUpgrade;
use crate::credentials::CurrentCredentials;
use crate::credentials::user::MemberUser;
use crate::endpoints::criteria::PreviousAttempt;
use crate::endpoints::destination::Destination;
use crate::endpoints::endpoint::{Endpoint, EndpointRequest};
use crate::error::ForwardError;
use crate::forward::member_body::{BodyReader, BodySource, MemberAnswer, MemberBody};
use crate::forward::unauthorized::{UnauthorizedCause, is_sent_by_api_server};
use crate::forward_context::ForwardContext;
use crate::headers::{self, UpgradeProtocol};
use crate::health::responder::Responder;
use crate::member::ClientInner;
use crate::permit_pool::RequestOrigin;
use crate::pool::StreamClass;
use crate::pool::dial::Dialed;
use crate::tunnel_end::TunnelEnd;
use crate::upgrade::tunnel::copy_both_ways;

/// Forwards a prepared upgrade request as this user of the cluster.
pub(crate) async fn forward(
    member: &Arc<ClientInner>,
    mut request: Request<Body>,
    protocol: UpgradeProtocol,
    context: &mut ForwardContext,
    user: &MemberUser,
) -> Result<Response<Body>, ForwardError> {
    let ClientUpgrade { connection: client, permits } = member.client_side(&request, context)?;
    let (end, destination) = (context.tunnel_end.take(), context.destination());
    // Removes the extensions that hyper's server has added to the client's request.
    request.extensions_mut().clear();
    let mut token = member
        .upgrades
        .begin(&context.identity, request.method(), request.uri())
        .map_err(|retry_after| ForwardError::TooManyFailedUpgrades { cluster: member.name.clone(), retry_after })?;
    let generation = member.generation();
    let tunnel_permit = member.tuning.tunnel_permits.acquire().ok_or_else(|| member.tunnels_are_full())?;
    let credentials = member.credentials(user).await?;
    credentials.authorize(request.headers_mut());
    let (endpoint_request, mut sender) = connect(member, &credentials, &destination).await?;
    member.check_generation(generation)?;
    if let Some(token) = &mut token {
        token.spend();
    }
    let path = request.uri().clone();
    let request = member.in_http1_form(request, &endpoint_request.endpoint, &path)?;
    let method = request.method().clone();
    let response = member.head(sender.try_send_request(request), None).await.map_err(|failed| failed.error)?;
    endpoint_request.endpoint.record_response_head(Responder::from_status(response.status()));
    endpoint_request.endpoint.record_status(response.status());
    // The request stays in flight until the response ends, with or without a 101.
    let endpoint = endpoint_request.endpoint.clone();
    let permit = Permit::from_guard((endpoint_request, tunnel_permit, permits));
    let unauthorized_cause = match response.status() {
        StatusCode::UNAUTHORIZED if !user.is_user_token => {
            member.unauthorized_cause(&credentials, &endpoint, &context.identity).await
        }
        _ => UnauthorizedCause::OtherServer,
    };
    match response.status() {
        StatusCode::SWITCHING_PROTOCOLS if headers::upgrade_protocol(response.headers()) == Ok(Some(protocol)) => {
            if let Some(token) = token {
                token.give_back();
            }
            let occupied = TunnelResources { permit, end };
            Ok(join(member, endpoint, client, response, protocol, occupied))
        }
        StatusCode::SWITCHING_PROTOCOLS => {
            let problem = format!("101 without Upgrade: {}", protocol.as_str());
            Err(ForwardError::BadUpgrade { cluster: member.name.clone(), problem })
        }
        StatusCode::UNAUTHORIZED if unauthorized_cause == UnauthorizedCause::CredentialsRejected => {
            // An upgrade is not repeated here. The renewed credentials serve the next attempt of the client.
            user.credentials.renew_after_unauthorized(&credentials).await;
            Err(ForwardError::Unauthorized { cluster: member.name.clone(), remedy: user.credentials.remedy() })
        }
        status => {
            let mut response = not_switched(member, endpoint, response, permit)?;
            let may_be_about_us = status == StatusCode::UNAUTHORIZED && !user.is_user_token;
            if may_be_about_us && is_sent_by_api_server(&method, &path, &mut response).await {
                return Err(ForwardError::UnknownSender { cluster: member.name.clone() });
            }
            Ok(response)
        }
    }
}

fn not_switched(
    member: &ClientInner,
    endpoint: Arc<Endpoint>,
    response: Response<Incoming>,
    permit: Permit,
) -> Result<Response<Body>, ForwardError> {
    let (responder, shutdown) = (Responder::from_status(response.status()), Some(member.tuning.shutdown.clone()));
    let response = response.map(|incoming| {
        // Over HTTP/1.1 hyper itself reports a response that ends too early. So the end of the body needs no check
        // here.
        let source = BodySource { endpoint, responder, reader: BodyReader::Any, has_marked_end: false };
        let answer = MemberAnswer::Usual(incoming);
        MemberBody::boxed(answer, Some(permit), None, member.name.clone(), source, shutdown)
    });
    member.finish(response)
}

/// Opens a connection for one request, and drives the connection.
async fn connect(
    member: &ClientInner,
    credentials: &Arc<CurrentCredentials>,
    destination: &Destination,
) -> Result<(EndpointRequest, http1::SendRequest<Body>), ForwardError> {
    let opened = member.endpoints.open(
        (StreamClass::Streamed, RequestOrigin::Client),
        destination,
        &PreviousAttempt::NotTried,
        |endpoint| {
            let credentials = credentials.clone();
            async move { endpoint.pool.dial_http1(&credentials).await }
        },
    );
    let (endpoint_request, dialed) = opened.await?;
    endpoint_request.endpoint.count();
    let Dialed::Http1(sender, connection) = dialed else {
        let problem = "the server negotiated HTTP/2, which the client did not offer".to_owned();
        return Err(ForwardError::BadUpgrade { cluster: member.name.clone(), problem });
    };
    let cluster = member.name.clone();
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%cluster, error = explain(&error), "connection of an upgraded request broke");
        }
    });
    Ok((endpoint_request, sender))
}

struct TunnelResources {
    /// Permit that is kept until one connection closes, or until the tunnel's end signal.
    permit: Permit,
    end: Option<TunnelEnd>,
}

/// Returns the 101 for the client. Starts a task that copies bytes between both connections after the 101 was sent. The
/// task keeps the request's permits until one connection closes, or until `end`.
fn join(
    member: &ClientInner,
    endpoint: Arc<Endpoint>,
    client: OnUpgrade,
    mut response: Response<Incoming>,
    protocol: UpgradeProtocol,
    TunnelResources { permit, end }: TunnelResources,
) -> Response<Body> {
    let upgraded = hyper::upgrade::on(&mut response);
    let (mut head, _nothing) = response.into_parts();
    head.extensions.clear();
    headers::prepare_response(&mut head.headers, Some(protocol));
    let (shutdown, cluster) = (member.tuning.shutdown.clone(), member.name.clone());
    member.tuning.tunnels.spawn(async move {
        // Moves the permit into the task, so that the permit is kept until the task ends.
        let _permit = permit;
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = or_pending(end.map(TunnelEnd::wait)) => {}
            ended = copy_both_ways(client, upgraded, Arc::clone(&endpoint)) => {
                if let Some(error) = ended {
                    endpoint.record_broken_stream(&cluster, &error);
                }
            }
        }
        tracing::debug!(%cluster, protocol = protocol.as_str(), "tunnel ended");
    });
    Response::from_parts(head, body::empty())
}

impl ClientInner {
    /// Takes the client's connection from the request.
    ///
    /// # Errors
    /// [`ForwardError::UpgradeRefused`] for a connection that cannot switch protocols.
    fn client_side(
        &self,
        request: &Request<Body>,
        context: &mut ForwardContext,
    ) -> Result<ClientUpgrade, ForwardError> {
        let refused =
            |problem: &str| ForwardError::UpgradeRefused { cluster: self.name.clone(), problem: problem.to_owned() };
        if !request.body().is_end_stream() {
            return Err(refused("the request has a body"));
        }
        context.upgrade.take().ok_or_else(|| refused("the connection cannot switch"))
    }

    fn tunnels_are_full(&self) -> ForwardError {
        let (cluster, limit) = (self.name.clone(), self.tuning.tunnel_permits.all());
        ForwardError::Full { cluster, what: "upgraded connections (exec, attach, port-forward) to clusters", limit }
    }
}
