//! The requests of one connection: each is refused by its head, or answered, and its answer is metered.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Request, Response};
use hyper::body::{Body as _, Incoming};
use tributary_apimachinery::body::Body;

use crate::acquaintance::{Acquaintance, UnknownSender};
use crate::coalesce::OpenStreams;
use crate::early_answer::RequestBody;
use crate::goaway::Parting;
use crate::outgoing::{self, Outgoing};
use crate::refusal::ListenerRefusal;
use crate::service::{AuthenticationOutcome, RequestService, RoomForAnswer};
use crate::settings::HEADERS_MAX;

/// What the requests of one connection have in common.
pub(super) struct ConnectionRequests<S: RequestService> {
    pub(super) service: Arc<S>,
    pub(super) client: Arc<S::Client>,
    pub(super) acquaintance: Arc<Acquaintance>,
    pub(super) outgoing: Arc<Outgoing>,
    pub(super) parting: Arc<Parting>,
    /// The answers that are open.
    pub(super) streams: OpenStreams,
}

impl<S: RequestService> ConnectionRequests<S> {
    /// Answers one of them. An answer for which there is no room is refused in its place.
    pub(super) fn answer_request(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Body>, Infallible>> {
        let open = self.streams.open();
        // Before anything is waited for: the connection is not read on while a request is being authenticated.
        let admitted = self.admit(&request);
        // No function that is waited for: it would hold the request twice, in each stream.
        async move {
            let (method, version) = (request.method().clone(), request.version());
            let (mut request, body) = RequestBody::follow(request);
            // What a large answer counts for until it is metered. Given back if the request is given up before.
            let mut taken = None;
            let mut answer = match admitted {
                Err(refusal) => self.service.refuse_request(request, &self.client, refusal),
                Ok((head, head_bytes)) => {
                    // A write with a body waits for room at the end of the body.
                    let ends_with_room = !outgoing::is_read(&method) && !request.body().is_end_stream();
                    let is_there = ends_with_room || self.outgoing.room(head_bytes).await;
                    let is_refused = Arc::<AtomicBool>::default();
                    if ends_with_room {
                        request = request.map(|body| self.outgoing.end_with_room(body, Arc::clone(&is_refused)));
                    }
                    let note = |outcome: AuthenticationOutcome<'_>| {
                        let room = self.acquaintance.note_outcome(outcome);
                        // Afterwards: whoever waits for it finds who is known.
                        drop(head);
                        room
                    };
                    let withhold = |answer: Response<Body>| {
                        // A cluster that executed the write all the same is not contradicted.
                        if is_refused.load(Ordering::Relaxed) && !answer.status().is_success() {
                            return Err(ListenerRefusal::TooManyUnread);
                        }
                        self.outgoing.withhold(&method, answer).map(|(answer, room)| {
                            taken = room;
                            answer
                        })
                    };
                    let answer_room = RoomForAnswer { is_there, withhold };
                    // Boxed, so that a stream whose answer goes on for hours is not as large as the whole way of a
                    // request.
                    let answer = Box::pin(self.service.answer_request(request, &self.client, note, answer_room)).await;
                    self.parting.draw(version);
                    answer
                }
            };
            if let Some(body) = body {
                // Only an authenticated connection has its rest read. Boxed, because requests over HTTP/2 never need
                // it.
                Box::pin(body.make_way(&mut answer.response, self.acquaintance.is_known())).await;
            }
            Ok(self.outgoing.meter(answer, taken, open))
        }
    }

    /// Holds the head of a request until it is known whose it is, and says how many bytes it has.
    fn admit<B>(&self, request: &Request<B>) -> Result<(Option<UnknownSender>, usize), ListenerRefusal> {
        if request.headers().len() > HEADERS_MAX {
            return Err(ListenerRefusal::TooManyHeaders);
        }
        let bytes = head_bytes(request);
        let head = self.acquaintance.hold_head(bytes).ok_or(ListenerRefusal::TooManyUnknown)?;
        Ok((head, bytes))
    }
}

/// What a request has in its head, in bytes, as HTTP/2 counts it (RFC 9113, 6.5.2).
fn head_bytes<B>(request: &Request<B>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    request.headers().iter().fold(target, |bytes, (name, value)| bytes + name.as_str().len() + value.len() + 32)
}
