//! The copies of bodies for the audit log, and answers whose end waits until their event is written.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tributary_apimachinery::body::{Body, BoxError};
use tributary_audit::BODY_BYTES_MAX;

use super::emission::Emission;
use crate::bodies::{BodyObserver, ObservedBody};

/// The observed part of a body. Frames are shared with the body's reader, not copied.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    frames: Vec<Bytes>,
    bytes: usize,
    /// Whether the body is complete.
    pub(crate) is_whole: bool,
}

impl BodyObserver for Passed {
    fn passed(&mut self, data: Option<&Bytes>, is_whole: bool) {
        self.is_whole = is_whole;
        let Some(data) = data else { return };
        self.bytes = self.bytes.saturating_add(data.len());
        match self.is_too_long() {
            true => self.frames = Vec::new(),
            false => self.frames.push(data.clone()),
        }
    }
}

impl Passed {
    /// Returns whether the body is longer than the limit of a written body.
    pub(crate) fn is_too_long(&self) -> bool {
        self.bytes > BODY_BYTES_MAX
    }

    /// The number of kept bytes.
    pub(crate) fn kept_bytes(&self) -> usize {
        if self.is_too_long() { 0 } else { self.bytes }
    }

    /// The kept bytes in one piece.
    pub(crate) fn text(&self) -> Vec<u8> {
        self.frames.concat()
    }
}

/// The observed part of a request's body, for a writer that runs while the handler may still read the body.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedPassed(Arc<Mutex<Passed>>);

impl SharedPassed {
    /// Calls a function with the observed part.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Passed) -> T) -> T {
        look(&self.0.lock())
    }
}

impl BodyObserver for SharedPassed {
    fn passed(&mut self, data: Option<&Bytes>, is_whole: bool) {
        self.0.lock().passed(data, is_whole);
    }
}

/// Observes the body of a request. The handler may read it in part or not at all.
pub(crate) fn noted(body: Body) -> (Body, SharedPassed) {
    let passed = SharedPassed::default();
    passed.0.lock().is_whole = body.is_end_stream();
    (ObservedBody::new(body, passed.clone()).boxed_unsync(), passed)
}

/// The observed part of an answer, if the event includes it.
#[derive(Default)]
struct KeptAnswer(Option<Passed>);

impl BodyObserver for KeptAnswer {
    fn passed(&mut self, data: Option<&Bytes>, is_whole: bool) {
        if let Some(passed) = &mut self.0 {
            passed.passed(data, is_whole);
        }
    }
}

/// The function to run at the end of an answer, with its observed part if that was kept.
type Ending = Box<dyn FnOnce(Option<Passed>) -> Emission + Send>;

/// The body of an answer. The event of its end is written before the client sees the end, or when the client goes away.
pub(crate) struct AuditedBody {
    body: ObservedBody<KeptAnswer>,
    /// `None` once the event has been started.
    ending: Option<Ending>,
    /// The event that is being written; `held` is the frame that waits for it.
    emission: Option<Emission>,
    held: Option<Frame<Bytes>>,
}

impl AuditedBody {
    /// Observes a body to its end, and keeps its data if the event includes it.
    pub(crate) fn boxed(
        body: Body,
        keeps: bool,
        ending: impl FnOnce(Option<Passed>) -> Emission + Send + 'static,
    ) -> Body {
        let body = ObservedBody::new(body, KeptAnswer(keeps.then(Passed::default)));
        Self { body, ending: Some(Box::new(ending)), emission: None, held: None }.boxed_unsync()
    }

    /// Starts to write the event of the end.
    fn end(&mut self) -> Option<Emission> {
        let passed = self.body.observer().0.take();
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
                    if !self.body.is_end_stream() {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    // The client would take the last frame as the end of the answer.
                    self.held = Some(frame);
                    self.emission = self.end();
                }
                Some(Err(error)) => {
                    if let Some(emission) = self.end() {
                        emission.detach();
                    }
                    return Poll::Ready(Some(Err(error)));
                }
                None => self.emission = self.end(),
            }
        }
        if let Some(emission) = &mut self.emission {
            // The answer has begun, so a failed event cannot refuse it.
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
        if let Some(emission) = self.emission.take().or_else(|| self.end()) {
            emission.detach();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tributary_apimachinery::body::full;

    use super::*;

    /// The head is sent before the event is written, with or without the length of the body.
    #[tokio::test]
    async fn audited_body_keeps_its_length_while_the_event_is_written() {
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
