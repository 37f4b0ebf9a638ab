//! A cluster's answer on its way to the client, with its resources.

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

/// Length of a piece up to which it is joined with the next one, in bytes. 16 KiB, a frame of HTTP/2: nearly all
/// objects are shorter.
const SHORT_BYTES: usize = 16 << 10;

/// Pieces that are joined. 8: bounds the copies for a cluster that sends many tiny ones.
const TOGETHER_MAX: usize = 8;

/// Next part of a body; `None` at its end.
type Next = Option<Result<Frame<Bytes>, SharedError>>;

/// A response body that broke off.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cluster {cluster}: the response broke off: {cause}")]
pub struct ResponseBodyError {
    /// The cluster that was answering.
    pub cluster: ClusterName,
    /// Cause with its own causes, as text.
    pub cause: Arc<str>,
    /// Cause of the failure.
    #[source]
    pub source: SharedError,
}

/// Reader of a response body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyReader {
    /// The reader of a short answer, or this process.
    Any,
    /// A client with a long-running request: its failure is logged.
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

/// Origin and reader of a response body.
pub(crate) struct BodySource {
    pub(crate) endpoint: Arc<Endpoint>,
    /// Speaker of the answer.
    pub(crate) speaker: Speaker,
    pub(crate) reader: BodyReader,
    /// Whether the end is marked, as over HTTP/2. hyper takes a stream that is reset without an error for the end of a
    /// body: a server may reset after the whole answer if it wants no more of a request (RFC 9113 §8.1).
    pub(crate) has_marked_end: bool,
}

/// Body of a cluster's response, as it comes from the connection.
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

/// Body of a cluster's response, with its resources until it ends or is dropped: a stream of a connection, and permits.
pub(crate) struct MemberBody {
    // Dropped first: hyper resets the stream before the capacity is counted as free. Gone when this is dropped.
    answer: Option<MemberAnswer>,
    permit: Option<Permit>,
    shared: Option<Occupied>,
    cluster: ClusterName,
    /// Each new part shows that the endpoint is alive.
    source: BodySource,
    /// Whether the body is pending. Only then a new part has just come; a slow client may take parts that came long
    /// ago.
    is_waiting: bool,
    /// Part after a piece that is no piece itself: the end, trailers, or a failure.
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
        permit: Option<Permit>,
        shared: Option<Occupied>,
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

    /// The body was read to its end.
    fn ended(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.ended_well();
        }
        self.permit = None;
    }

    /// The body broke off, or is cut off.
    fn failed(&mut self) {
        (self.shared, self.permit) = (None, None);
    }

    /// Joins a short piece with available ones after it. A Go server ends an answer by an empty frame with the last
    /// bytes: the client gets both in one frame, one TLS record and one system call.
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

    /// The body broke off with this error.
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
                // hyper's server polls no body again that reports its end.
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
        // The follower of a watch abandons it.
        if let (Some(MemberAnswer::Usual(incoming)), Some(shared)) = (self.answer.take(), self.shared.take()) {
            shared.give_up(async { Some(incoming) });
        }
    }
}
