//! Handles the requests of one connection: refuses or answers each request, and meters the answer.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Request, Response};
use hyper::body::{Body as _, Incoming};
use tributary_apimachinery::body::Body;

use crate::authentication::{ConnectionAuthentication, PendingAuthentication};
use crate::coalesce::OpenStreams;
use crate::early_answer::RequestBody;
use crate::goaway::RandomGoaway;
use crate::outgoing::{self, Outgoing};
use crate::refusal::ListenerRefusal;
use crate::service::{AnswerCapacity, AuthenticationOutcome, RequestService};
use crate::settings::HEADERS_MAX;

/// The state that all requests of one connection share.
pub(super) struct ConnectionRequests<S: RequestService> {
    pub(super) service: Arc<S>,
    pub(super) client: Arc<S::Client>,
    pub(super) authentication: Arc<ConnectionAuthentication>,
    pub(super) outgoing: Arc<Outgoing>,
    pub(super) random_goaway: Arc<RandomGoaway>,
    pub(super) streams: OpenStreams,
}

impl<S: RequestService> ConnectionRequests<S> {
    /// Answers one request. If the connection has no capacity for the answer, a refusal replaces the answer.
    pub(super) fn answer_request(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> {
        let open = self.streams.open();
        // `admit` counts the request before the first await, because the connection is not read while a request is
        // being authenticated.
        let admitted = self.admit(&request);
        // This code is an inline block, because the future of an awaited `async fn` would store the request twice.
        async move {
            let (method, version) = (request.method().clone(), request.version());
            let (mut request, body) = RequestBody::follow(request);
            // The bytes that are reserved for a large answer, until `meter` counts the answer's data. If the request is
            // cancelled, they are released.
            let mut taken = None;
            let mut answer = match admitted {
                Err(refusal) => self.service.refuse_request(request, &self.client, refusal),
                Ok((head, head_bytes)) => {
                    // A write with a body does not wait for capacity here, because the end of its body waits.
                    let delays_end = !outgoing::is_read(&method) && !request.body().is_end_stream();
                    let is_constant = self.service.has_constant_answer(&request);
                    let is_available = delays_end || is_constant || self.outgoing.capacity(head_bytes).await;
                    let is_refused = Arc::<AtomicBool>::default();
                    if delays_end {
                        request =
                            request.map(|body| self.outgoing.delay_end_until_capacity(body, Arc::clone(&is_refused)));
                    }
                    let record_outcome = |outcome: AuthenticationOutcome<'_>| {
                        let capacity = self.authentication.record_outcome(outcome);
                        // The head's count is dropped only after `record_outcome`. This drop wakes the task that reads
                        // the connection, and the task must then find the new authentication state.
                        drop(head);
                        capacity
                    };
                    let reserve_answer = |answer: Response<Body>| {
                        // A success is not replaced by the refusal: the member has executed the write although its body
                        // failed.
                        if is_refused.load(Ordering::Relaxed) && !answer.status().is_success() {
                            return Err(ListenerRefusal::TooManyUnread);
                        }
                        if is_constant {
                            return Ok(answer);
                        }
                        self.outgoing.reserve_answer(&method, answer).map(|(answer, capacity)| {
                            taken = capacity;
                            answer
                        })
                    };
                    let answer_capacity = AnswerCapacity { is_available, reserve_answer };
                    // The future that handles the request is boxed, so that its memory is free while a long-lived
                    // answer is sent.
                    let answer =
                        Box::pin(self.service.answer_request(request, &self.client, record_outcome, answer_capacity))
                            .await;
                    self.random_goaway.draw(version);
                    answer
                }
            };
            if let Some(body) = body {
                // The remainder of a body is read only on an authenticated connection. The future is boxed, because
                // HTTP/2 requests never need it.
                Box::pin(body.prepare_next_request(&mut answer.response, self.authentication.is_authenticated())).await;
            }
            Ok(self.outgoing.meter(answer, taken, open))
        }
    }

    /// Counts the head of a request until the request is authenticated. Returns the count and the head's size in bytes.
    fn admit<B>(&self, request: &Request<B>) -> Result<(Option<PendingAuthentication>, usize), ListenerRefusal> {
        if request.headers().len() > HEADERS_MAX {
            return Err(ListenerRefusal::TooManyHeaders);
        }
        let bytes = head_bytes(request);
        let head = self.authentication.count_head(bytes).ok_or(ListenerRefusal::TooManyUnknown)?;
        Ok((head, bytes))
    }
}

/// Returns the size of a request's head in bytes, as HTTP/2 counts it (RFC 9113, 6.5.2).
fn head_bytes<B>(request: &Request<B>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    request.headers().iter().fold(target, |bytes, (name, value)| bytes + name.as_str().len() + value.len() + 32)
}
