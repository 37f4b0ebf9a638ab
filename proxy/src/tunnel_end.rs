//! Signal that ends a tunnel although both connections are open.

use std::fmt;

use futures::future::{BoxFuture, pending};
use tokio::sync::oneshot;

/// Signal that ends the tunnel of an upgraded request. The tunnel ends when the future that was passed to the
/// [`TunnelEnder`] is ready.
pub struct TunnelEnd(oneshot::Receiver<BoxFuture<'static, ()>>);

/// Decides when a tunnel ends. If this value is dropped unused, the tunnel ends when its connections close.
pub struct TunnelEnder(oneshot::Sender<BoxFuture<'static, ()>>);

impl TunnelEnd {
    /// Creates a signal, and the handle that controls the signal.
    pub fn new() -> (Self, TunnelEnder) {
        let (sender, receiver) = oneshot::channel();
        (Self(receiver), TunnelEnder(sender))
    }

    pub(crate) async fn wait(self) {
        match self.0.await {
            Ok(end) => end.await,
            Err(_) => pending().await,
        }
    }
}

impl TunnelEnder {
    /// Ends the tunnel when the future `end` is ready. If the tunnel ends earlier, the future is dropped.
    pub fn end_when(self, end: BoxFuture<'static, ()>) {
        // Sending fails if the tunnel has already ended.
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
