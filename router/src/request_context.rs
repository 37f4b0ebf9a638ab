//! The results of the stages before the router, and the router's answer.

use http::{Method, Request, Response, Uri};
use tributary_apimachinery::{Mount, RequestClass};
use tributary_proxy::{ClientUpgrade, Peer};
use tributary_rights::{AuthenticatedUntil, RememberedActor, StillKnown, User};
use tributary_sharing::body::Body;

use crate::own_credential::OwnCredential;
use crate::request_reading::RequestReading;
use crate::request_trace::RequestTrace;

/// Connection, host and path of a request, before authentication.
#[derive(Clone, Debug)]
pub struct RequestArrival {
    /// The client's end of the connection; `None` for a request without a connection.
    pub peer: Option<Peer>,
    /// The API at the root of the request's path, by its host.
    pub mount: Mount,
    /// The only reading of the method, path and query: audit, policies and the answer go by it.
    pub reading: RequestReading,
    /// The facts for logs, metrics and traces.
    pub trace: RequestTrace,
    /// The identity of the connection's last request, so that the next one does not compute it again.
    pub remembered: Option<RememberedActor>,
    /// The client's side of an upgrade; `None` if the connection cannot be switched.
    pub upgrade: Option<ClientUpgrade>,
}

impl RequestArrival {
    /// A request without a connection. `mount` is the API at the root of its path.
    pub fn new(mount: Mount, method: &Method, uri: &Uri) -> Self {
        let reading = RequestReading::parse(&mount, method.as_str(), uri.path(), uri.query());
        Self { peer: None, mount, reading, trace: RequestTrace::default(), remembered: None, upgrade: None }
    }
}

/// The result of authentication.
#[derive(Clone, Debug)]
pub struct AuthenticatedSender {
    /// The authenticated user.
    pub user: User,
    /// The end of the credentials; `None` for credentials without an end.
    pub until: Option<AuthenticatedUntil>,
    /// Says whether the credentials are still accepted; `None` if that cannot change.
    pub still_known: Option<StillKnown>,
    /// The token of the user, for the cluster that vouches for it.
    pub own_credential: Option<OwnCredential>,
    /// Whether the user's browser sends the request for a page of another site. The server refuses it.
    pub is_cross_origin: bool,
}

impl From<User> for AuthenticatedSender {
    fn from(user: User) -> Self {
        Self { user, until: None, still_known: None, own_credential: None, is_cross_origin: false }
    }
}

/// The results of the server's stages. Each stage of the router that needs a result gets this context as an argument.
#[derive(Clone, Debug)]
pub struct RequestContext {
    /// The stages before authentication.
    pub arrival: RequestArrival,
    /// The authenticated sender of the request.
    pub sender: AuthenticatedSender,
}

impl RequestContext {
    /// A request of this user to the merged view, without a connection.
    pub fn for_user<B>(user: &User, request: &Request<B>) -> Self {
        Self {
            arrival: RequestArrival::new(Mount::Merged, request.method(), request.uri()),
            sender: user.clone().into(),
        }
    }
}

/// An answer, and facts about it for the server.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP response for the client.
    pub response: Response<Body>,
    /// The class of the request: the connection decides by it how long the client may take to read.
    pub class: RequestClass,
    /// Whether the body is a cluster's own watch. Such a watch does not end by itself when the server drains.
    pub is_forwarded_watch: bool,
    /// Whether the handler panicked. The server sets it.
    pub has_panicked: bool,
}

impl Answer {
    /// The same answer with another response.
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
