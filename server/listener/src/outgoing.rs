//! Limits the unread bytes of a connection's answers: bytes that were passed to the connection and that its client has
//! not read.
//!
//! HTTP/2 accepts one frame of each answer even if the client's flow-control window is full. A client that opens 2,000
//! streams and reads nothing would occupy as many frames, or as many whole objects. So the bytes that a connection may
//! accept are limited by [`Unread`], for each connection and for all connections together. An answer is aborted if its
//! client reads none of it for a minute ([`overdue`]), even if the client answers PINGs or reads other answers.
//!
//! HTTP/2 accepts more of an answer than its client reads, as far as the client's flow-control windows allow: up to 128
//! KiB of each answer. So a piece of an answer is counted until its last reference is dropped, which happens when the
//! socket has accepted the piece. Small pieces are counted together with the next large piece of the same stream.
//!
//! The answer to a write is never withheld. So a write waits for capacity before it is executed: its body ends only
//! when there is capacity ([`WriteBody`]). A write without a body waits after its head, as a read does.
//!
//! ```text
//! request ─▶ capacity? ─▶ handler ─▶ capacity? ─▶ records ─▶ Metered ─▶ pieces ─▶ hyper, HTTP/2 ─▶ TLS ─▶ socket
//!                                        └── ReservedCapacity ──┘
//! ```

mod capacity;
mod counted;
mod metered;
mod overdue;
mod pieces;
mod write_body;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use http_body::Body as _;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;
use tributary_apimachinery::RequestClass;
use tributary_apimachinery::body::{Body, PeekedBody};

use crate::coalesce::OpenStream;
use crate::refusal::ListenerRefusal;
use crate::service::ServiceAnswer;
use crate::unread::Unread;
use capacity::ConnectionCapacity;
use counted::Counted;
use metered::{Metered, OutgoingBody};
use overdue::UnreadAnswers;
use pieces::PIECE_BYTES;
use write_body::WriteBody;

/// The interval of the checks for stuck answers. A stuck answer is aborted at most this long after its time limit.
const STUCK_CHECK_INTERVAL: Duration = Duration::from_secs(15);

/// The unread bytes that are reserved for a large answer, until `Outgoing::meter` counts the answer's data. In between,
/// the answer's audit event may wait for a disk or a webhook, and concurrent answers must not use the same capacity.
/// Dropping this value releases the bytes.
pub(super) struct ReservedCapacity(Counted);

/// The unread answers of one connection.
pub(super) struct Outgoing {
    capacity: Arc<ConnectionCapacity>,
    answers: Arc<Mutex<UnreadAnswers>>,
}

impl Outgoing {
    pub(super) fn new(unread: Unread) -> Self {
        Self { capacity: Arc::new(ConnectionCapacity::new(unread)), answers: Arc::default() }
    }

    /// Waits until the connection has capacity for the answer to a request. Meanwhile, the request's head of this many
    /// bytes counts against the limit for the heads of waiting requests. Returns `false` on a timeout, or if this limit
    /// is exceeded.
    pub(super) fn capacity(&self, head_bytes: usize) -> impl Future<Output = bool> {
        self.capacity.wait(head_bytes)
    }

    /// Delays the end of a write's body until the connection has capacity for the answer. After a timeout, the body
    /// fails and `is_refused` is set.
    pub(super) fn delay_end_until_capacity(&self, body: Body, is_refused: Arc<AtomicBool>) -> Body {
        WriteBody::new(body, &self.capacity, is_refused).boxed_unsync()
    }

    /// Reserves capacity for the answer to a request with this method, before the logs record the answer.
    ///
    /// Refuses a large answer to a read if the connection has no capacity. The refusal applies only to an answer that
    /// is completely in memory, for example the answer to a get. The check at the arrival of the request is not enough,
    /// because many concurrent requests may have passed it. The refused answer is dropped, and the client retries. The
    /// answer to a write is never refused; see [`Self::delay_end_until_capacity`].
    ///
    /// The returned reservation counts the bytes of a large answer in memory. Pass it to [`Self::meter`].
    ///
    /// # Errors
    /// [`ListenerRefusal::TooManyUnread`], which replaces the answer.
    pub(super) fn reserve_answer(
        &self,
        method: &Method,
        response: Response<Body>,
    ) -> Result<(Response<Body>, Option<ReservedCapacity>), ListenerRefusal> {
        let exact = response.body().size_hint().exact();
        if exact.is_none_or(|bytes| bytes < PIECE_BYTES as u64) {
            return Ok((response, None));
        }
        let (head, body) = response.into_parts();
        let body = PeekedBody::begin(body);
        let whole = body.data().filter(|data| is_whole(data, exact)).map(Bytes::len);
        let taken = match whole {
            None => None,
            Some(bytes) if is_read(method) => {
                Some(Counted::try_new(&self.capacity, bytes).ok_or(ListenerRefusal::TooManyUnread)?)
            }
            Some(bytes) => Some(Counted::new(&self.capacity, bytes)),
        };
        Ok((Response::from_parts(head, body.into_body()), taken.map(ReservedCapacity)))
    }

    /// Wraps the body of an answer, so that its unread bytes are counted. `taken` is the reservation from
    /// [`Self::reserve_answer`]. An answer that is completely in memory is counted from this call to the answer's end.
    /// The reservation is released if the body has a different length, because a different answer has replaced the
    /// service's answer.
    pub(super) fn meter(
        &self,
        answer: ServiceAnswer,
        taken: Option<ReservedCapacity>,
        stream: OpenStream,
    ) -> Response<Body> {
        let ServiceAnswer { response, class } = answer;
        let is_long_running = class == RequestClass::Streamed;
        let (head, body) = response.into_parts();
        let exact = body.size_hint().exact();
        if exact == Some(0) {
            return Response::from_parts(head, body);
        }
        let mut body = if exact.is_some() { PeekedBody::begin(body) } else { PeekedBody::new(body) };
        let whole = body.take_data(|data| is_whole(data, exact));
        // The reservation applies only to a body of the reserved length. The body's data may not be available yet,
        // because an audit event may delay it.
        let taken =
            taken.map(|ReservedCapacity(counted)| counted).filter(|counted| Some(counted.bytes() as u64) == exact);
        let answer = OutgoingBody::new(&self.capacity, &self.answers, is_long_running, stream);
        Response::from_parts(head, Metered::new(body, answer, whole, taken).boxed_unsync())
    }

    /// Records whether the last write was blocked by the socket.
    pub(super) fn record_write(&self, is_blocked: bool) {
        self.answers.lock().record_write(Instant::now, is_blocked);
    }

    /// Aborts answers that the client does not read, and counts each in `cut`. Completes when the whole connection must
    /// be closed.
    pub(super) async fn abort_stuck_answers(&self, cut: &Counter) {
        loop {
            tokio::time::sleep(STUCK_CHECK_INTERVAL).await;
            let blocks_others = self.capacity.check_load();
            let overdue = self.answers.lock().overdue(Instant::now(), blocks_others);
            if overdue.connection {
                return;
            }
            for stream in overdue.streams {
                cut.inc();
                stream.abort();
            }
        }
    }
}

/// Returns whether an HTTP method only reads: GET and HEAD.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Returns whether `data`, the first data of a body, is the whole body. `exact` is the body's announced length. An
/// announced length alone does not show that the body is in memory, because a member announces the length of its answer
/// before the data arrives.
fn is_whole(data: &Bytes, exact: Option<u64>) -> bool {
    Some(data.len() as u64) == exact
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use http_body::SizeHint;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use prometheus_client::metrics::gauge::Gauge;
    use tributary_apimachinery::body::{BoxError, full};

    use super::*;
    use crate::coalesce::OpenStreams;
    use crate::settings::{CONNECTION_UNREAD_BYTES_MAX, UNREAD_BYTES_MAX};

    /// The size of a large object in memory, in bytes.
    const OBJECT_BYTES: usize = 64 << 10;

    fn object() -> Response<Body> {
        Response::new(full(vec![b'x'; OBJECT_BYTES]))
    }

    /// Returns the `Outgoing` of the only connection in a process, and a function that returns the number of unread
    /// bytes.
    fn alone() -> (Outgoing, impl Fn() -> usize) {
        let unread = Gauge::default();
        let outgoing = Outgoing::new(Unread::new(unread.clone(), UNREAD_BYTES_MAX));
        (outgoing, move || usize::try_from(unread.get()).unwrap())
    }

    /// The audit events of thousands of answers may wait for a disk before the answers are metered.
    #[test]
    fn answer_reserves_capacity_before_it_is_metered() {
        let (outgoing, unread) = alone();
        let get = || outgoing.reserve_answer(&Method::GET, object());
        let mut passed: Vec<_> = (0..2000).map_while(|_| get().ok()).collect();
        assert_eq!(passed.len(), CONNECTION_UNREAD_BYTES_MAX / OBJECT_BYTES);
        assert!(matches!(get(), Err(ListenerRefusal::TooManyUnread)));
        assert!(outgoing.reserve_answer(&Method::GET, Response::new(full("small"))).is_ok());
        assert_eq!(unread(), CONNECTION_UNREAD_BYTES_MAX, "what is withheld or small takes nothing");
        drop(passed.pop());
        assert_eq!(unread(), CONNECTION_UNREAD_BYTES_MAX - OBJECT_BYTES, "one that is dropped gives its room back");
        passed.extend(get().ok());
        assert_eq!(unread(), CONNECTION_UNREAD_BYTES_MAX, "and the next one has it");
        let write = outgoing.reserve_answer(&Method::PATCH, object());
        assert!(write.is_ok(), "what is written is written");
        assert_eq!(unread(), CONNECTION_UNREAD_BYTES_MAX + OBJECT_BYTES);
        drop((passed, write));
        assert_eq!(unread(), 0);
    }

    #[tokio::test]
    async fn answer_bytes_are_counted_once_until_the_socket_accepts_them() {
        let (outgoing, unread) = alone();
        for method in [Method::GET, Method::PATCH] {
            let (answer, taken) = outgoing.reserve_answer(&method, object()).unwrap();
            assert_eq!(unread(), OBJECT_BYTES);
            let mut metered = outgoing.meter(answer.into(), taken, OpenStreams::default().open()).into_body();
            let mut given = Vec::new();
            while let Some(frame) = metered.frame().await {
                given.push(frame.unwrap().into_data().unwrap());
            }
            assert_eq!(given.iter().map(Bytes::len).sum::<usize>(), OBJECT_BYTES);
            drop(metered);
            assert_eq!(unread(), OBJECT_BYTES, "the socket does not have it yet");
            drop(given);
            assert_eq!(unread(), 0);
        }
    }

    /// A body whose data is delayed, as during the write of its audit event.
    struct Late {
        data: Option<Bytes>,
        is_asked: bool,
    }

    impl http_body::Body for Late {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
            if !std::mem::replace(&mut self.is_asked, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(self.data.take().map(|data| Ok(Frame::data(data))))
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.data.as_ref().map_or(0, Bytes::len) as u64)
        }
    }

    /// The answer's own reservation fills the capacity, and must not block the answer.
    #[tokio::test]
    async fn late_answer_body_keeps_its_reserved_capacity() {
        let (outgoing, unread) = alone();
        let mut passed: Vec<_> =
            (0..2000).map_while(|_| outgoing.reserve_answer(&Method::GET, object()).ok()).collect();
        let (_, taken) = passed.pop().unwrap();
        let late = Late { data: Some(vec![b'x'; OBJECT_BYTES].into()), is_asked: false };
        let late = Response::new(late.boxed_unsync());
        let mut metered = outgoing.meter(late.into(), taken, OpenStreams::default().open()).into_body();
        assert_eq!(unread(), CONNECTION_UNREAD_BYTES_MAX);
        let first = metered.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(unread(), CONNECTION_UNREAD_BYTES_MAX);
        drop((metered, first));
        assert_eq!(unread(), CONNECTION_UNREAD_BYTES_MAX - OBJECT_BYTES);
    }

    #[tokio::test]
    async fn replacement_answer_releases_the_capacity_of_the_original() {
        let (outgoing, unread) = alone();
        let (_, taken) = outgoing.reserve_answer(&Method::GET, object()).unwrap();
        let metered = outgoing.meter(Response::new(full("another")).into(), taken, OpenStreams::default().open());
        assert!((1..OBJECT_BYTES).contains(&unread()), "{} bytes are counted", unread());
        drop(metered);
        assert_eq!(unread(), 0);
    }

    #[tokio::test]
    async fn empty_answer_frames_are_not_forwarded() {
        let frames = ["", "a", "", "", "b", ""].map(|data| Ok(Frame::data(Bytes::from_static(data.as_bytes()))));
        let body = StreamBody::new(futures::stream::iter(frames)).boxed_unsync();
        let unread = Gauge::default();
        let outgoing = Outgoing::new(Unread::new(unread.clone(), UNREAD_BYTES_MAX));
        let mut given = Vec::new();
        let mut metered = outgoing.meter(Response::new(body).into(), None, OpenStreams::default().open()).into_body();
        while let Some(frame) = metered.frame().await {
            given.push(frame.unwrap().into_data().unwrap());
        }
        assert_eq!(given, ["a", "b"]);
        drop((metered, given));
        assert_eq!(unread.get(), 0);
    }
}
