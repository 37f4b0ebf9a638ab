//! The stages that a request passes before the router. The code of `Front::answer_request` and `Front::respond` lists
//! the stages in order, with the reason for each position.

mod drain;
mod entry;
mod observed;
mod open_doors;
mod own_paths;
pub mod policy_test;
mod websocket;

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use http::request::Parts;
use http::{Request, Response};
use hyper::upgrade::OnUpgrade;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tributary_apimachinery::{AuditLevel, HostName};
use tributary_hosts::HostRefusal;
use tributary_listener::{AnswerCapacity, AuthenticationOutcome, LimitCheck, ListenerRefusal};
use tributary_records::audit::{AuditedRequest, Auditor};
use tributary_router::{Answer, AuthenticatedSender, ClientUpgrade, RememberedActor, RequestArrival, RequestContext};

use crate::authentication::{AuthenticationFailureLog, ClientChain, Unauthenticated};
use crate::handler::{Body, Handler};
use crate::metrics::{HubView, ServerMetrics};
use crate::status;
pub use entry::{Entry, EntryService};
pub use observed::Observers;
use observed::RequestRecords;
pub use open_doors::OpenDoors;
use own_paths::OwnPath;

/// The facts about the client of one connection.
#[derive(Debug)]
pub struct Client {
    /// The entry to which the client is connected.
    pub entry: Arc<Entry>,
    /// The IP address and port of the client.
    pub address: SocketAddr,
    /// The client certificates of the TLS handshake.
    pub chain: Arc<ClientChain>,
    /// The host name in the client's SNI.
    pub server_name: Option<HostName>,
    /// The user of the connection's last request, cached in the form that clusters receive.
    pub actor: Arc<RememberedActor>,
}

/// The front of the server, through which every request passes. A process has one front for all entries.
pub struct Front<H> {
    handler: Arc<H>,
    metrics: ServerMetrics,
    stop: CancellationToken,
    audit: Option<Arc<Auditor>>,
    observers: Observers,
    authentication_failures: AuthenticationFailureLog,
}

impl<H: Handler> Front<H> {
    /// Creates the front of a handler. Cancelling `stop` ends forwarded watches.
    pub fn new(handler: Arc<H>, stop: CancellationToken) -> Self {
        let metrics = ServerMetrics::default();
        handler.register_metrics(&mut |registry| metrics.register(registry));
        Self {
            handler,
            metrics,
            stop,
            audit: None,
            observers: Observers::default(),
            authentication_failures: AuthenticationFailureLog::default(),
        }
    }

    /// Adds the hub to the report and the metrics. A second call has no effect.
    pub fn follow_hub(&self, hub: HubView) {
        if self.metrics.hub.set(hub.clone()).is_ok() {
            self.handler.register_metrics(&mut |registry| hub.register(registry));
        }
    }

    /// Adds an audit log to the front.
    #[must_use]
    pub fn audited(self, audit: Option<Arc<Auditor>>) -> Self {
        if let Some(audit) = &audit {
            self.handler.register_metrics(&mut |registry| audit.register(registry));
        }
        Self { audit, ..self }
    }

    /// Adds an access log and a tracer to the front.
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

    /// Returns the server's own metrics.
    pub fn own_metrics(&self) -> &ServerMetrics {
        &self.metrics
    }

    /// Answers one request; every failure is an HTTP answer.
    ///
    /// The log at debug level contains the method, path, status and time to the head of the answer. The log never
    /// contains the query (an exec's query contains commands), headers, bodies or tokens.
    ///
    /// `record_outcome` receives the result of the authentication before the answer begins. `record_outcome` is not
    /// called for an unauthenticated health check. If `record_outcome` or `answer_capacity` reports an exceeded limit
    /// of the connection or its user, the request is refused before it has an effect.
    pub async fn call(
        &self,
        request: Request<Body>,
        client: &Client,
        record_outcome: impl FnOnce(AuthenticationOutcome<'_>) -> LimitCheck,
        answer_capacity: AnswerCapacity<impl FnOnce(Response<Body>) -> Result<Response<Body>, ListenerRefusal>>,
    ) -> Answer {
        let line = tracing::enabled!(tracing::Level::DEBUG)
            .then(|| (Instant::now(), request.method().clone(), request.uri().path().to_owned()));
        let mut observed = self.observers.begin(&request, client.address);
        let answer = self.answer_request(request, client, record_outcome, answer_capacity, &mut observed).await;
        if let Some((start, method, path)) = line {
            let latency_ms = start.elapsed().as_secs_f64() * 1e3;
            tracing::debug!(%method, path, status = answer.response.status().as_u16(), latency_ms, "request");
        }
        answer.map(|response| observed.finish(response))
    }

    /// Answers a request that the listener refuses before authentication. The refusal is counted, and has a line in the
    /// access log. Like a request that is refused because of its host, the request has no audit event.
    pub fn refuse<B>(&self, request: Request<B>, client: &Client, refusal: ListenerRefusal) -> Response<Body> {
        let mut observed = self.observers.begin(&request, client.address);
        let (mut head, _) = request.into_parts();
        // The access log line contains the request's target only if the request's host selects an API.
        if let Ok(arrival) = self.arrive(&mut head, client) {
            observed.record_target(&arrival);
        }
        observed.finish(self.refused(refusal))
    }

    /// Counts a request that the listener refused, and returns its answer.
    pub fn refused(&self, refusal: ListenerRefusal) -> Response<Body> {
        self.metrics.listener.count_refused(refusal);
        status::response(&refusal.status())
    }

    async fn answer_request(
        &self,
        request: Request<Body>,
        client: &Client,
        record_outcome: impl FnOnce(AuthenticationOutcome<'_>) -> LimitCheck,
        answer_capacity: AnswerCapacity<impl FnOnce(Response<Body>) -> Result<Response<Body>, ListenerRefusal>>,
        observed: &mut RequestRecords,
    ) -> Answer {
        let (mut head, body) = request.into_parts();
        // Stage: parse host and path. This stage is the first, because the logs and all later stages depend on the API
        // that the host selects.
        let mut arrival = match self.arrive(&mut head, client) {
            Ok(arrival) => arrival,
            Err(refusal) => {
                self.metrics.count_refused_host(refusal);
                let _it_is_refused_either_way = record_outcome(AuthenticationOutcome::Unauthorized);
                return status::refused_host(refusal).into();
            }
        };
        // Stage: policies that refuse every request to a cluster. These policies precede authentication, because
        // authentication may send a TokenReview to that cluster. The aggregated entry omits this stage: its
        // authentication sends nothing to clusters, and a refusal here would show the state of a cluster to an
        // unauthenticated client.
        if arrival.door.asks_members_about_users()
            && let Some(refused) = self.handler.refuse_unheard(&head, &arrival)
        {
            observed.record_target(&arrival);
            // The result of `record_outcome` is ignored, because the request is refused in any case. The listener
            // closes a connection whose requests are all refused.
            let _it_is_refused_either_way = record_outcome(AuthenticationOutcome::Unauthorized);
            return refused.into();
        }
        // Stage: audit, access log and traces. These records begin before authentication, because they include
        // unauthenticated requests.
        client.entry.authenticator.remove_untrusted_audit_id(&mut head, &client.chain);
        let received =
            self.audit.as_ref().map(|audit| AuditedRequest::assign_id(audit, &mut head, !client.chain.is_empty()));
        if let Some(received) = &received {
            arrival.trace = received.trace().clone();
        }
        observed.record_target(&arrival);
        // Stage: authentication of the sender.
        let sender = match self.authenticate(&mut head, &arrival, client).await {
            Ok(known) => known,
            Err(why) => {
                let _it_is_refused_either_way = record_outcome(AuthenticationOutcome::Unauthorized);
                let answer = status::unauthorized(&why, arrival.door);
                return match received {
                    Some(received) => received.refuse(&head, &arrival, answer).await.into(),
                    None => answer.into(),
                };
            }
        };
        let mut limit_check =
            if answer_capacity.is_available { LimitCheck::WithinLimits } else { LimitCheck::TooManyUnread };
        let user = &sender.user;
        if !user.authority.is_anonymous() {
            observed.set_user(user);
            tributary_records::traces::remove_untrusted_trace_headers(&mut head.headers, &arrival.reading, user);
            let noted = record_outcome(AuthenticationOutcome::Authenticated {
                user: user.authority.has_own_connection().then_some(user),
            });
            limit_check = if noted == LimitCheck::WithinLimits { limit_check } else { noted };
        }
        let context = RequestContext { arrival, sender };
        // The first audit event is written before the request has an effect. An answer for which the connection has no
        // capacity is replaced before its records are written.
        let given = |Answer { response, class, is_forwarded_watch, has_panicked }| match (answer_capacity
            .reserve_answer)(
            response
        ) {
            Ok(response) => Answer { response, class, is_forwarded_watch, has_panicked },
            Err(refusal) => self.refused(refusal).into(),
        };
        let admitted = AdmittedRequest { context, limit_check, entry: &client.entry };
        let Some(received) = received else { return given(self.respond(head, body, admitted).await) };
        let level = self.audit_level(&head, &admitted.context);
        match received.begin(&head, body, &admitted.context, level).await {
            Ok((trail, body)) => trail.finish(given(self.respond(head, body, admitted).await)).await,
            Err(refusal) => (*refusal).into(),
        }
    }

    /// Parses the host and the path of a request, and takes the connection from hyper for a possible upgrade.
    ///
    /// # Errors
    /// [`HostRefusal`].
    fn arrive(&self, head: &mut Parts, client: &Client) -> Result<RequestArrival, HostRefusal> {
        let mount = client.entry.mount(head, client.server_name.as_ref())?;
        let mut arrival = RequestArrival::new(mount, &head.method, &head.uri);
        arrival.peer = Some(client.address);
        arrival.remembered = Some(Arc::clone(&client.actor));
        arrival.upgrade = head.extensions.remove::<OnUpgrade>().map(ClientUpgrade::new);
        Ok(arrival)
    }

    /// Returns the audit level that a dispatch policy sets. Policies do not apply to the server's own paths.
    fn audit_level(&self, head: &Parts, context: &RequestContext) -> Option<AuditLevel> {
        let info = context.arrival.reading.info().ok()?;
        match OwnPath::from_head(head, &context.arrival.mount) {
            Some(_) => None,
            None => self.handler.audit_level(head, info, context),
        }
    }

    /// Authenticates the sender of a request, and counts the result.
    ///
    /// # Errors
    /// [`Unauthenticated`] without accepted credentials; the failure is logged.
    async fn authenticate(
        &self,
        head: &mut Parts,
        arrival: &RequestArrival,
        client: &Client,
    ) -> Result<AuthenticatedSender, Unauthenticated> {
        let authenticator = &client.entry.authenticator;
        let known = authenticator.authenticate(head, &arrival.mount, &client.chain, client.address.ip()).await;
        match &known {
            // An unauthenticated health check is not counted as an authentication attempt.
            Ok(sender) if sender.user.authority.is_anonymous() => {}
            Ok(_) => self.metrics.count_authentication(true),
            Err(why) => {
                self.metrics.count_authentication(false);
                self.authentication_failures.log_request(client.address, why);
            }
        }
        known
    }

    /// Runs the stages of a request after authentication.
    async fn respond(&self, mut head: Parts, body: Body, admitted: AdmittedRequest<'_>) -> Answer {
        let AdmittedRequest { mut context, limit_check, entry } = admitted;
        // Stage: limits of the user's connections, and pages of other origins. These checks precede the stages that
        // depend on the path.
        if limit_check == LimitCheck::TooManyConnections {
            return self.refused(ListenerRefusal::TooManyConnections).into();
        }
        if context.sender.is_cross_origin {
            return self.refused(ListenerRefusal::CrossOrigin).into();
        }
        // Stage: the server's own paths. These paths precede the limit of unread answers, so that the metrics can
        // report an exhausted limit.
        let own_path = OwnPath::from_head(&head, &context.arrival.mount);
        if own_path.is_some()
            && let Err(refusal) = self.handler.may_get_non_resource_url(&head, &context).await
        {
            return (*refusal).into();
        }
        if limit_check == LimitCheck::TooManyUnread && own_path != Some(OwnPath::Metrics) {
            return self.refused(ListenerRefusal::TooManyUnread).into();
        }
        if let Some(path) = own_path {
            return path.answer_request(&self.handler, &self.metrics, &head).await.into();
        }
        // Stage: the hub's rights for its aggregated API. This stage precedes every answer of the aggregated entry.
        if let Err(refusal) = entry.authenticator.authorize_door(&head, &context).await {
            return status::response(&refusal).into();
        }
        // Stage: the paths of the aggregated entry itself. They have constant answers, so that the APIService of the
        // hub is available without any cluster.
        if context.arrival.is_entry_path
            && let Some(answer) = tributary_router::answer_at_entry(&head, &context.arrival)
        {
            return answer.into();
        }
        if !entry.serves_clusters() && !is_liveness_check(&context) {
            return status::not_configured().into();
        }
        // Stage: WebSocket handshakes of watches. The front handles the handshake, and the router answers a plain
        // watch.
        let handshake = websocket::remove_handshake(&mut head, &mut context.arrival);
        // Stage: the router. A panic in the router ends only the request's answer, not the connection.
        let handled = AssertUnwindSafe(self.handler.handle(Request::from_parts(head, body), &context)).catch_unwind();
        let handled = handled.await;
        let handled = match context.arrival.door.allows_redirects() {
            true => handled,
            false => handled.map(|answer| answer.map(status::replace_redirect)),
        };
        match handled {
            Ok(answer) if context.sender.user.authority.is_anonymous() => {
                answer.map(|response| status::one_word(&response))
            }
            Ok(answer) if answer.is_forwarded_watch => {
                answer.map(|response| drain::end_with(self.stop.clone(), response))
            }
            Ok(answer) => match handshake {
                Some(handshake) => answer.map(|watch| handshake.switch_protocol(watch)),
                None => answer,
            },
            // The panic hook has already logged the panic and its location, so only the metric is counted here.
            Err(_) => {
                self.metrics.panics.inc();
                Answer { has_panicked: true, ..status::internal_error().into() }
            }
        }
    }
}

/// A request after authentication.
struct AdmittedRequest<'a> {
    context: RequestContext,
    limit_check: LimitCheck,
    entry: &'a Entry,
}

/// Returns whether a request is a health check of this process that needs no configuration: all except `/readyz`, by
/// which load balancers choose a process that serves the clusters.
fn is_liveness_check(context: &RequestContext) -> bool {
    let info = context.arrival.reading.info();
    info.is_ok_and(|info| {
        let is_check = info.cluster.is_none() && tributary_policy::is_health_check(&info.path);
        is_check && !info.path.trim_start_matches('/').starts_with("readyz")
    })
}
