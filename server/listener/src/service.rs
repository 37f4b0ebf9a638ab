//! The interface between the listener and the code that answers requests.

use std::future::Future;
use std::net::SocketAddr;

use http::{Request, Response};
use rustls_pki_types::CertificateDer;
use tributary_apimachinery::body::Body;
use tributary_apimachinery::{HostName, RequestClass};
use tributary_authentication::Authority;

use crate::refusal::ListenerRefusal;

/// Answers the requests of all connections.
pub trait RequestService: Send + Sync + 'static {
    /// The state of one connection.
    type Client: Send + Sync + 'static;

    /// Makes the state of a connection after its TLS handshake.
    fn client(&self, handshake: Handshake<'_>) -> Self::Client;

    /// Reports a TLS handshake that failed because of the client's certificate.
    fn report_refused_certificate(&self, peer: SocketAddr, reason: &str);

    /// Answers a request; every failure is an HTTP answer. Cancel: the listener drops the future when the client gives
    /// up the request.
    ///
    /// The service calls `note` once it has authenticated the request and before it acts on the request. A health
    /// check without credentials has no outcome. Where `note` or `answer_room` reports no room, the service refuses
    /// the request instead.
    fn answer_request(
        &self,
        request: Request<Body>,
        client: &Self::Client,
        note: impl FnOnce(AuthenticationOutcome<'_>) -> Room + Send,
        answer_room: RoomForAnswer<impl FnOnce(Response<Body>) -> Result<Response<Body>, ListenerRefusal> + Send>,
    ) -> impl Future<Output = ServiceAnswer> + Send;

    /// Refuses a request by its head, before it is authenticated.
    fn refuse_request<B>(&self, request: Request<B>, client: &Self::Client, refusal: ListenerRefusal) -> ServiceAnswer;

    /// Ends open watches with bookmarks and refuses new ones. The listener waits for streams that are still open.
    fn drain(&self) -> impl Future<Output = ()> + Send;
}

/// The answer to a request.
#[derive(Debug)]
pub struct ServiceAnswer {
    /// The HTTP response to the client.
    pub response: Response<Body>,
    /// The class of the request: it decides how long the client may take to read the answer.
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
    /// The address of the client, even behind proxies that send a PROXY header.
    pub address: SocketAddr,
    /// The client's certificates, leaf first.
    pub certificates: &'a [CertificateDer<'a>],
    /// The host that the client asked for (SNI).
    pub server_name: Option<HostName>,
}

/// The result of the authentication of a request, for its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthenticationOutcome<'a> {
    /// The request has a known user.
    Known {
        /// The user whose share of all connections the connection takes. `None` where the connection carries requests
        /// of many users, or there is only one user.
        user: Option<ConnectionUser<'a>>,
    },
    /// The request has no known user, and is answered 401.
    Unauthorized,
}

/// The user of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionUser<'a> {
    /// The verifier of the user, and the clusters where the user is valid.
    pub authority: &'a Authority,
    /// The name of the user, unique for one verifier.
    pub username: &'a str,
}

/// Whether a connection has room for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The connection has room.
    Enough,
    /// The client has left too much of earlier answers unread.
    Unread,
    /// The user has too many connections.
    Connections,
}

/// Whether a connection has room for the answer to a request.
pub struct RoomForAnswer<W> {
    /// Whether there is room when the request arrives.
    pub is_there: bool,
    /// Returns the answer, or the reason to refuse the answer after all: the room may be gone by then.
    pub withhold: W,
}
