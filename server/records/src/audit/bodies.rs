//! Copies bodies for the audit log, and delays the end of an answer until its event is written.

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

/// The part of a body that has passed its observer. The stored frames share memory with the frames that the body's
/// reader receives.
#[derive(Debug, Default)]
pub(crate) struct ObservedBytes {
    frames: Vec<Bytes>,
    bytes: usize,
    pub(crate) is_whole: bool,
}

impl BodyObserver for ObservedBytes {
    fn observed(&mut self, data: Option<&Bytes>, is_whole: bool) {
        self.is_whole = is_whole;
        let Some(data) = data else { return };
        self.bytes = self.bytes.saturating_add(data.len());
        match self.is_too_long() {
            true => self.frames = Vec::new(),
            false => self.frames.push(data.clone()),
        }
    }
}

impl ObservedBytes {
    /// Returns whether the body exceeds the size limit of bodies in events.
    pub(crate) fn is_too_long(&self) -> bool {
        self.bytes > BODY_BYTES_MAX
    }

    /// Returns the number of stored bytes; 0 for a body that is too long.
    pub(crate) fn stored_bytes(&self) -> usize {
        if self.is_too_long() { 0 } else { self.bytes }
    }

    pub(crate) fn text(&self) -> Vec<u8> {
        self.frames.concat()
    }
}

/// The observed part of a request's body. The audit log may read this part while the handler still reads the body.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedObservedBytes(Arc<Mutex<ObservedBytes>>);

impl SharedObservedBytes {
    /// Calls a function with the observed part of the body, while the part is locked.
    pub(crate) fn with_observed<T>(&self, with_observed: impl FnOnce(&ObservedBytes) -> T) -> T {
        with_observed(&self.0.lock())
    }
}

impl BodyObserver for SharedObservedBytes {
    fn observed(&mut self, data: Option<&Bytes>, is_whole: bool) {
        self.0.lock().observed(data, is_whole);
    }
}

/// Wraps a request's body in an observer. The handler may read only a part of the body, or nothing.
pub(crate) fn observe_request(body: Body) -> (Body, SharedObservedBytes) {
    let observed = SharedObservedBytes::default();
    observed.0.lock().is_whole = body.is_end_stream();
    (ObservedBody::new(body, observed.clone()).boxed_unsync(), observed)
}

/// The observed part of an answer's body; `None` if the audit event omits the body.
#[derive(Default)]
struct RecordedAnswer(Option<ObservedBytes>);

impl BodyObserver for RecordedAnswer {
    fn observed(&mut self, data: Option<&Bytes>, is_whole: bool) {
        if let Some(observed) = &mut self.0 {
            observed.observed(data, is_whole);
        }
    }
}

/// The function that writes the last event at the end of an answer. Its argument is the observed body, if the event
/// includes the body.
type EndCallback = Box<dyn FnOnce(Option<ObservedBytes>) -> Emission + Send>;

/// The body of an audited answer. Its last event is written before the client receives the end of the body, or when the
/// client disconnects.
pub(crate) struct AuditedBody {
    body: ObservedBody<RecordedAnswer>,
    /// The function that writes the last event; `None` after the writing has begun.
    on_end: Option<EndCallback>,
    /// The pending write of the last event. `last_frame` contains the answer's last frame until the write completes.
    emission: Option<Emission>,
    last_frame: Option<Frame<Bytes>>,
}

impl AuditedBody {
    /// Wraps an answer's body. With `stores_body`, the body's data is stored for the event.
    pub(crate) fn boxed(
        body: Body,
        stores_body: bool,
        on_end: impl FnOnce(Option<ObservedBytes>) -> Emission + Send + 'static,
    ) -> Body {
        let body = ObservedBody::new(body, RecordedAnswer(stores_body.then(ObservedBytes::default)));
        Self { body, on_end: Some(Box::new(on_end)), emission: None, last_frame: None }.boxed_unsync()
    }

    /// Begins to write the last event of the request.
    fn end(&mut self) -> Option<Emission> {
        let observed = self.body.observer().0.take();
        self.on_end.take().map(|on_end| on_end(observed))
    }
}

impl hyper::body::Body for AuditedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.emission.is_none() && self.on_end.is_some() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    if !self.body.is_end_stream() {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    // A client takes the last frame as the end of the answer, so the event must be written first.
                    self.last_frame = Some(frame);
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
            // The client has received the head of the answer, so a failed write cannot refuse the request.
            ready!(Pin::new(emission).poll(cx));
            self.emission = None;
        }
        Poll::Ready(self.last_frame.take().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.on_end.is_none() && self.emission.is_none() && self.last_frame.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.body.size_hint();
        let last_frame = self.last_frame.as_ref().and_then(Frame::data_ref).map_or(0, Bytes::len) as u64;
        rest.exact().map_or(rest, |rest| SizeHint::with_exact(last_frame + rest))
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

    /// hyper sends the head, with or without a Content-Length, before the event is written.
    #[tokio::test]
    async fn audited_body_keeps_its_length_while_the_event_is_written() {
        let (written, is_written) = oneshot::channel();
        let on_end = |_| Emission::waiting(async { is_written.await.unwrap_or(false) });
        let mut body = AuditedBody::boxed(full("answer"), false, on_end);
        assert_eq!(body.size_hint().exact(), Some(6));
        assert!(futures::poll!(body.frame()).is_pending());
        assert_eq!(body.size_hint().exact(), Some(6));
        written.send(true).unwrap();
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "answer");
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
    }
}
