//! Bodies that end early: code that does not read the body can end it before its last frame.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep_until};
use tributary_apimachinery::WhenWoken;

use super::{Body, BoxError, empty};

/// Way in which a body ends early.
#[derive(Debug)]
pub enum EarlyEnd {
    /// The body ends as soon as the current line is complete.
    AfterLine,
    /// The body ends immediately. Between two lines, the body ends without an error. Within a line, the body ends with
    /// this error, so that the reader notices the cut.
    AtOnce(BoxError),
}

/// Returns a body that ends early when `end` resolves. If `lines` is true, the body consists of lines, and only
/// [`EarlyEnd::AtOnce`] can end it within a line.
pub fn end_early(body: Body, lines: bool, end: BoxFuture<'static, EarlyEnd>) -> Body {
    let end = Some(WhenWoken::new(end));
    EarlyEndingBody { body: Some(body), end, ending: None, is_between_lines: lines, lines }.boxed_unsync()
}

/// Returns a body that fails if it is still incomplete at time `from`. `over` then makes the error. A body that is
/// complete at the first poll, as most short answers are, needs no timer.
pub fn fail_late<E>(body: Body, from: Instant, over: BoxFuture<'static, E>) -> Body
where
    E: Into<BoxError> + 'static,
{
    LateFailingBody { body, late: Some((from, over)) }.boxed_unsync()
}

struct LateFailingBody<E> {
    /// The original body. The first poll replaces it by a body [with an early end](end_early), unless the original body
    /// is already complete.
    body: Body,
    /// Time from which the body may fail, and the future of the error. `None` after the first poll.
    late: Option<(Instant, BoxFuture<'static, E>)>,
}

impl<E: Into<BoxError> + 'static> http_body::Body for LateFailingBody<E> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let Some((from, over)) = self.late.take() else { return polled };
        if self.body.is_end_stream() || matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            return polled;
        }
        let end = async move {
            sleep_until(from).await;
            EarlyEnd::AtOnce(over.await.into())
        };
        let body = std::mem::replace(&mut self.body, empty());
        self.body = end_early(body, false, Box::pin(end));
        match polled {
            // The new body is polled at once, so that its early end also wakes the reader.
            Poll::Pending => Pin::new(&mut self.body).poll_frame(cx),
            Poll::Ready(_) => polled,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

struct EarlyEndingBody {
    /// `None` after an early end.
    body: Option<Body>,
    end: Option<WhenWoken<BoxFuture<'static, EarlyEnd>>>,
    ending: Option<EarlyEnd>,
    lines: bool,
    /// True between two lines, if the body consists of lines: the last frame ended with a newline.
    is_between_lines: bool,
}

impl EarlyEndingBody {
    fn poll_end(&mut self, cx: &mut Context<'_>) {
        if let Some(end) = &mut self.end
            && let Poll::Ready(ending) = Pin::new(end).poll(cx)
        {
            (self.end, self.ending) = (None, Some(ending));
        }
    }
}

impl http_body::Body for EarlyEndingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        // The early end is polled first: a body that is always ready would otherwise never end early.
        self.poll_end(cx);
        if self.ending.is_some() && self.is_between_lines {
            self.body = None;
        } else if let Some(EarlyEnd::AtOnce(error)) =
            self.ending.take_if(|ending| matches!(ending, EarlyEnd::AtOnce(_)))
        {
            self.body = None;
            return Poll::Ready(Some(Err(error)));
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(last) = frame.data_ref().and_then(|data| data.last())
        {
            self.is_between_lines = self.lines && *last == b'\n';
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(http_body::Body::size_hint).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::poll_fn;
    use futures::{FutureExt, StreamExt};
    use http_body_util::{BodyDataStream, StreamBody};
    use tokio::sync::{mpsc, oneshot};

    use super::super::full;
    use super::*;

    /// Makes a body from the sent frames.
    fn sent() -> (mpsc::UnboundedSender<&'static str>, Body) {
        let (sender, receiver) = mpsc::unbounded_channel::<&'static str>();
        let frames = futures::stream::unfold(receiver, |mut receiver| async {
            let text = receiver.recv().await?;
            Some((Ok(Frame::data(Bytes::from_static(text.as_bytes()))), receiver))
        });
        (sender, StreamBody::new(frames).boxed_unsync())
    }

    /// Makes a body from the sent frames, with a sender of its early end.
    fn body(lines: bool) -> (mpsc::UnboundedSender<&'static str>, oneshot::Sender<EarlyEnd>, BodyDataStream<Body>) {
        let (sender, body) = sent();
        let (end, ended) = oneshot::channel();
        (sender, end, BodyDataStream::new(end_early(body, lines, async { ended.await.unwrap() }.boxed())))
    }

    async fn next(stream: &mut BodyDataStream<Body>) -> String {
        match stream.next().await {
            Some(Ok(data)) => String::from_utf8(data.to_vec()).unwrap(),
            Some(Err(error)) => format!("error: {error}"),
            None => "end".to_owned(),
        }
    }

    #[tokio::test]
    async fn body_of_lines_ends_early_between_two_lines() {
        for (at_once, begun, expected) in [
            (false, "{}\n{\"a\":", vec!["1}\n", "end"]),
            (false, "{}\n", vec!["end"]),
            (true, "{}\n{\"a\":", vec!["error: over", "end"]),
            (true, "{}\n", vec!["end"]),
        ] {
            let (sender, end, mut stream) = body(true);
            sender.send(begun).unwrap();
            assert_eq!(next(&mut stream).await, begun);
            end.send(if at_once { EarlyEnd::AtOnce("over".into()) } else { EarlyEnd::AfterLine }).unwrap();
            sender.send("1}\n").unwrap();
            sender.send("{}\n").unwrap();
            for expected in expected {
                assert_eq!(next(&mut stream).await, expected, "{begun} {at_once}");
            }
        }
    }

    #[tokio::test]
    async fn body_without_lines_ends_early_with_an_error() {
        for begun in ["a line\n", "half"] {
            let (sender, end, mut stream) = body(false);
            sender.send(begun).unwrap();
            assert_eq!(next(&mut stream).await, begun);
            end.send(EarlyEnd::AtOnce("over".into())).unwrap();
            sender.send("more").unwrap();
            assert_eq!([next(&mut stream).await, next(&mut stream).await], ["error: over", "end"]);
        }
        let (_sender, end, mut stream) = body(false);
        end.send(EarlyEnd::AtOnce("over".into())).unwrap();
        assert_eq!(next(&mut stream).await, "error: over", "also what had not begun");
    }

    #[tokio::test]
    async fn body_that_completes_has_no_early_end() {
        let (sender, _end, mut stream) = body(true);
        sender.send("{}\n").unwrap();
        drop(sender);
        assert_eq!([next(&mut stream).await, next(&mut stream).await], ["{}\n", "end"]);
    }

    #[tokio::test(start_paused = true)]
    async fn complete_body_does_not_poll_its_early_end() {
        let over = poll_fn(|_| -> Poll<&'static str> { panic!("it is asked") }).boxed();
        let mut stream = BodyDataStream::new(fail_late(full("whole"), Instant::now(), over));
        assert_eq!([next(&mut stream).await, next(&mut stream).await], ["whole", "end"]);
    }

    #[tokio::test(start_paused = true)]
    async fn incomplete_body_fails_at_its_time_limit() {
        for begun in [None, Some("begun")] {
            let (sender, body) = sent();
            let from = Instant::now() + Duration::from_secs(1);
            let mut stream = BodyDataStream::new(fail_late(body, from, async { "over" }.boxed()));
            if let Some(begun) = begun {
                sender.send(begun).unwrap();
                assert_eq!(next(&mut stream).await, begun);
            }
            assert_eq!(next(&mut stream).await, "error: over");
            assert!(Instant::now() >= from, "{begun:?}");
            assert_eq!(next(&mut stream).await, "end");
        }
    }
}
