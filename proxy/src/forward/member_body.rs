//! A member's answer on its way to the client, and what it occupies until it has ended.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tributary_apimachinery::body::{Body, BoxError};
use tributary_apimachinery::{ClusterName, Permit, WhenWoken, explain};

use crate::endpoints::endpoint::Endpoint;
use crate::error::SharedError;
use crate::forward::given_up::Occupied;
use crate::health::speaker::Speaker;
use crate::places::Asker;
use crate::pool::watch_stream::WatchBody;
use crate::pool::{Claim, LaneKind};

/// Up to which length a piece is given together with what is there behind it, in bytes. 16 KiB, a frame of HTTP/2:
/// nearly all objects are shorter, and what is longer is not worth a copy.
const SHORT_BYTES: usize = 16 << 10;

/// How many pieces are given as one at most. 8: a member that sends many that are tiny costs no more than it did.
const TOGETHER_MAX: usize = 8;

/// What comes next of a body; `None` at its end.
type Next = Option<Result<Frame<Bytes>, SharedError>>;

/// A response body that broke off.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cluster {cluster}: the response broke off: {cause}")]
pub struct ResponseBodyError {
    /// The cluster that was answering.
    pub cluster: ClusterName,
    /// The cause with its own causes, as text.
    pub cause: Arc<str>,
    /// The cause.
    #[source]
    pub source: SharedError,
}

/// Who reads a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyReader {
    /// Whoever wants a short answer, or this process.
    Any,
    /// A client that follows it for long: that it breaks off is told.
    Follower,
}

impl BodyReader {
    /// Of an answer to such a request.
    pub(crate) fn for_claim(claim: Claim) -> Self {
        match (claim.asker, claim.lane) {
            (Asker::Client, LaneKind::Watch | LaneKind::Opaque) => Self::Follower,
            _ => Self::Any,
        }
    }
}

/// Where a response body comes from, and who reads it.
pub(crate) struct BodySource {
    pub(crate) endpoint: Arc<Endpoint>,
    /// Who speaks in it.
    pub(crate) speaker: Speaker,
    pub(crate) reader: BodyReader,
    /// Whether its end is marked, as over HTTP/2. hyper takes a stream that is reset without an error for the end of a
    /// body: a server that wants no more of a request may reset it so, but only after the whole answer (RFC 9113 §8.1),
    /// whose end is known then.
    pub(crate) has_marked_end: bool,
}

/// A member's response body as it comes from the connection.
pub(crate) enum MemberAnswer {
    Usual(Incoming),
    /// On a connection that clients share for their watches.
    Watch(WatchBody),
}

impl HttpBody for MemberAnswer {
    type Data = Bytes;
    type Error = SharedError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, SharedError>>> {
        match self.get_mut() {
            Self::Usual(incoming) => Pin::new(incoming).poll_frame(cx).map_err(|error| Arc::new(error) as SharedError),
            Self::Watch(watch) => Pin::new(watch).poll_frame(cx).map_err(|error| Arc::new(error) as SharedError),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Usual(incoming) => incoming.is_end_stream(),
            Self::Watch(watch) => watch.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Usual(incoming) => incoming.size_hint(),
            Self::Watch(watch) => watch.size_hint(),
        }
    }
}

/// A member's response body, and what it occupies until it ends or is dropped: its share of a connection, its place
/// among requests.
pub(crate) struct MemberBody {
    // Dropped first: hyper resets the stream before the capacity is counted as free. Gone when this is dropped.
    answer: Option<MemberAnswer>,
    permit: Option<Permit>,
    /// What it occupies over HTTP/2.
    shared: Option<Occupied>,
    cluster: ClusterName,
    /// Whatever comes of a member's own answer shows that its endpoint is alive.
    source: BodySource,
    /// Whether something is waited for: only what was not there yet says that it comes now. What a slow client takes
    /// of the rest may have come long ago.
    is_waiting: bool,
    /// What came behind a piece and is no piece itself: the end, trailers, or why the body broke off.
    behind: Option<Next>,
    /// Ends when the body is to be cut off; of answers that may go on for hours alone.
    cut: Option<WhenWoken<Pin<Box<WaitForCancellationFutureOwned>>>>,
}

/// A stream was reset before its end.
#[derive(Debug, thiserror::Error)]
#[error("the stream was reset before the end of the answer")]
struct CutShort;

/// Why a body was cut off.
#[derive(Debug, thiserror::Error)]
#[error("the cluster is no longer served here")]
struct CutOff;

impl MemberBody {
    /// Wraps a response body. One without content gives its capacity back at once. `until` breaks it off.
    pub(crate) fn boxed(
        answer: MemberAnswer,
        (permit, shared): (Option<Permit>, Option<Occupied>),
        cluster: ClusterName,
        source: BodySource,
        until: Option<CancellationToken>,
    ) -> Body {
        let cut = until.map(|until| WhenWoken::new(Box::pin(until.cancelled_owned())));
        let is_whole = answer.is_end_stream();
        let answer = Some(answer);
        let mut body = Self { answer, permit, shared, cluster, source, is_waiting: true, behind: None, cut };
        if is_whole {
            body.ended();
        }
        body.boxed_unsync()
    }

    /// It has been read to its end.
    fn ended(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.ended_well();
        }
        self.permit = None;
    }

    /// It has broken off, or is cut off.
    fn failed(&mut self) {
        (self.shared, self.permit) = (None, None);
    }

    /// A short piece, with what is there behind it. A Go server ends an answer by an empty frame of its own, which
    /// comes with the last bytes: the client is told both at once, in one frame, one TLS record and one system call.
    fn with_next(&mut self, mut piece: Frame<Bytes>, cx: &mut Context<'_>) -> Frame<Bytes> {
        for _ in 1..TOGETHER_MAX {
            let is_short = piece.data_ref().is_some_and(|data| data.len() < SHORT_BYTES);
            let answer = self.answer.as_mut().filter(|answer| is_short && !answer.is_end_stream());
            let Some(Poll::Ready(next)) = answer.map(|answer| Pin::new(answer).poll_frame(cx)) else { break };
            match next {
                Some(Ok(next)) if next.is_data() => {
                    let data = next.into_data().unwrap_or_default();
                    piece = piece.map_data(|first| joined(first, data));
                }
                other => {
                    self.behind = Some(other);
                    break;
                }
            }
        }
        piece
    }

    /// It has broken off by this.
    fn fail(&mut self, error: SharedError) -> BoxError {
        self.failed();
        if self.source.reader == BodyReader::Follower {
            self.source.endpoint.broke_off(&self.cluster, &explain(&*error));
        }
        self.broke_off(error)
    }

    /// Whether there is nothing more though the end has not come.
    fn is_cut_short(&self) -> bool {
        let is_open = |answer: &MemberAnswer| !answer.is_end_stream() && answer.size_hint().exact() != Some(0);
        self.source.has_marked_end && self.answer.as_ref().is_some_and(is_open)
    }

    fn broke_off(&self, source: SharedError) -> BoxError {
        let (cluster, cause) = (self.cluster.clone(), explain(&*source).into());
        ResponseBodyError { cluster, cause, source }.into()
    }
}

impl HttpBody for MemberBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // First: a stream that always has something would never be cut off.
        if let Some(cut) = &mut self.cut
            && Pin::new(cut).poll(cx).is_ready()
        {
            self.cut = None;
            self.failed();
            return Poll::Ready(Some(Err(self.broke_off(Arc::new(CutOff)))));
        }
        let behind = self.behind.take();
        let Some(answer) = &mut self.answer else { return Poll::Ready(None) };
        let polled = match behind {
            Some(behind) => Poll::Ready(behind),
            None => Pin::new(answer).poll_frame(cx),
        };
        let comes_now = std::mem::replace(&mut self.is_waiting, polled.is_pending());
        let frame = match ready!(polled) {
            Some(Ok(frame)) => {
                let frame = self.with_next(frame, cx);
                if comes_now && self.source.speaker != Speaker::Intermediary {
                    self.source.endpoint.heard();
                }
                // hyper's server asks nothing more of a body that says so.
                if self.is_end_stream() {
                    self.ended();
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => Some(Err(self.fail(error))),
            None if self.is_cut_short() => Some(Err(self.fail(Arc::new(CutShort)))),
            None => {
                self.ended();
                None
            }
        };
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.behind {
            Some(behind) => behind.is_none() && !self.is_cut_short(),
            None => self.answer.as_ref().is_none_or(HttpBody::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

/// Two pieces as one.
fn joined(first: Bytes, second: Bytes) -> Bytes {
    match (first.is_empty(), second.is_empty()) {
        (_, true) => first,
        (true, false) => second,
        (false, false) => {
            let mut both = BytesMut::with_capacity(first.len() + second.len());
            both.extend_from_slice(&first);
            both.extend_from_slice(&second);
            both.freeze()
        }
    }
}

impl Drop for MemberBody {
    fn drop(&mut self) {
        // A watch is given up by whoever follows it.
        if let (Some(MemberAnswer::Usual(incoming)), Some(shared)) = (self.answer.take(), self.shared.take()) {
            shared.give_up(async { Some(incoming) });
        }
    }
}
