//! What ends a tunnel that both sides would keep open.

use std::fmt;

use futures::future::{BoxFuture, pending};
use tokio::sync::oneshot;

/// Ends the tunnel of a switched request, by the future that its [`TunnelEnder`] is given.
pub struct TunnelEnd(oneshot::Receiver<BoxFuture<'static, ()>>);

/// Says when a tunnel is to end. Dropped, it ends when its sides part.
pub struct TunnelEnder(oneshot::Sender<BoxFuture<'static, ()>>);

impl TunnelEnd {
    /// The end of one tunnel, and who says when it is.
    pub fn new() -> (Self, TunnelEnder) {
        let (sender, receiver) = oneshot::channel();
        (Self(receiver), TunnelEnder(sender))
    }

    /// Waits for the end.
    pub(crate) async fn wait(self) {
        match self.0.await {
            Ok(end) => end.await,
            Err(_) => pending().await,
        }
    }
}

impl TunnelEnder {
    /// The tunnel is to end when this does. Once it has ended by itself this is dropped.
    pub fn end_when(self, end: BoxFuture<'static, ()>) {
        // Nobody waits for it any more where the tunnel has ended.
        let _is_over = self.0.send(end);
    }
}

impl fmt::Debug for TunnelEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TunnelEnd")
    }
}

impl fmt::Debug for TunnelEnder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TunnelEnder")
    }
}
