//! One watch on a connection that it shares with others'.
//!
//! What the member sends is taken off the stream as it comes, whether or not the client reads, and held for the client
//! as plain bytes. Only what the client has read is given back to the stream's window. So a client that does not read
//! holds as much as its window is, as it would on a connection of its own, and the member waits for that client alone.

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

/// What a watch occupies, and how it is given up.
pub(crate) struct WatchHold {
    /// Of the connection's streams.
    pub(crate) sent: SentStream,
    /// Given back once the stream has ended, and whoever reads is done with it.
    pub(crate) held: RequestPermit,
    /// How young a stream may not be reset. Proxies count resets that come early, and close a connection with all that
    /// is on it for them.
    pub(crate) patience: Duration,
}

/// Follows the answer to a request until it has ended or nobody reads it any more. Runs where the connection is driven.
pub(crate) async fn follow(
    mut answer: ResponseFuture,
    mut told: oneshot::Sender<Result<Response<WatchBody>, h2::Error>>,
    asked: WatchHold,
) {
    let WatchHold { sent, held, patience } = asked;
    let reset_from = Instant::now() + patience;
    let answered = tokio::select! {
        biased;
        answered = &mut answer => answered,
        () = told.closed() => match timeout_at(reset_from, &mut answer).await {
            Ok(answered) => answered,
            // A reset before the answer has begun: the member may be working on it yet.
            Err(_) => {
                drop(answer);
                return drop((sent, held));
            }
        },
    };
    // The stream goes before its place does.
    drop(answer);
    sent.ended_well();
    match answered {
        Err(error) => drop(told.send(Err(error))),
        Ok(response) => {
            let (head, mut stream) = response.into_parts();
            let unread = Arc::new(Unread::from_stream(&mut stream));
            let body = WatchBody { unread: unread.clone() };
            let _end = EndOfFollowing(unread.clone());
            // Where nobody waits for it, the body is dropped here, and so given up.
            drop(told.send(Ok(Response::from_parts(head, body))));
            if poll_fn(|cx| unread.poll_follow(&mut stream, cx)).await == Followed::GivenUp {
                // Nothing is given back to its window: no more than that comes.
                let rest = async { while let Some(Ok(_)) = stream.data().await {} };
                let _over = timeout_at(reset_from, rest).await;
            }
        }
    }
    drop(held);
}

/// Whoever reads a watch that nobody follows any more, because the connection's task is gone, is told so when this is
/// dropped.
struct EndOfFollowing(Arc<Unread>);

impl Drop for EndOfFollowing {
    fn drop(&mut self) {
        self.0.came(|state| {
            state.end.get_or_insert_with(|| Err(Reason::INTERNAL_ERROR.into()));
        });
    }
}

/// Why a stream is followed no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    ToItsEnd,
    GivenUp,
}

/// What has come of a watch and is not read.
struct Unread(Mutex<StreamState>);

#[derive(Default)]
struct StreamState {
    /// No more than the stream's window.
    bytes: BytesMut,
    trailers: Option<HeaderMap>,
    /// How the stream has ended.
    end: Option<Result<(), h2::Error>>,
    /// Of the stream. `None` once nobody reads any more: who has it keeps the stream.
    flow: Option<FlowControl>,
    is_given_up: bool,
    reader: Option<Waker>,
    follower: Option<Waker>,
}

impl Unread {
    fn from_stream(stream: &mut RecvStream) -> Self {
        let end = stream.is_end_stream().then_some(Ok(()));
        Self(Mutex::new(StreamState { end, flow: Some(stream.flow_control().clone()), ..StreamState::default() }))
    }

    /// Takes over all that there is.
    fn poll_follow(&self, stream: &mut RecvStream, cx: &mut Context<'_>) -> Poll<Followed> {
        loop {
            match stream.poll_data(cx) {
                Poll::Ready(Some(Ok(bytes))) => self.came(|state| state.bytes.extend_from_slice(&bytes)),
                Poll::Ready(Some(Err(error))) => {
                    self.came(|state| state.end = Some(Err(error)));
                    return Poll::Ready(Followed::ToItsEnd);
                }
                Poll::Ready(None) => match stream.poll_trailers(cx) {
                    Poll::Ready(trailers) => {
                        self.came(|state| match trailers {
                            Ok(trailers) => (state.trailers, state.end) = (trailers, Some(Ok(()))),
                            Err(error) => state.end = Some(Err(error)),
                        });
                        return Poll::Ready(Followed::ToItsEnd);
                    }
                    Poll::Pending => break,
                },
                Poll::Pending => break,
            }
        }
        let mut state = self.0.lock();
        if state.is_given_up {
            return Poll::Ready(Followed::GivenUp);
        }
        if state.follower.as_ref().is_none_or(|follower| !follower.will_wake(cx.waker())) {
            state.follower = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Something new for whoever reads.
    fn came(&self, note: impl FnOnce(&mut StreamState)) {
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

/// The body of a watch's answer. Dropping it gives up the watch.
pub(crate) struct WatchBody {
    unread: Arc<Unread>,
}

impl HttpBody for WatchBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let mut state = self.unread.0.lock();
        if !state.bytes.is_empty() {
            // With its memory: nothing is held of what was read.
            let bytes = std::mem::take(&mut state.bytes).freeze();
            // It fails where the stream has ended, which the end says.
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
        let state = self.unread.0.lock();
        state.bytes.is_empty() && state.trailers.is_none() && matches!(state.end, Some(Ok(())))
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.unread.0.lock();
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
            let mut state = self.unread.0.lock();
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
    async fn a_watch_that_nobody_follows_any_more_breaks_off() {
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
        let (told, tell) = oneshot::channel();
        let sent = SentStream::on(&Arc::new(StreamCounts::new(1)));
        let asked = WatchHold { sent, held: Permit::keeping(()).into(), patience: Duration::ZERO };
        let following = tokio::spawn(follow(answer, told, asked));
        let mut body = tell.await.unwrap().unwrap().into_body();
        following.abort();
        assert!(body.frame().await.expect("it has not ended well").is_err());
        assert!(body.frame().await.is_none());
    }
}
