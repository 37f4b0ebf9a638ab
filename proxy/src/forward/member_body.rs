//! The body of a cluster's response on the way to the client, with the resources of the request.

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
use crate::forward::abandoned::StreamResources;
use crate::health::responder::Responder;
use crate::permit_pool::RequestOrigin;
use crate::pool::watch_stream::WatchBody;
use crate::pool::{PoolKey, StreamClass};

/// Maximal length of a frame that is joined with the next frame, in bytes. 16 KiB, the usual frame size of HTTP/2:
/// nearly all objects are shorter.
const SHORT_BYTES: usize = 16 << 10;

/// Maximal number of joined frames. 8: limits the copies if a cluster sends many tiny frames.
const TOGETHER_MAX: usize = 8;

/// Next frame of a body; `None` at its end.
type Next = Option<Result<Frame<Bytes>, SharedError>>;

/// Error: a response body ended too early.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cluster {cluster}: the response broke off: {cause}")]
pub struct ResponseBodyError {
    /// The cluster of the response.
    pub cluster: ClusterName,
    /// Text of the error with all its sources.
    pub cause: Arc<str>,
    /// Cause of the failure.
    #[source]
    pub source: SharedError,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyReader {
    /// The client of a request that is not long-running, or Tributary itself.
    Any,
    /// The client of a long-running request. A broken stream is logged.
    Follower,
}

impl BodyReader {
    pub(crate) fn for_pool_key(pool_key: PoolKey) -> Self {
        match (pool_key.origin, pool_key.stream_class) {
            (RequestOrigin::Client, StreamClass::Watch | StreamClass::Streamed) => Self::Follower,
            _ => Self::Any,
        }
    }
}

pub(crate) struct BodySource {
    pub(crate) endpoint: Arc<Endpoint>,
    /// Server that sent the response, by its status code.
    pub(crate) responder: Responder,
    pub(crate) reader: BodyReader,
    /// Whether the HTTP version marks the end of a body, as HTTP/2 does. hyper reports a stream that is reset without
    /// an error as the end of a body. RFC 9113 §8.1 allows such a reset after the complete response, if the server
    /// needs no more of the request.
    pub(crate) has_marked_end: bool,
}

/// Body of a cluster's response on a connection.
pub(crate) enum MemberAnswer {
    Usual(Incoming),
    /// Body of a watch, on a connection that clients share for watches.
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

/// Body of a cluster's response, with its resources: a stream of a connection, and permits. The resources are kept
/// until the body ends or is dropped.
pub(crate) struct MemberBody {
    // The response, dropped before the other fields. So hyper resets the stream before the stream counts as free.
    // `None` after the end.
    answer: Option<MemberAnswer>,
    permit: Option<Permit>,
    shared: Option<StreamResources>,
    cluster: ClusterName,
    /// Endpoint that sends the body. Each new frame shows that the endpoint is alive.
    source: BodySource,
    /// Whether the last poll was pending. A frame counts as newly arrived only after a pending poll, because a slow
    /// client may be reading frames that arrived long ago.
    is_waiting: bool,
    /// The end, the trailers or an error that arrived after joined frames. The next poll returns this value.
    pending_frame: Option<Next>,
    /// Signal to abort the body. Only long-running responses have one.
    cut: Option<WhenWoken<Pin<Box<WaitForCancellationFutureOwned>>>>,
}

/// Error: the stream of a response was reset before the end of the body.
#[derive(Debug, thiserror::Error)]
#[error("the stream was reset before the end of the answer")]
struct CutShort;

/// Error: Tributary itself aborted the body.
#[derive(Debug, thiserror::Error)]
#[error("Tributary no longer serves the cluster")]
struct CutOff;

impl MemberBody {
    /// Wraps a response body. If the body is empty, its resources are freed at once. Cancellation of `until` aborts the
    /// body.
    pub(crate) fn boxed(
        answer: MemberAnswer,
        permit: Option<Permit>,
        shared: Option<StreamResources>,
        cluster: ClusterName,
        source: BodySource,
        until: Option<CancellationToken>,
    ) -> Body {
        let cut = until.map(|until| WhenWoken::new(Box::pin(until.cancelled_owned())));
        let is_whole = answer.is_end_stream();
        let answer = Some(answer);
        let mut body = Self { answer, permit, shared, cluster, source, is_waiting: true, pending_frame: None, cut };
        if is_whole {
            body.ended();
        }
        body.boxed_unsync()
    }

    /// Frees the resources after the end of the body. The stream does not count as reset.
    fn ended(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.complete();
        }
        self.permit = None;
    }

    /// Frees the resources of a broken or aborted body. The stream counts as reset.
    fn failed(&mut self) {
        (self.shared, self.permit) = (None, None);
    }

    /// Joins a short frame with frames that are already available. A Go server ends a response with a separate empty
    /// frame. The client gets both frames at once, in one TLS record and one system call.
    fn with_next(&mut self, mut piece: Frame<Bytes>, cx: &mut Context<'_>) -> Frame<Bytes> {
        for _ in 1..TOGETHER_MAX {
            let is_short = piece.data_ref().is_some_and(|data| data.len() < SHORT_BYTES);
            let answer = self.answer.as_mut().filter(|answer| is_short && !answer.is_end_stream());
            let Some(Poll::Ready(next)) = answer.map(|answer| Pin::new(answer).poll_frame(cx)) else { break };
            match next {
                Some(Ok(next)) if next.is_data() => {
                    let data = next.into_data().unwrap_or_default();
                    piece = piece.map_data(|first| concat_bytes(first, data));
                }
                other => {
                    self.pending_frame = Some(other);
                    break;
                }
            }
        }
        piece
    }

    /// Frees the resources of a broken body. Logs the error if the request is long-running.
    fn fail(&mut self, error: SharedError) -> BoxError {
        self.failed();
        if self.source.reader == BodyReader::Follower {
            self.source.endpoint.record_broken_stream(&self.cluster, &explain(&*error));
        }
        self.record_broken_stream(error)
    }

    /// Returns whether the stream has ended although HTTP/2 has not marked the end of the body.
    fn is_cut_short(&self) -> bool {
        let is_open = |answer: &MemberAnswer| !answer.is_end_stream() && answer.size_hint().exact() != Some(0);
        self.source.has_marked_end && self.answer.as_ref().is_some_and(is_open)
    }

    fn record_broken_stream(&self, source: SharedError) -> BoxError {
        let (cluster, cause) = (self.cluster.clone(), explain(&*source).into());
        ResponseBodyError { cluster, cause, source }.into()
    }
}

impl HttpBody for MemberBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // The abort signal is checked first. If it were checked last, a stream with a frame at each poll could never be
        // aborted.
        if let Some(cut) = &mut self.cut
            && Pin::new(cut).poll(cx).is_ready()
        {
            self.cut = None;
            self.failed();
            return Poll::Ready(Some(Err(self.record_broken_stream(Arc::new(CutOff)))));
        }
        let pending_frame = self.pending_frame.take();
        let Some(answer) = &mut self.answer else { return Poll::Ready(None) };
        let polled = match pending_frame {
            Some(pending_frame) => Poll::Ready(pending_frame),
            None => Pin::new(answer).poll_frame(cx),
        };
        let comes_now = std::mem::replace(&mut self.is_waiting, polled.is_pending());
        let frame = match ready!(polled) {
            Some(Ok(frame)) => {
                let frame = self.with_next(frame, cx);
                if comes_now && self.source.responder != Responder::Intermediary {
                    self.source.endpoint.record_data();
                }
                // The resources are freed here, because hyper's server does not poll a body again after
                // `is_end_stream`.
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
        match &self.pending_frame {
            Some(pending_frame) => pending_frame.is_none() && !self.is_cut_short(),
            None => self.answer.as_ref().is_none_or(HttpBody::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.answer.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

fn concat_bytes(first: Bytes, second: Bytes) -> Bytes {
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
        // A watch needs no action here: dropping the body of a watch abandons the watch.
        if let (Some(MemberAnswer::Usual(incoming)), Some(shared)) = (self.answer.take(), self.shared.take()) {
            shared.read_abandoned(async { Some(incoming) });
        }
    }
}
