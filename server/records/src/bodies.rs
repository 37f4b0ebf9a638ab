//! Observes bodies while their readers read them, for the access log and the audit log.
//!
//! ```text
//! a body ─▶ ObservedBody ─▶ its reader
//!               └─▶ BodyObserver: the access log's line, the audit log's copy
//! ```

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body as _;
use hyper::body::{Frame, SizeHint};
use tributary_apimachinery::body::{Body, BoxError, PeekedBody, full};

/// Observes the frames of a body. Dropped together with the body.
pub(crate) trait BodyObserver: Send + Unpin + 'static {
    /// Reports a frame. `data` is `None` for a frame of trailers and at the end. `is_whole` is true when this frame
    /// completes the body, and never for a body that fails.
    fn observed(&mut self, data: Option<&Bytes>, is_whole: bool);
}

pub(crate) struct ObservedBody<Observer> {
    body: Body,
    observer: Observer,
}

impl<Observer: BodyObserver> ObservedBody<Observer> {
    pub(crate) fn new(body: Body, observer: Observer) -> Self {
        Self { body, observer }
    }

    pub(crate) fn observer(&mut self) -> &mut Observer {
        &mut self.observer
    }
}

impl<Observer: BodyObserver> hyper::body::Body for ObservedBody<Observer> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let (data, is_whole) = match &frame {
            Some(Ok(frame)) => (frame.data_ref(), self.body.is_end_stream()),
            Some(Err(_)) => (None, false),
            None => (None, true),
        };
        self.observer.observed(data, is_whole);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The maximum length, in bytes, of a body in memory whose end needs no observer. Such a body fits in HTTP/2's initial
/// window (65,535 bytes), so a slow reader cannot delay its end.
const IN_MEMORY_BYTES_MAX: u64 = 64_000;

/// Returns a short body that is completely in memory. Returns any other body as the error. Most answers are short, and
/// need no observer for their end, which saves memory and time.
pub(crate) fn take_in_memory(body: Body) -> Result<Body, Body> {
    if body.is_end_stream() {
        return Ok(body);
    }
    let exact = body.size_hint().exact();
    if exact.is_none_or(|bytes| bytes > IN_MEMORY_BYTES_MAX) {
        return Err(body);
    }
    let mut begun = PeekedBody::begin(body);
    let is_all = begun.rest_has_ended();
    begun.take_data(|_| is_all).map(full).ok_or_else(|| begun.into_body())
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use http_body_util::{BodyExt, StreamBody};
    use parking_lot::Mutex;

    use super::*;

    /// A member's answer with a Content-Length, whose frames arrive one by one. An empty string stands for a poll that
    /// returns `Pending`.
    struct Parts(Vec<&'static str>);

    impl hyper::body::Body for Parts {
        type Data = Bytes;
        type Error = BoxError;

        fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            match self.0.is_empty() {
                true => Poll::Ready(None),
                false => match self.0.remove(0) {
                    "" => {
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                    part => Poll::Ready(Some(Ok(Frame::data(part.into())))),
                },
            }
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0.iter().map(|part| part.len() as u64).sum())
        }
    }

    #[tokio::test]
    async fn only_complete_short_bodies_count_as_in_memory() {
        let parts = |parts: &[&'static str]| Parts(parts.to_vec()).boxed_unsync();
        let unknown = StreamBody::new(futures::stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from("answer")))]));
        for (name, body, is_at_hand) in [
            ("whole", full("answer"), true),
            ("empty", full(""), true),
            ("long", full("x".repeat(65_000)), false),
            ("one part, whose end is not said", parts(&["answer"]), false),
            ("two parts", parts(&["ans", "wer"]), false),
            ("late", parts(&["", "answer"]), false),
            ("late in the middle", parts(&["ans", "", "wer"]), false),
            ("of no known length", unknown.map_err(|never| match never {}).boxed_unsync(), false),
        ] {
            let length = body.size_hint().exact();
            let judged = take_in_memory(body);
            assert_eq!(judged.is_ok(), is_at_hand, "{name}");
            let (Ok(body) | Err(body)) = judged;
            assert_eq!(body.size_hint().exact(), length, "{name}");
            let text = body.collect().await.unwrap().to_bytes();
            let expected = match name {
                "empty" => 0,
                "long" => 65_000,
                _ => "answer".len(),
            };
            assert_eq!(text.len(), expected, "{name}");
        }
    }

    type Told = Vec<(Option<Bytes>, bool)>;

    /// Records each reported frame and whether the body was complete.
    struct Notes(Arc<Mutex<Told>>);

    impl BodyObserver for Notes {
        fn observed(&mut self, data: Option<&Bytes>, is_whole: bool) {
            self.0.lock().push((data.cloned(), is_whole));
        }
    }

    #[tokio::test]
    async fn body_observer_gets_each_frame_and_the_end_of_the_body() {
        let ok = |data: &'static str| Ok(Frame::data(Bytes::from_static(data.as_bytes())));
        let failing = StreamBody::new(futures::stream::iter([ok("one"), Err(BoxError::from("cut"))])).boxed_unsync();
        let of_unknown_length = StreamBody::new(futures::stream::iter([ok("one"), ok("two")])).boxed_unsync();
        for (name, body, expected) in [
            ("whole", full("one"), vec![(Some("one"), true)]),
            ("of no known length", of_unknown_length, vec![(Some("one"), false), (Some("two"), false), (None, true)]),
            ("failing", failing, vec![(Some("one"), false), (None, false)]),
        ] {
            let told = Arc::default();
            let observed = ObservedBody::new(body, Notes(Arc::clone(&told)));
            let _it_may_fail = observed.collect().await;
            let expected: Vec<_> = expected.into_iter().map(|(data, whole)| (data.map(Bytes::from), whole)).collect();
            let told = std::mem::take(&mut *told.lock());
            // If the last frame already completes the body, a reader may omit the poll that returns the end.
            assert_eq!(told[..expected.len()], expected, "{name}");
            assert!(told[expected.len()..].iter().all(|told| *told == (None, true)), "{name}: {told:?}");
        }
    }
}
