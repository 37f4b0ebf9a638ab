//! A request body that can be sent again: the part that was sent, and the remaining body.
//!
//! Requests that the cluster has not processed may be sent again (RFC 9113 §8.7). Frames are shared, not copied. A body
//! whose sent part exceeds the limit is not sent again.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tributary_apimachinery::body::{self, Body, BoxError};

/// Maximal length of the kept part of a body, in bytes. 64 KiB: nearly all objects are shorter. A thousand concurrent
/// writes keep at most 64 MiB until the cluster answers.
const REPLAY_BYTES_MAX: usize = 64 << 10;

/// Size in bytes that is assumed for a shorter frame. 1 KiB: a frame needs a handle of 32 to 64 bytes, and keeps its
/// read buffer alive, perhaps together with frames of other requests. So at most 64 frames are stored.
const FRAME_MIN: usize = 1 << 10;

/// A shared handle to a request body. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ReplayBody(Arc<Mutex<ReplayFrames>>);

struct ReplayFrames {
    /// Frames that an earlier attempt has sent. A retry sends these frames before the remaining body.
    resend_queue: VecDeque<Bytes>,
    /// The remaining body. `None` after a retry has taken the body over.
    rest: Option<Body>,
    /// Frames that were sent. `None` if a retry could not send the complete body: the frames exceeded the limit, a
    /// frame had no data, or the body failed.
    sent: Option<Vec<Bytes>>,
    /// Sum of the sizes of the sent frames, each at least `FRAME_MIN`. Compared with [`REPLAY_BYTES_MAX`].
    counted_bytes: usize,
}

impl ReplayBody {
    /// Returns a handle for retries, and the body for the first attempt.
    pub(crate) fn new(body: Body) -> (Self, Body) {
        Self::with_sender(VecDeque::new(), body)
    }

    fn with_sender(resend_queue: VecDeque<Bytes>, rest: Body) -> (Self, Body) {
        let frames = ReplayFrames { resend_queue, rest: Some(rest), sent: Some(Vec::new()), counted_bytes: 0 };
        let frames = Self(Arc::new(Mutex::new(frames)));
        (frames.clone(), SentBody(frames).boxed_unsync())
    }

    /// Returns the body from its beginning for a retry, with a new handle. `None` if the body cannot be sent again. The
    /// earlier attempt can no longer read the body.
    pub(crate) fn again(&self) -> Option<(Self, Body)> {
        let mut frames = self.0.lock();
        let sent = frames.sent.take()?;
        let rest = frames.rest.take()?;
        let resend_queue = sent.into_iter().chain(std::mem::take(&mut frames.resend_queue)).collect();
        Some(Self::with_sender(resend_queue, rest))
    }
}

struct SentBody(ReplayBody);

/// Error: a retry has taken over this body, so the earlier attempt can no longer read it.
#[derive(Debug, thiserror::Error)]
#[error("the body stops here, because the request is sent again on another connection")]
struct TakenOverByRetry;

impl ReplayFrames {
    fn add_frame(&mut self, frame: &Frame<Bytes>) {
        self.counted_bytes = self
            .counted_bytes
            .saturating_add(frame.data_ref().map_or(REPLAY_BYTES_MAX, |data| data.len().max(FRAME_MIN)));
        match (&mut self.sent, frame.data_ref()) {
            (Some(sent), Some(data)) if self.counted_bytes <= REPLAY_BYTES_MAX => sent.push(data.clone()),
            (sent, _) => *sent = None,
        }
    }
}

impl HttpBody for SentBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut frames = self.0.0.lock();
        let frames = &mut *frames;
        if let Some(data) = frames.resend_queue.pop_front() {
            let frame = Frame::data(data);
            frames.add_frame(&frame);
            return Poll::Ready(Some(Ok(frame)));
        }
        let Some(rest) = &mut frames.rest else { return Poll::Ready(Some(Err(TakenOverByRetry.into()))) };
        let polled = Pin::new(&mut *rest).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => frames.add_frame(frame),
            Poll::Ready(Some(Err(_))) => frames.sent = None,
            // A body must not be polled after its end, so an empty body takes its place.
            Poll::Ready(None) => *rest = body::empty(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let frames = self.0.0.lock();
        frames.resend_queue.is_empty() && frames.rest.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let frames = self.0.0.lock();
        let resend_queue = frames.resend_queue.iter().map(|data| data.len() as u64).sum::<u64>();
        let rest = frames.rest.as_ref().map(HttpBody::size_hint).unwrap_or_default();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(resend_queue));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(resend_queue));
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::StreamBody;

    use super::*;

    fn body(pieces: &[&'static [u8]]) -> Body {
        let frames: Vec<_> =
            pieces.iter().map(|piece| Ok::<_, BoxError>(Frame::data(Bytes::from_static(piece)))).collect();
        StreamBody::new(stream::iter(frames)).boxed_unsync()
    }

    async fn next(body: &mut Body) -> Option<Bytes> {
        body.frame().await.map(|frame| frame.unwrap().into_data().unwrap())
    }

    async fn whole(body: Body) -> Bytes {
        body.collect().await.unwrap().to_bytes()
    }

    #[tokio::test]
    async fn retry_sends_a_partly_sent_request_body_from_its_beginning() {
        for sent in 0..=4 {
            let (replay, mut first) = ReplayBody::new(body(&[b"a", b"bc", b"d"]));
            for _ in 0..sent {
                next(&mut first).await;
            }
            let (replay, mut second) = replay.again().unwrap();
            if sent <= 3 {
                assert!(first.frame().await.unwrap().is_err(), "the first sends no more of it");
            }
            next(&mut second).await;
            let (_, third) = replay.again().unwrap();
            assert_eq!(whole(third).await, "abcd", "after {sent} pieces");
        }
    }

    #[tokio::test]
    async fn request_body_of_a_retry_has_the_same_content_length() {
        let (replay, mut first) = ReplayBody::new(tributary_apimachinery::body::full("abc"));
        assert_eq!((first.size_hint().exact(), first.is_end_stream()), (Some(3), false));
        next(&mut first).await;
        assert_eq!((first.size_hint().exact(), first.is_end_stream()), (Some(0), true));
        let (_, second) = replay.again().unwrap();
        assert_eq!((second.size_hint().exact(), second.is_end_stream()), (Some(3), false));
        assert_eq!(whole(second).await, "abc");
    }

    #[tokio::test]
    async fn broken_request_body_is_not_resent() {
        let frames = vec![Ok(Frame::data(Bytes::from_static(b"a"))), Err(BoxError::from("its client has gone"))];
        let (replay, mut first) = ReplayBody::new(StreamBody::new(stream::iter(frames)).boxed_unsync());
        next(&mut first).await;
        assert!(first.frame().await.unwrap().is_err());
        assert!(replay.again().is_none());
    }

    #[tokio::test]
    async fn retry_does_not_poll_an_ended_request_body() {
        // `unfold` panics if it is polled after its end.
        let frames = stream::unfold(0, async |sent| {
            (sent == 0).then(|| (Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"a"))), 1))
        });
        let (replay, mut first) = ReplayBody::new(StreamBody::new(Box::pin(frames)).boxed_unsync());
        next(&mut first).await;
        assert!(first.frame().await.is_none());
        let (replay, mut second) = replay.again().unwrap();
        next(&mut second).await;
        assert!(second.frame().await.is_none());
        let (_, third) = replay.again().unwrap();
        assert_eq!(whole(third).await, "a");
    }

    #[tokio::test]
    async fn request_body_of_more_than_64_tiny_frames_is_not_resent() {
        let read = async |count: usize| {
            let (replay, mut first) = ReplayBody::new(body(&vec![&b"x"[..]; count]));
            for _ in 0..count {
                next(&mut first).await;
            }
            replay.again()
        };
        let (_, second) = read(64).await.expect("few");
        assert_eq!(whole(second).await.len(), 64);
        assert!(read(65).await.is_none());
    }

    #[tokio::test]
    async fn long_request_body_or_body_with_trailers_is_not_resent() {
        static LONG: [u8; REPLAY_BYTES_MAX] = [b'x'; REPLAY_BYTES_MAX];
        let (replay, mut first) = ReplayBody::new(body(&[&LONG, b"y", b"z"]));
        next(&mut first).await;
        next(&mut first).await;
        assert!(replay.again().is_none());
        assert_eq!(next(&mut first).await.unwrap(), "z", "it goes on");
        let (replay, mut first) = ReplayBody::new(body(&[&LONG, b"y"]));
        next(&mut first).await;
        let (_, second) = replay.again().expect("just as much as is kept");
        assert_eq!(whole(second).await.len(), REPLAY_BYTES_MAX + 1);
        let trailers = Frame::trailers(http::HeaderMap::new());
        let frames = vec![Ok::<_, BoxError>(trailers)];
        let (replay, mut first) = ReplayBody::new(StreamBody::new(stream::iter(frames)).boxed_unsync());
        first.frame().await.unwrap().unwrap();
        assert!(replay.again().is_none());
    }
}
