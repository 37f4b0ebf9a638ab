//! The interface between the listener and the service that answers requests.

use std::future::Future;
use std::net::SocketAddr;

use http::{Request, Response};
use rustls_pki_types::CertificateDer;
use tributary_apimachinery::body::Body;
use tributary_apimachinery::{HostName, RequestClass};
use tributary_authentication::User;

use crate::refusal::ListenerRefusal;

/// Answers the requests of all connections.
pub trait RequestService: Send + Sync + 'static {
    /// The service's state of one connection.
    type Client: Send + Sync + 'static;

    /// Creates the state of a connection after its TLS handshake.
    fn client(&self, handshake: Handshake<'_>) -> Self::Client;

    /// Reports a TLS handshake that failed because of the client's certificate.
    fn report_refused_certificate(&self, peer: SocketAddr, reason: &str);

    /// Returns whether the answer to a request is small and constant, for example a health check without lines for
    /// clusters. Clients need such an answer even if they have not read other answers of the connection. So the request
    /// does not wait for capacity, and is not refused without capacity.
    fn has_constant_answer<B>(&self, request: &Request<B>) -> bool;

    /// Answers a request; every failure is an HTTP answer. Cancel: the listener drops the future when the client
    /// cancels the request.
    ///
    /// The service calls `record_outcome` after it has authenticated the request and before it executes the request. A
    /// health check without credentials is not authenticated, so it needs no call. If `record_outcome` or
    /// `answer_capacity` reports an exceeded limit of the connection or its user, the service refuses the request.
    fn answer_request(
        &self,
        request: Request<Body>,
        client: &Self::Client,
        record_outcome: impl FnOnce(AuthenticationOutcome<'_>) -> LimitCheck + Send,
        answer_capacity: AnswerCapacity<impl FnOnce(Response<Body>) -> Result<Response<Body>, ListenerRefusal> + Send>,
    ) -> impl Future<Output = ServiceAnswer> + Send;

    /// Answers a request that the listener refuses before authentication.
    fn refuse_request<B>(&self, request: Request<B>, client: &Self::Client, refusal: ListenerRefusal) -> ServiceAnswer;

    /// Ends open watches with bookmarks, and refuses new watches. The listener waits for streams that are still open.
    fn drain(&self) -> impl Future<Output = ()> + Send;
}

/// A service's answer to a request.
#[derive(Debug)]
pub struct ServiceAnswer {
    /// The HTTP response to the client.
    pub response: Response<Body>,
    /// The class of the request, which determines the time limit for reading the answer.
    pub class: RequestClass,
}

impl From<Response<Body>> for ServiceAnswer {
    fn from(response: Response<Body>) -> Self {
        Self { response, class: RequestClass::Short }
    }
}

/// The facts about a client from the TLS handshake.
#[derive(Clone, Debug)]
pub struct Handshake<'a> {
    /// The client's address, which a PROXY header reports for clients behind a proxy.
    pub address: SocketAddr,
    /// The client's certificates, leaf first.
    pub certificates: &'a [CertificateDer<'a>],
    /// The host name in the client's SNI.
    pub server_name: Option<HostName>,
}

/// The authentication result of a request, which the service reports to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationOutcome<'a> {
    /// The request is authenticated.
    Authenticated {
        /// The user for whom the connection is counted. `None` if the connection carries requests of many users, or if
        /// there is only one user.
        user: Option<&'a User>,
    },
    /// The request is not authenticated, and gets a 401.
    Unauthorized,
}

/// The result of checking the limits for a request on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitCheck {
    /// The connection may serve the request without exceeding a limit.
    WithinLimits,
    /// The client has too many unread bytes of earlier answers.
    TooManyUnread,
    /// The user of the request has too many connections.
    TooManyConnections,
}

/// The check whether a connection has capacity for the answer to a request.
pub struct AnswerCapacity<W> {
    /// True if the service may begin the request. False if the connection had no capacity when the request arrived, and
    /// the wait for capacity failed.
    pub is_available: bool,
    /// Checks the capacity for the finished answer. Returns the answer, or the reason to refuse the request.
    pub reserve_answer: W,
}
