//! Sends a watch on a connection that clients share.

use http::{Request, Response};
use tributary_apimachinery::Permit;
use tributary_apimachinery::body::Body;
use tributary_apimachinery::permit::RequestPermit;

use crate::error::Sent;
use crate::forward::exchange::{Failed, was_refused};
use crate::member::ClientInner;
use crate::pool::stream_counts::SentStream;
use crate::pool::watch_connection::WatchSender;
use crate::pool::watch_stream::{WatchBody, WatchResources};

impl ClientInner {
    /// Sends a watch and waits for the response head. The response body keeps the permits and the stream until its end.
    ///
    /// # Errors
    /// [`ForwardError::Send`](crate::error::ForwardError::Send), with the request if it was not sent.
    pub(crate) async fn watch(
        &self,
        sender: &WatchSender,
        request: Request<Body>,
        sent: SentStream,
        occupied: Permit,
    ) -> Result<(Response<WatchBody>, Permit), Failed> {
        let permit = RequestPermit::from(occupied);
        let resources =
            WatchResources { sent, permit: permit.clone(), abandoned_read_time: self.tuning.abandoned_read_time };
        let (head, body) = request.into_parts();
        let watch = Request::from_parts(head.clone(), ());
        let answer = match sender.send(watch, resources) {
            Ok(answer) => answer,
            Err(error) => return Err(self.send_failed(error, Sent::No, Some(Request::from_parts(head, body)))),
        };
        match answer.await {
            Ok(Ok(response)) => Ok((response, Permit::from_guard(permit))),
            Ok(Err(error)) => {
                let sent = if was_refused(&error) { Sent::No } else { Sent::Maybe };
                Err(self.send_failed(error, sent, None))
            }
            Err(_) => Err(self.send_failed(std::io::Error::other("the connection is gone"), Sent::Maybe, None)),
        }
    }
}
