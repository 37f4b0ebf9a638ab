//! What every request passes before the handler: which host it is for, whether its cluster is sent anything at all,
//! authentication, the server's own paths, WebSockets, the catching of panics, the request log, the audit log.

mod drain;
mod observed;
mod own_paths;
pub mod policy_question;
mod service;
mod websocket;

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use http::request::Parts;
use http::{Request, Response};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::{HostName, RequestInfo};
use tributary_hosts::Hosts;
use tributary_listener::{AuthenticationOutcome, ConnectionUser, ListenerRefusal, Room, RoomForAnswer};
use tributary_records::audit::{AuditedRequest, Auditor, Panicked};
use tributary_router::{ForwardedWatch, Peer, RememberedActor, User};

use crate::authentication::{
    Authentication, Authenticator, ClientChain, Unauthenticated, UnknownClients, anonymous_user,
};
use crate::handler::{Body, Handler};
use crate::metrics::ServerMetrics;
use crate::status;
use observed::Observed;
pub use observed::Observers;
use own_paths::OwnPath;

/// Who sends a request that is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    /// A known user's.
    Known,
    /// A known user's, by the doing of another site's page: it is refused.
    CrossOrigin,
    /// Nobody's: a plain health check.
    Anonymous,
}

/// Whom a connection is with.
#[derive(Debug)]
pub struct Client {
    /// Where it comes from.
    pub address: SocketAddr,
    /// The certificates that it proved itself by.
    pub chain: Arc<ClientChain>,
    /// The host that it asked for in TLS (SNI).
    pub server_name: Option<HostName>,
    /// Who sent its last request, as members see them.
    pub actor: RememberedActor,
}

/// The front of the server: one per process, shared by all connections.
pub struct Front<H> {
    handler: Arc<H>,
    authenticator: Authenticator,
    metrics: ServerMetrics,
    stop: CancellationToken,
    audit: Option<Arc<Auditor>>,
    observers: Observers,
    hosts: Arc<Hosts>,
    unknown_clients: UnknownClients,
}

impl<H: Handler> Front<H> {
    /// Puts an authenticator before a handler. Once `stop` is cancelled, forwarded watches end.
    pub fn new(handler: Arc<H>, authenticator: Authenticator, stop: CancellationToken) -> Self {
        let metrics = ServerMetrics::default();
        handler.register_metrics(&mut |registry| metrics.register(registry));
        Self {
            handler,
            authenticator,
            metrics,
            stop,
            audit: None,
            observers: Observers::default(),
            hosts: Arc::default(),
            unknown_clients: UnknownClients::default(),
        }
    }

    /// Has requests written to an audit log.
    #[must_use]
    pub fn audited(self, audit: Option<Arc<Auditor>>) -> Self {
        if let Some(audit) = &audit {
            self.handler.register_metrics(&mut |registry| audit.register(registry));
        }
        Self { audit, ..self }
    }

    /// Has requests written to an access log, and traced.
    #[must_use]
    pub fn observed(self, observers: Observers) -> Self {
        if let Some(log) = &observers.access_log {
            self.handler.register_metrics(&mut |registry| log.register(registry));
        }
        if let Some(tracer) = &observers.tracer {
            self.handler.register_metrics(&mut |registry| tracer.register(registry));
        }
        Self { observers, ..self }
    }

    /// Tells requests apart by these hosts.
    #[must_use]
    pub fn at(self, hosts: Arc<Hosts>) -> Self {
        Self { hosts, ..self }
    }

    /// The server's own metrics.
    pub fn own_metrics(&self) -> &ServerMetrics {
        &self.metrics
    }

    /// Answers one request; never fails.
    ///
    /// The request log is at debug level: method, path, status and time to the head of the answer; never the query
    /// (exec's holds commands), headers, bodies or tokens. `note` is told before the answer is begun who asked, and
    /// says whether there is room for them; a health check says nothing about that. Once that is known, a request is
    /// refused before anything is done where there is none, or where `answer_room` is none.
    pub async fn call(
        &self,
        mut request: Request<Body>,
        client: &Client,
        note: impl FnOnce(AuthenticationOutcome<'_>) -> Room,
        answer_room: RoomForAnswer<impl FnOnce(Response<Body>) -> Result<Response<Body>, ListenerRefusal>>,
    ) -> Response<Body> {
        let line = tracing::enabled!(tracing::Level::DEBUG)
            .then(|| (Instant::now(), request.method().clone(), request.uri().path().to_owned()));
        let mut observed = self.observers.begin(&request, client.address);
        request.extensions_mut().insert(Peer(client.address));
        request.extensions_mut().insert(client.actor.clone());
        let response = self.answer_request(request, client, note, answer_room, &mut observed).await;
        if let Some((start, method, path)) = line {
            let latency_ms = start.elapsed().as_secs_f64() * 1e3;
            tracing::debug!(%method, path, status = response.status().as_u16(), latency_ms, "request");
        }
        observed.finish(response)
    }

    /// Refuses a request by its head alone, before it is known whose it is. It is counted and has its line in the
    /// access log; like what is refused by its host it has no audit event.
    pub fn refuse<B>(&self, request: Request<B>, client: &Client, refusal: ListenerRefusal) -> Response<Body> {
        let mut observed = self.observers.begin(&request, client.address);
        let (mut head, _) = request.into_parts();
        // What it asks for is written where its host has an API.
        if self.hosts.place(&mut head, client.server_name.as_ref()).is_ok() {
            observed.placed(&mut head);
        }
        observed.finish(self.refused(refusal))
    }

    /// What a request is answered that is refused, which is counted.
    pub fn refused(&self, refusal: ListenerRefusal) -> Response<Body> {
        self.metrics.listener.count_refused(refusal);
        status::response(&refusal.status())
    }

    async fn answer_request(
        &self,
        request: Request<Body>,
        client: &Client,
        note: impl FnOnce(AuthenticationOutcome<'_>) -> Room,
        answer_room: RoomForAnswer<impl FnOnce(Response<Body>) -> Result<Response<Body>, ListenerRefusal>>,
        observed: &mut Observed,
    ) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        if let Some(refused) = self.refuse_unheard(&mut head, client, observed) {
            // Nobody is known yet, and whoever sends such requests alone is not kept.
            let _it_is_refused_either_way = note(AuthenticationOutcome::Unauthorized);
            return refused;
        }
        let received =
            self.audit.as_ref().map(|audit| AuditedRequest::take_up(audit, &mut head, !client.chain.is_empty()));
        observed.placed(&mut head);
        let (user, sender) = match self.authenticate(&mut head, client).await {
            Ok(known) => known,
            Err(why) => {
                let _it_is_refused_either_way = note(AuthenticationOutcome::Unauthorized);
                let answer = status::unauthorized(&why);
                return match received {
                    Some(received) => received.refuse(&mut head, answer).await,
                    None => answer,
                };
            }
        };
        let mut room = if answer_room.is_there { Room::Enough } else { Room::Unread };
        if sender != Sender::Anonymous {
            observed.set_user(&user);
            tributary_records::traces::forget_unless_obeyed(&mut head, &user);
            let noted = note(AuthenticationOutcome::Known {
                user: user.authority.verifier.has_own_connection().then_some(connection_user(&user)),
            });
            room = if noted == Room::Enough { room } else { noted };
        }
        // Before anything is written of it.
        let given = |answer| (answer_room.withhold)(answer).unwrap_or_else(|refusal| self.refused(refusal));
        let Some(received) = received else { return given(self.respond(head, body, user, sender, room).await) };
        let level = |head: &Parts, info: &RequestInfo| match OwnPath::from_head(head) {
            // It passes no policies.
            Some(_) => None,
            None => self.handler.audit_level(head, info, &user),
        };
        match received.begin(&mut head, body, &user, level).await {
            Ok((trail, body)) => trail.finish(given(self.respond(head, body, user, sender, room).await)).await,
            Err(refusal) => *refusal,
        }
    }

    /// The answer to a request that is refused whoever sends it: by its host, or because nothing is sent to its
    /// cluster.
    fn refuse_unheard(&self, head: &mut Parts, client: &Client, observed: &mut Observed) -> Option<Response<Body>> {
        if let Err(refusal) = self.hosts.place(head, client.server_name.as_ref()) {
            self.metrics.count_refused_host(refusal);
            return Some(status::refused_host(refusal));
        }
        let refused = self.handler.refuse_unheard(head)?;
        observed.placed(head);
        Some(refused)
    }

    /// Authenticates the sender of a request, and counts the result.
    ///
    /// # Errors
    /// [`Unauthenticated`] without accepted credentials. The log gets a line.
    async fn authenticate(&self, head: &mut Parts, client: &Client) -> Result<(User, Sender), Unauthenticated> {
        match self.authenticator.authenticate(head, &client.chain, client.address.ip()).await {
            // A health check says nothing about its sender, and is no attempt.
            Authentication::AnonymousHealthCheck => Ok((anonymous_user(), Sender::Anonymous)),
            Authentication::User(user) => {
                self.metrics.count_authentication(true);
                Ok((user, Sender::Known))
            }
            Authentication::CrossOrigin(user) => {
                self.metrics.count_authentication(true);
                Ok((user, Sender::CrossOrigin))
            }
            Authentication::Unauthorized(why) => {
                self.metrics.count_authentication(false);
                self.unknown_clients.log_request(client.address, &why);
                Err(why)
            }
        }
    }

    async fn respond(&self, mut head: Parts, body: Body, user: User, sender: Sender, room: Room) -> Response<Body> {
        if room == Room::Connections {
            return self.refused(ListenerRefusal::TooManyConnections);
        }
        if sender == Sender::CrossOrigin {
            return self.refused(ListenerRefusal::CrossOrigin);
        }
        let own_path = OwnPath::from_head(&head);
        if own_path.is_some()
            && let Err(refusal) = self.handler.may_visit(&head, &user).await
        {
            return *refusal;
        }
        // Metrics are answered all the same: they show what is left unread.
        if room == Room::Unread && own_path != Some(OwnPath::Metrics) {
            return self.refused(ListenerRefusal::TooManyUnread);
        }
        if let Some(path) = own_path {
            return path.answer_request(&self.handler, &self.metrics, &head).await;
        }
        let handshake = websocket::take_handshake(&mut head);
        let handled = AssertUnwindSafe(self.handler.handle(Request::from_parts(head, body), user)).catch_unwind();
        match handled.await {
            Ok(response) if sender == Sender::Anonymous => status::one_word(&response),
            Ok(response) if response.extensions().get::<ForwardedWatch>().is_some() => {
                drain::end_with(self.stop.clone(), response)
            }
            Ok(response) => match handshake {
                Some(handshake) => handshake.switch_protocol(response),
                None => response,
            },
            // The panic hook has logged the place.
            Err(_) => {
                self.metrics.panics.inc();
                let mut response = status::internal_error();
                response.extensions_mut().insert(Panicked);
                response
            }
        }
    }
}

fn connection_user(user: &User) -> ConnectionUser<'_> {
    ConnectionUser { authority: &user.authority, username: &user.info.username }
}
