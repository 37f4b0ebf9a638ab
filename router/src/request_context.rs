//! Results of the server's stages that precede the router, and the router's answer.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, Uri};
use tokio::time::Instant;
use tributary_apimachinery::{Door, Mount, MountTarget, RequestClass};
use tributary_proxy::ClientUpgrade;
use tributary_rights::{CredentialValidity, RememberedActor, User};
use tributary_sharing::body::Body;

use crate::request_reading::RequestReading;
use crate::request_trace::RequestTrace;

/// Connection, host and path of a request, before authentication.
#[derive(Clone, Debug)]
pub struct RequestArrival {
    /// Address of the client; `None` for a request without a connection.
    pub peer: Option<SocketAddr>,
    /// API at the path `/`: the merged view, a cluster or the aggregated entry, chosen by listener and host name.
    pub mount: Mount,
    /// Entry through which the client reaches the API. Messages in the answer name commands and paths that work there.
    pub door: Door,
    /// Name in the path of a foreign system's door, as received; `None` at other entries. Possibly a name that the
    /// system does not have.
    pub foreign_name: Option<Arc<str>>,
    /// True if the hub must also allow the request inside the door, below this name.
    pub authorizes_inner: bool,
    /// True if the path belongs to the aggregated entry itself, not to the merged view or a cluster.
    pub is_entry_path: bool,
    /// The request's method, path and query, parsed once for audit, policies and the answer.
    pub reading: RequestReading,
    /// Facts about the request for logs, metrics and traces.
    pub trace: RequestTrace,
    /// Identity from the connection's last request, so that this request need not compute an equal identity again.
    pub remembered: Option<Arc<RememberedActor>>,
    /// Client side of an upgraded connection; `None` if the connection cannot switch protocols.
    pub upgrade: Option<ClientUpgrade>,
}

impl RequestArrival {
    /// Makes the arrival of a request without a connection. `mount` is the API at the path `/`.
    pub fn new(mount: Mount, method: &Method, uri: &Uri) -> Self {
        let mounted = mount.resolve(uri.path());
        let foreign = mount.foreign_name(uri.path());
        let door = foreign.map_or(mount.door(), |(door, _)| door);
        let authorizes_inner = foreign.is_some_and(|(door, name)| mount.authorizes_inner(door, name));
        let foreign_name = foreign.map(|(_, name)| name.into());
        let is_entry_path = mounted.as_ref().is_ok_and(|mounted| mounted.target == MountTarget::Entry);
        let reading = RequestReading::parse_mounted(mounted, method.as_str(), uri.query());
        let trace = RequestTrace::default();
        Self {
            peer: None,
            mount,
            door,
            foreign_name,
            authorizes_inner,
            is_entry_path,
            reading,
            trace,
            remembered: None,
            upgrade: None,
        }
    }
}

/// Sender of a request, as determined by authentication.
#[derive(Clone, Debug)]
pub struct AuthenticatedSender {
    /// User that the credentials prove.
    pub user: User,
    /// Time at which the credentials expire, and open streams of the sender end; `None` for credentials without expiry.
    pub until: Option<Instant>,
    /// Tells whether the credentials are still accepted; `None` if they are accepted until their expiry.
    pub credential_validity: Option<CredentialValidity>,
    /// `Authorization` header with the token of the user, for the only cluster where the user is valid: the cluster
    /// that verified the token. No other cluster gets the token, and this cluster only if its configuration allows the
    /// forwarding.
    pub own_credential: Option<HeaderValue>,
    /// True if the user's browser sends the request for a page of another site. The server refuses such a request.
    pub is_cross_origin: bool,
}

impl From<User> for AuthenticatedSender {
    fn from(user: User) -> Self {
        Self { user, until: None, credential_validity: None, own_credential: None, is_cross_origin: false }
    }
}

/// Results of the server's stages. Each stage of the router that needs a result gets this context as an argument.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// Results of the stages before authentication.
    pub arrival: RequestArrival,
    /// Authenticated sender of the request.
    pub sender: AuthenticatedSender,
}

impl RequestContext {
    /// Makes the context of this user's request to the merged view, without a connection.
    pub fn for_user<B>(user: &User, request: &Request<B>) -> Self {
        Self {
            arrival: RequestArrival::new(Mount::Merged, request.method(), request.uri()),
            sender: user.clone().into(),
        }
    }
}

/// An answer, and facts about the answer for the server.
#[derive(Debug)]
pub struct Answer {
    /// HTTP response for the client.
    pub response: Response<Body>,
    /// Class of the request. The class determines how slowly the client may read before the listener ends the
    /// connection.
    pub class: RequestClass,
    /// True if the body is a watch of a cluster's own view. Such a watch does not end by itself when the server drains.
    pub is_forwarded_watch: bool,
    /// True if the handler panicked. The server sets this field.
    pub has_panicked: bool,
}

impl Answer {
    /// Replaces the HTTP response.
    #[must_use]
    pub fn map(self, change: impl FnOnce(Response<Body>) -> Response<Body>) -> Self {
        Self { response: change(self.response), ..self }
    }
}

impl From<Response<Body>> for Answer {
    fn from(response: Response<Body>) -> Self {
        Self { response, class: RequestClass::Short, is_forwarded_watch: false, has_panicked: false }
    }
}
