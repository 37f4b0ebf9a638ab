//! One watch on a shared connection.
//!
//! Received data is taken out of the HTTP/2 stream at once, and stored for the client as plain bytes. The stream's
//! window is extended only when the client has read data. So a client that does not read occupies at most one window,
//! and only its own watch waits.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use h2::client::ResponseFuture;
use h2::{FlowControl, Reason, RecvStream};
use http::{HeaderMap, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Duration, Instant, timeout_at};
use tributary_apimachinery::permit::RequestPermit;

use crate::pool::stream_counts::SentStream;

/// Resources of a watch, and the minimal age of its stream before a reset.
pub(crate) struct WatchResources {
    pub(crate) sent: SentStream,
    /// Permits that are freed when the stream has ended and the client has finished reading.
    pub(crate) permit: RequestPermit,
    /// Minimal age of a stream at its reset. Proxies count early resets, and close a connection with many of them.
    pub(crate) abandoned_read_time: Duration,
}

/// Receives the response to a watch until its end, or until the client abandons the watch. Runs in the connection's
/// task.
pub(crate) async fn receive_watch(
    mut answer: ResponseFuture,
    mut head_sender: oneshot::Sender<Result<Response<WatchBody>, h2::Error>>,
    resources: WatchResources,
) {
    let WatchResources { sent, permit, abandoned_read_time } = resources;
    let reset_from = Instant::now() + abandoned_read_time;
    let answered = tokio::select! {
        biased;
        answered = &mut answer => answered,
        () = head_sender.closed() => match timeout_at(reset_from, &mut answer).await {
            Ok(answered) => answered,
            // The client abandoned the watch before the response head. The member may still be processing the request.
            Err(_) => {
                drop(answer);
                return drop((sent, permit));
            }
        },
    };
    // The stream must have ended before it is counted as free.
    drop(answer);
    sent.complete();
    match answered {
        Err(error) => drop(head_sender.send(Err(error))),
        Ok(response) => {
            let (head, mut stream) = response.into_parts();
            let buffer = Arc::new(WatchBuffer::from_stream(&mut stream));
            let body = WatchBody { buffer: buffer.clone() };
            let _end = EndOnDrop(buffer.clone());
            // If the client has disconnected, nobody receives the body. It is dropped here, which abandons the watch.
            drop(head_sender.send(Ok(Response::from_parts(head, body))));
            if poll_fn(|cx| buffer.poll_follow(&mut stream, cx)).await == FollowOutcome::GivenUp {
                // The rest of the response is read and dropped until the stream may be reset. The window is not
                // extended, so at most one window of data arrives.
                let rest = async { while let Some(Ok(_)) = stream.data().await {} };
                let _over = timeout_at(reset_from, rest).await;
            }
        }
    }
    drop(permit);
}

/// Marks the end of the body when dropped. So the reader gets an error if the connection's task is dropped.
struct EndOnDrop(Arc<WatchBuffer>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.update(|state| {
            state.end.get_or_insert_with(|| Err(Reason::INTERNAL_ERROR.into()));
        });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowOutcome {
    ToItsEnd,
    GivenUp,
}

struct WatchBuffer(Mutex<StreamState>);

#[derive(Default)]
struct StreamState {
    /// Received data that the client has not read; at most as long as the stream's window.
    bytes: BytesMut,
    trailers: Option<HeaderMap>,
    /// The result of the stream, set at its end: success or an error.
    end: Option<Result<(), h2::Error>>,
    /// Flow control of the stream, which keeps the stream open. `None` after the client has dropped the body.
    flow: Option<FlowControl>,
    is_given_up: bool,
    reader: Option<Waker>,
    follower: Option<Waker>,
}

impl WatchBuffer {
    fn from_stream(stream: &mut RecvStream) -> Self {
        let end = stream.is_end_stream().then_some(Ok(()));
        Self(Mutex::new(StreamState { end, flow: Some(stream.flow_control().clone()), ..StreamState::default() }))
    }

    fn poll_follow(&self, stream: &mut RecvStream, cx: &mut Context<'_>) -> Poll<FollowOutcome> {
        loop {
            match stream.poll_data(cx) {
                Poll::Ready(Some(Ok(bytes))) => self.update(|state| state.bytes.extend_from_slice(&bytes)),
                Poll::Ready(Some(Err(error))) => {
                    self.update(|state| state.end = Some(Err(error)));
                    return Poll::Ready(FollowOutcome::ToItsEnd);
                }
                Poll::Ready(None) => match stream.poll_trailers(cx) {
                    Poll::Ready(trailers) => {
                        self.update(|state| match trailers {
                            Ok(trailers) => (state.trailers, state.end) = (trailers, Some(Ok(()))),
                            Err(error) => state.end = Some(Err(error)),
                        });
                        return Poll::Ready(FollowOutcome::ToItsEnd);
                    }
                    Poll::Pending => break,
                },
                Poll::Pending => break,
            }
        }
        let mut state = self.0.lock();
        if state.is_given_up {
            return Poll::Ready(FollowOutcome::GivenUp);
        }
        if state.follower.as_ref().is_none_or(|follower| !follower.will_wake(cx.waker())) {
            state.follower = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    fn update(&self, note: impl FnOnce(&mut StreamState)) {
        let reader = {
            let mut state = self.0.lock();
            if state.is_given_up {
                return;
            }
            note(&mut state);
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// The response body of a watch. Dropping the body abandons the watch.
pub(crate) struct WatchBody {
    buffer: Arc<WatchBuffer>,
}

impl HttpBody for WatchBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let mut state = self.buffer.0.lock();
        if !state.bytes.is_empty() {
            // Moves the buffer out of the state, so that consumed data takes no memory.
            let bytes = std::mem::take(&mut state.bytes).freeze();
            // A failed extension of the window is ignored. The stream has ended then, and its end is reported
            // separately.
            let _ended = state.flow.as_mut().map(|flow| flow.release_capacity(bytes.len()));
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if let Some(trailers) = state.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        match state.end.replace(Ok(())) {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error))),
            None => {
                state.end = None;
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let state = self.buffer.0.lock();
        state.bytes.is_empty() && state.trailers.is_none() && matches!(state.end, Some(Ok(())))
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.buffer.0.lock();
        let mut hint = SizeHint::new();
        hint.set_lower(state.bytes.len() as u64);
        if matches!(state.end, Some(Ok(()))) {
            hint.set_upper(state.bytes.len() as u64);
        }
        hint
    }
}

impl Drop for WatchBody {
    fn drop(&mut self) {
        let (follower, flow, bytes) = {
            let mut state = self.buffer.0.lock();
            state.is_given_up = true;
            (state.follower.take(), state.flow.take(), std::mem::take(&mut state.bytes))
        };
        drop((flow, bytes));
        if let Some(follower) = follower {
            follower.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::BodyExt;
    use tributary_apimachinery::Permit;

    use super::*;
    use crate::pool::stream_counts::StreamCounts;

    #[tokio::test]
    async fn watch_body_fails_if_its_connection_task_is_dropped() {
        let (near, far) = tokio::io::duplex(64 << 10);
        tokio::spawn(async move {
            let mut member = h2::server::handshake(far).await.unwrap();
            let mut begun = Vec::new();
            while let Some(Ok((_request, mut respond))) = member.accept().await {
                begun.push(respond.send_response(Response::new(()), false).unwrap());
            }
        });
        let (mut send, connection) = h2::client::handshake(near).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("http://member.example/").body(()).unwrap();
        let (answer, _request_body) = send.send_request(request, true).unwrap();
        let (head_sender, head) = oneshot::channel();
        let sent = SentStream::on(&Arc::new(StreamCounts::new(1)));
        let resources =
            WatchResources { sent, permit: Permit::from_guard(()).into(), abandoned_read_time: Duration::ZERO };
        let following = tokio::spawn(receive_watch(answer, head_sender, resources));
        let mut body = head.await.unwrap().unwrap().into_body();
        following.abort();
        assert!(body.frame().await.expect("it has not ended well").is_err());
        assert!(body.frame().await.is_none());
    }
}
