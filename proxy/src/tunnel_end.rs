//! End of a tunnel that both sides would keep open.

use std::fmt;

use futures::future::{BoxFuture, pending};
use tokio::sync::oneshot;

/// Ends the tunnel of a switched request, by the future that its [`TunnelEnder`] is given.
pub struct TunnelEnd(oneshot::Receiver<BoxFuture<'static, ()>>);

/// Decides about the end of a tunnel. On drop, the tunnel ends when its sides close.
pub struct TunnelEnder(oneshot::Sender<BoxFuture<'static, ()>>);

impl TunnelEnd {
    /// An end, and the sender that decides about it.
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
    /// Ends the tunnel when this future does. The future is dropped after the tunnel has ended by itself.
    pub fn end_when(self, end: BoxFuture<'static, ()>) {
        // Fails after the tunnel has ended.
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
