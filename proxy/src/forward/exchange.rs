//! Exchange of a prepared request for a response: chooses a connection to an endpoint, sends the request in the form of
//! the connection's HTTP version, and retries if that is safe.

use std::sync::Arc;

use http::header::{HOST, HeaderMap, LOCATION, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use tokio::time::{Duration, Instant};
use tributary_apimachinery::body::{self, Body};
use tributary_apimachinery::{Permit, explain};

use crate::credentials::CurrentCredentials;
use crate::credentials::user::MemberUser;
use crate::endpoints::criteria::PreviousAttempt;
use crate::endpoints::endpoint::{Endpoint, EndpointRequest};
use crate::error::{ForwardError, Sent};
use crate::forward::abandoned::{PendingAnswer, StreamResources};
use crate::forward::member_body::{BodyReader, BodySource, MemberAnswer, MemberBody};
use crate::forward::replay_body::ReplayBody;
use crate::forward::send_terms::SendTerms;
use crate::forward::unauthorized::is_sent_by_api_server;
use crate::headers;
use crate::health::responder::Responder;
use crate::member::ClientInner;
use crate::permit_pool::RequestOrigin;
use crate::pool::connections::RequestSender;
use crate::pool::stream_counts::SentStream;
use crate::pool::{Connection, PoolKey, StreamClass};
use crate::retry_budget::Cause;

/// Maximal number of retries. A load balancer that drains a kube-apiserver may close two connections in a row under a
/// request (GOAWAY).
const MAX_RETRIES: usize = 2;

pub(crate) struct Failed {
    pub(crate) error: ForwardError,
    request: Option<Request<Body>>,
}

impl From<ForwardError> for Failed {
    fn from(error: ForwardError) -> Self {
        Self { error, request: None }
    }
}

pub(crate) struct Exchanged {
    pub(crate) response: Response<Body>,
    pub(crate) credentials: Arc<CurrentCredentials>,
    pub(crate) endpoint: Arc<Endpoint>,
}

/// Copies of the parts of a request that a retry needs. The headers are copied because HTTP/2 consumes them.
pub(crate) struct Replay {
    method: Method,
    /// Path and query of the request, from which each endpoint's URI is built.
    uri: Uri,
    headers: HeaderMap,
    /// The body for a retry. `None` if the body cannot be sent again.
    body: Option<ReplayBody>,
    /// Generation of the member's name ([`ClientInner::generation`]) when the request arrived. The generation changes
    /// when the name starts to refer to another cluster. The request is then refused.
    generation: u64,
}

impl Replay {
    /// Creates a replay of a request. Takes the URI from the request. The body is copied while it is sent.
    pub(crate) fn for_request(request: &mut Request<Body>, generation: u64) -> Self {
        let replay_body = (!request.body().is_end_stream()).then(|| {
            let (replay_body, body) = ReplayBody::new(std::mem::replace(request.body_mut(), body::empty()));
            *request.body_mut() = body;
            replay_body
        });
        let (method, uri) = (request.method().clone(), std::mem::take(request.uri_mut()));
        Self { method, uri, headers: request.headers().clone(), body: replay_body, generation }
    }

    /// Returns whether sending the request twice has the same effect as sending it once.
    pub(crate) fn is_idempotent(&self) -> bool {
        self.body.is_none() && matches!(self.method, Method::GET | Method::HEAD)
    }

    /// Returns whether a 401 response came from an API server that did not know Tributary's account.
    pub(crate) async fn is_api_servers_401(&self, response: &mut Response<Body>) -> bool {
        is_sent_by_api_server(&self.method, &self.uri, response).await
    }

    /// Returns the request for a retry. `None` if its body is not available.
    pub(crate) fn request(&mut self) -> Option<Request<Body>> {
        let body = match &mut self.body {
            None => body::empty(),
            Some(replay_body) => {
                let (again, body) = replay_body.again()?;
                *replay_body = again;
                body
            }
        };
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        Some(request)
    }
}

impl ClientInner {
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        mut request: Request<Body>,
        replay: &mut Replay,
        terms: &SendTerms<'_>,
        user: &MemberUser,
    ) -> Result<Exchanged, ForwardError> {
        let pool_key = terms.pool_key;
        let mut retries = 0;
        let mut tried = PreviousAttempt::NotTried;
        // A response 429 or 503 of the first endpoint, kept while a second endpoint gets the request. The client gets
        // this response if the second endpoint's response is no better.
        let mut busy = None;
        self.retries.count_request();
        loop {
            let credentials = match self.credentials(user).await {
                Ok(credentials) => credentials,
                Err(error) => return busy.ok_or(error),
            };
            credentials.authorize(request.headers_mut());
            let (endpoint_request, connection) = match self.connection(&credentials, terms, &tried).await {
                Ok(opened) => opened,
                Err(error) => return busy.ok_or(error),
            };
            self.check_generation(replay.generation)?;
            let endpoint = endpoint_request.endpoint.clone();
            // The duration of the request is measured only if the cluster's endpoints are compared by latency.
            let sent_at = self.endpoints.measures_load(pool_key.origin).then(Instant::now);
            let sent = self.send(endpoint_request, connection, request, &replay.uri, terms).await;
            self.record_outcome(&endpoint, pool_key, &sent, sent_at);
            let may_retry = retries < MAX_RETRIES && busy.is_none();
            request = match sent {
                Ok(response) => {
                    let ask_another = may_retry && self.take_retry_elsewhere(&response, &endpoint, terms, replay);
                    let again = if ask_another { replay.request() } else { None };
                    let answered = Exchanged { response, credentials, endpoint: Arc::clone(&endpoint) };
                    let Some(again) = again else { return Ok(answered) };
                    busy = Some(answered);
                    tried = PreviousAttempt::AnsweredBusy(endpoint);
                    again
                }
                // An unsent request has cost the cluster nothing, so its retry needs no token of the budget.
                Err(Failed { error, request: unsent }) if may_retry => {
                    let Some(again) = unsent.or_else(|| self.replay_after(&error, replay)) else { return Err(error) };
                    tracing::debug!(cluster = %self.name, %error, "sending the request again");
                    tried = PreviousAttempt::Failed(endpoint);
                    again
                }
                Err(Failed { error, .. }) => return busy.ok_or(error),
            };
            retries += 1;
        }
    }

    /// Returns a connection to an endpoint that the request may use after its earlier attempts.
    async fn connection(
        &self,
        credentials: &Arc<CurrentCredentials>,
        terms: &SendTerms<'_>,
        tried: &PreviousAttempt,
    ) -> Result<(EndpointRequest, Connection), ForwardError> {
        let SendTerms { pool_key, destination, .. } = *terms;
        let open = |endpoint: Arc<Endpoint>| {
            let credentials = credentials.clone();
            async move { endpoint.pool.acquire(pool_key, &credentials).await }
        };
        self.endpoints.open((pool_key.stream_class, pool_key.origin), destination, tried, open).await
    }

    /// Records a response, or its absence, for the load of the endpoint. `asked` is the start time of a request whose
    /// duration is measured.
    fn record_outcome(
        &self,
        endpoint: &Endpoint,
        pool_key: PoolKey,
        sent: &Result<Response<Body>, Failed>,
        sent_at: Option<Instant>,
    ) {
        let note = |status| {
            if let Some(sent_at) = sent_at {
                self.endpoints.record_response(endpoint, pool_key, status, sent_at.elapsed());
            }
        };
        match sent {
            Ok(response) => {
                endpoint.record_response_head(Responder::from_status(response.status()));
                endpoint.record_status(response.status());
                note(Some(response.status()));
            }
            Err(failed) if failed.error.sent() == Sent::Maybe => {
                // Tributary's own request to the endpoint will show whether the endpoint or a workload is at fault.
                endpoint.suspect();
                note(None);
            }
            Err(_) => {}
        }
    }

    /// Returns whether the request goes to a second endpoint after this response. If so, takes a token of the retry
    /// budget.
    fn take_retry_elsewhere(
        &self,
        response: &Response<Body>,
        endpoint: &Arc<Endpoint>,
        terms: &SendTerms<'_>,
        replay: &Replay,
    ) -> bool {
        let SendTerms { pool_key, destination, .. } = *terms;
        is_retry_after(response, pool_key)
            && replay.is_idempotent()
            && self.endpoints.has_another(endpoint, (pool_key.stream_class, pool_key.origin), destination)
            && self.retries.withdraw(Cause::Busy)
    }

    /// Returns the request for a retry, if the cluster has certainly not processed the request, or if the request is
    /// idempotent. `None` if the retry budget is spent, or if the body is not available.
    fn replay_after(&self, error: &ForwardError, replay: &mut Replay) -> Option<Request<Body>> {
        let ForwardError::Send { sent, .. } = error else { return None };
        let may = (*sent == Sent::No || replay.is_idempotent()) && self.retries.withdraw(Cause::Failed);
        if may { replay.request() } else { None }
    }

    /// Sends a request on a connection, and waits for the response head. `path` is the path of the request without the
    /// endpoint's base path.
    pub(crate) async fn send(
        &self,
        endpoint_request: EndpointRequest,
        connection: Connection,
        request: Request<Body>,
        path: &Uri,
        terms: &SendTerms<'_>,
    ) -> Result<Response<Body>, Failed> {
        let SendTerms { pool_key, limit, .. } = *terms;
        let request_permit = terms.permit.cloned();
        let endpoint = endpoint_request.endpoint.clone();
        endpoint.count();
        // Over HTTP/1.1 hyper itself reports a response that ends too early. So only over HTTP/2 the end of the body
        // must be checked.
        let has_marked_end = matches!(connection, Connection::Http2(_));
        let (response, permit, shared) = match connection {
            Connection::Http2(permit) => {
                let request = self.in_http2_form(request, &endpoint, path)?;
                let slot = permit.slot().clone();
                let occupied = Permit::from_guard((permit, endpoint_request, request_permit));
                let stream = SentStream::on(&slot.counts);
                match &slot.sender {
                    RequestSender::Usual(sender) => {
                        let occupied = StreamResources {
                            permit: occupied,
                            stream,
                            abandoned_read_time: self.abandoned_read_time(pool_key),
                        };
                        let mut pending = PendingAnswer::new(sender.clone().try_send_request(request), occupied);
                        let response = self.head(pending.wait_for_answer(), limit).await?;
                        (response.map(MemberAnswer::Usual), None, pending.into_occupied())
                    }
                    RequestSender::Watches(sender) => {
                        let (response, permit) = self.watch(sender, request, stream, occupied).await?;
                        (response.map(MemberAnswer::Watch), Some(permit), None)
                    }
                }
            }
            Connection::Http1(mut checkout) => {
                let request = self.in_http1_form(request, &endpoint, path)?;
                let Some(sender) = checkout.sender() else {
                    return Err(self.send_failed(
                        std::io::Error::other("the connection is gone"),
                        Sent::No,
                        Some(request),
                    ));
                };
                let response = self.head(sender.try_send_request(request), limit).await?;
                (
                    response.map(MemberAnswer::Usual),
                    Some(Permit::from_guard((checkout, endpoint_request, request_permit))),
                    None,
                )
            }
        };
        // A request with a time limit ends by itself, and so needs no shutdown signal.
        let until = limit.is_none().then(|| self.tuning.shutdown.clone());
        let (responder, reader) = (Responder::from_status(response.status()), BodyReader::for_pool_key(pool_key));
        let source = BodySource { endpoint, responder, reader, has_marked_end };
        Ok(response.map(|answer| MemberBody::boxed(answer, permit, shared, self.name.clone(), source, until)))
    }

    /// Time for which the body of an abandoned HTTP/2 response is read before the stream is reset. `None` (immediate
    /// reset) for watches, for Tributary's own requests, and for streams from workloads. A stream from a workload
    /// shares its connection only with streams of the same client.
    fn abandoned_read_time(&self, pool_key: PoolKey) -> Option<Duration> {
        let is_shared = pool_key.stream_class == StreamClass::Short && pool_key.origin == RequestOrigin::Client;
        is_shared.then_some(self.tuning.abandoned_read_time)
    }

    pub(crate) async fn head(
        &self,
        response: impl Future<Output = Result<Response<Incoming>, hyper::client::conn::TrySendError<Request<Body>>>>,
        limit: Option<Duration>,
    ) -> Result<Response<Incoming>, Failed> {
        let outcome = match limit {
            Some(limit) => tokio::time::timeout(limit, response)
                .await
                .map_err(|_| ForwardError::HeadTimeout { cluster: self.name.clone(), after: limit })?,
            None => response.await,
        };
        outcome.map_err(|mut failed| {
            let unsent = failed.take_message();
            let error = failed.into_error();
            let sent = if unsent.is_some() || was_refused(&error) { Sent::No } else { Sent::Maybe };
            self.send_failed(error, sent, unsent)
        })
    }

    pub(crate) fn send_failed(
        &self,
        error: impl std::error::Error + Send + Sync + 'static,
        sent: Sent,
        request: Option<Request<Body>>,
    ) -> Failed {
        let cause = explain(&error).into();
        let error = ForwardError::Send { cluster: self.name.clone(), cause, source: Arc::new(error), sent };
        Failed { error, request }
    }

    /// Converts a request to HTTP/1.1: path and `Host` replace HTTP/2's pseudo-headers. `path` is the path of the
    /// request without the endpoint's base path.
    pub(crate) fn in_http1_form(
        &self,
        mut request: Request<Body>,
        endpoint: &Endpoint,
        path: &Uri,
    ) -> Result<Request<Body>, ForwardError> {
        let joined = endpoint.target.join(path).map_err(|problem| self.bad_path(path, problem))?;
        *request.uri_mut() = joined.path_and_query().cloned().map(Uri::from).unwrap_or_default();
        *request.version_mut() = Version::HTTP_11;
        request.headers_mut().insert(HOST, endpoint.host.clone());
        Ok(request)
    }

    /// Converts a request to HTTP/2. Reverts [`ClientInner::in_http1_form`] for a request that an HTTP/1.1 connection
    /// returned.
    fn in_http2_form(
        &self,
        mut request: Request<Body>,
        endpoint: &Endpoint,
        path: &Uri,
    ) -> Result<Request<Body>, ForwardError> {
        *request.uri_mut() = endpoint.target.join(path).map_err(|problem| self.bad_path(path, problem))?;
        request.headers_mut().remove(HOST);
        Ok(request)
    }

    /// Refuses redirects, and informational (1xx) responses that announce another response or protocol. Removes unsafe
    /// response headers.
    pub(crate) fn finish(&self, mut response: Response<Body>) -> Result<Response<Body>, ForwardError> {
        if response.status().is_informational() {
            return Err(ForwardError::Informational { cluster: self.name.clone(), status: response.status() });
        }
        if response.status().is_redirection() && response.headers().contains_key(LOCATION) {
            return Err(ForwardError::Redirect { cluster: self.name.clone(), status: response.status() });
        }
        headers::prepare_response(response.headers_mut(), None);
        *response.version_mut() = Version::HTTP_11;
        Ok(response)
    }
}

/// Returns whether a response with Retry-After reports a busy or terminating endpoint. kube-apiserver's reason: "there
/// is a good chance the client hits a different server" (`pkg/server/filters/waitgroup.go` in kubernetes/apiserver).
/// False for long-running requests other than watches, because a workload may have sent the response.
fn is_retry_after(response: &Response<Body>, pool_key: PoolKey) -> bool {
    if pool_key.stream_class == StreamClass::Streamed {
        return false;
    }
    let is_temporary = matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    is_temporary && response.headers().contains_key(RETRY_AFTER)
}

/// Returns whether the cluster has certainly not processed the request. Either the cluster refused the stream, or its
/// GOAWAY named an earlier stream as the last processed stream (RFC 9113 §6.8 and §8.7). h2 reports such a GOAWAY only
/// for later streams.
pub(crate) fn was_refused(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let is_refusal = error.is_reset() && error.reason() == Some(h2::Reason::REFUSED_STREAM);
            return error.is_remote() && (is_refusal || error.is_go_away());
        }
        cause = error.source();
    }
    false
}
