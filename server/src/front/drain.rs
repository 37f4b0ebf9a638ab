//! Ends forwarded watches when the server drains.
//!
//! Merged watches end by themselves, with a bookmark. A forwarded watch would continue until the end of the drain, and
//! would be cut in the middle of an event. This module ends the watch between two events, as every client expects.

use futures::FutureExt;
use http::Response;
use http::header::CONTENT_TYPE;
use tokio_util::sync::CancellationToken;
use tributary_router::{EarlyEnd, end_early};

use crate::handler::Body;

/// Ends the answer to a watch between two events after `stop` is cancelled. Only JSON events end with a newline, so a
/// watch in a different encoding is not changed.
pub(crate) fn end_with(stop: CancellationToken, response: Response<Body>) -> Response<Body> {
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !content_type.starts_with("application/json") || response.headers().contains_key(http::header::CONTENT_ENCODING)
    {
        return response;
    }
    let stopped = async move {
        stop.cancelled_owned().await;
        EarlyEnd::AfterLine
    };
    response.map(|body| end_early(body, true, stopped.boxed()))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::StreamExt;
    use http_body_util::{BodyDataStream, BodyExt, StreamBody};
    use hyper::body::Frame;
    use tokio::sync::mpsc;

    use super::*;

    fn frames() -> (mpsc::UnboundedSender<&'static str>, Body) {
        let (sender, receiver) = mpsc::unbounded_channel::<&'static str>();
        let frames = futures::stream::unfold(receiver, |mut receiver| async {
            let text = receiver.recv().await?;
            Some((Ok(Frame::data(Bytes::from_static(text.as_bytes()))), receiver))
        });
        (sender, StreamBody::new(frames).boxed_unsync())
    }

    #[tokio::test]
    async fn drain_ends_a_forwarded_watch_between_two_events() {
        let stop = CancellationToken::new();
        let (sender, body) = frames();
        let response = Response::builder().header(CONTENT_TYPE, "application/json").body(body).unwrap();
        let mut stream = BodyDataStream::new(end_with(stop.clone(), response).into_body());
        sender.send("{}\n{\"a\":").unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap(), "{}\n{\"a\":");
        stop.cancel();
        sender.send("1}\n").unwrap();
        sender.send("{}\n").unwrap();
        assert_eq!(stream.next().await.unwrap().unwrap(), "1}\n", "what was begun is ended");
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn drain_does_not_change_protobuf_watches() {
        let stop = CancellationToken::new();
        stop.cancel();
        let (sender, body) = frames();
        let form = "application/vnd.kubernetes.protobuf;stream=watch";
        let response = Response::builder().header(CONTENT_TYPE, form).body(body).unwrap();
        sender.send("x").unwrap();
        drop(sender);
        let whole = end_with(stop, response).into_body().collect().await.unwrap().to_bytes();
        assert_eq!(whole, "x");
    }
}
