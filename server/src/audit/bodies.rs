//! Bodies that are looked at while they pass.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::FutureExt;
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tributary_audit::BODY_BYTES_MAX;

use super::emission::Emission;
use crate::handler::{Body, BoxError, full};

/// What has passed of a body. Frames are shared with whoever they go to, not copied.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    frames: Vec<Bytes>,
    bytes: usize,
    /// Whether that is all of it.
    pub(crate) is_whole: bool,
}

impl Passed {
    fn add(&mut self, data: &Bytes) {
        self.bytes = self.bytes.saturating_add(data.len());
        match self.is_too_long() {
            true => self.frames = Vec::new(),
            false => self.frames.push(data.clone()),
        }
    }

    /// Whether it is longer than what is written of a body.
    pub(crate) fn is_too_long(&self) -> bool {
        self.bytes > BODY_BYTES_MAX
    }

    /// How many bytes are kept.
    pub(crate) fn kept(&self) -> usize {
        if self.is_too_long() { 0 } else { self.bytes }
    }

    /// What was kept, in one piece.
    pub(crate) fn text(&self) -> Vec<u8> {
        self.frames.concat()
    }
}

/// The body of a request, which the handler may read in part or not at all.
pub(crate) fn noted(body: Body) -> (Body, Arc<Mutex<Passed>>) {
    let passed = Arc::new(Mutex::new(Passed::default()));
    passed.lock().is_whole = body.is_end_stream();
    let noted = NotedBody { body, passed: Arc::clone(&passed) };
    (noted.boxed_unsync(), passed)
}

struct NotedBody {
    body: Body,
    passed: Arc<Mutex<Passed>>,
}

impl hyper::body::Body for NotedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let mut passed = self.passed.lock();
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            passed.add(data);
        }
        passed.is_whole = frame.is_none() || self.body.is_end_stream();
        drop(passed);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Answers that are longer are followed to their end, in bytes: a client may take its time for them. HTTP/2's first window
/// has room for one of this length.
const AT_HAND_BYTES_MAX: u64 = 64_000;

/// The body of an answer that is short and all there, as most are; else the same body as an error. Its end is known
/// without following it, which costs memory and time for each request.
pub(crate) fn at_hand(mut body: Body) -> Result<Body, Body> {
    if body.is_end_stream() {
        return Ok(body);
    }
    let exact = body.size_hint().exact();
    if exact.is_none_or(|bytes| bytes > AT_HAND_BYTES_MAX) {
        return Err(body);
    }
    match body.frame().now_or_never() {
        Some(Some(Ok(frame))) => match frame.into_data() {
            Ok(data) if body.is_end_stream() => Ok(full(data)),
            Ok(data) => Err(BegunBody { first: Some(Ok(Frame::data(data))), rest: body }.boxed_unsync()),
            Err(frame) => Err(BegunBody { first: Some(Ok(frame)), rest: body }.boxed_unsync()),
        },
        Some(Some(Err(error))) => Err(BegunBody { first: Some(Err(error)), rest: body }.boxed_unsync()),
        // Nobody waited yet: whoever asks next is told when there is more.
        Some(None) | None => Err(body),
    }
}

/// A body of which the first frame has been taken.
struct BegunBody {
    first: Option<Result<Frame<Bytes>, BoxError>>,
    rest: Body,
}

impl hyper::body::Body for BegunBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(first)),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.size_hint();
        let first = self.first.as_ref().and_then(|first| first.as_ref().ok()).and_then(Frame::data_ref);
        let first = first.map_or(0, Bytes::len) as u64;
        rest.exact().map_or(rest, |rest| SizeHint::with_exact(first + rest))
    }
}

/// What is done at the end of an answer: with what passed of it, where that was kept.
type Ending = Box<dyn FnOnce(Option<Passed>) -> Emission + Send>;

/// The body of an answer. Its end is written before the client sees it, or when the client goes away.
pub(crate) struct AuditedBody {
    body: Body,
    /// `None` once it has been begun.
    ending: Option<Ending>,
    /// What has passed, where the event says something of it.
    passed: Option<Passed>,
    /// The event on its way, and the frame that waits for it.
    emission: Option<Emission>,
    held: Option<Frame<Bytes>>,
}

impl AuditedBody {
    /// Follows a body to its end, and keeps what passes if the event is to say something of it.
    pub(crate) fn boxed(
        body: Body,
        keeps: bool,
        ending: impl FnOnce(Option<Passed>) -> Emission + Send + 'static,
    ) -> Body {
        let passed = keeps.then(Passed::default);
        Self { body, ending: Some(Box::new(ending)), passed, emission: None, held: None }.boxed_unsync()
    }

    /// Begins to write that nothing more comes.
    fn end(&mut self, is_whole: bool) -> Option<Emission> {
        let passed = self.passed.take().map(|passed| Passed { is_whole, ..passed });
        self.ending.take().map(|ending| ending(passed))
    }
}

impl hyper::body::Body for AuditedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.emission.is_none() && self.ending.is_some() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if let (Some(passed), Some(data)) = (&mut self.passed, frame.data_ref()) {
                        passed.add(data);
                    }
                    if !self.body.is_end_stream() {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    // The client takes the last frame for the end.
                    self.held = Some(frame);
                    self.emission = self.end(true);
                }
                Some(Err(error)) => {
                    if let Some(emission) = self.end(false) {
                        emission.detach();
                    }
                    return Poll::Ready(Some(Err(error)));
                }
                None => self.emission = self.end(true),
            }
        }
        if let Some(emission) = &mut self.emission {
            // The answer is under way: it is not taken back.
            ready!(Pin::new(emission).poll(cx));
            self.emission = None;
        }
        Poll::Ready(self.held.take().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.ending.is_none() && self.emission.is_none() && self.held.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.size_hint();
        let held = self.held.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
        rest.exact().map_or(rest, |rest| SizeHint::with_exact(held + rest))
    }
}

impl Drop for AuditedBody {
    fn drop(&mut self) {
        if let Some(emission) = self.emission.take().or_else(|| self.end(false)) {
            emission.detach();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::StreamBody;
    use tokio::sync::oneshot;

    use super::*;

    /// As a member's answer whose length is known, and of which a part is there.
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
    async fn only_an_answer_that_is_all_there_is_at_hand_and_none_loses_anything() {
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
            let judged = at_hand(body);
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

    /// Its head is sent meanwhile, with the length or without.
    #[tokio::test]
    async fn an_answer_whose_event_is_on_its_way_still_says_how_long_it_is() {
        let (written, is_written) = oneshot::channel();
        let ending = |_| Emission::waiting(async { is_written.await.unwrap_or(false) });
        let mut body = AuditedBody::boxed(full("answer"), false, ending);
        assert_eq!(body.size_hint().exact(), Some(6));
        assert!(futures::poll!(body.frame()).is_pending());
        assert_eq!(body.size_hint().exact(), Some(6));
        written.send(true).unwrap();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "answer");
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    }
}
