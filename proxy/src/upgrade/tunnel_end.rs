//! End of a tunnel that both sides would keep open.

use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, pending};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Among the extensions of a request that may be switched: ends its tunnel once the future is over that its
/// [`TunnelEnder`] is given. Clones are one.
#[derive(Clone)]
pub struct TunnelEnd(Arc<Mutex<Option<oneshot::Receiver<BoxFuture<'static, ()>>>>>);

/// Decides about the end of a tunnel. On drop, the tunnel ends when its sides close.
pub struct TunnelEnder(oneshot::Sender<BoxFuture<'static, ()>>);

impl TunnelEnd {
    /// An end, and the sender that decides about it.
    pub fn new() -> (Self, TunnelEnder) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(receiver)))), TunnelEnder(sender))
    }

    /// Completes when the tunnel has to end, for the first caller.
    pub(crate) fn come(&self) -> impl Future<Output = ()> + Send + 'static {
        let receiver = self.0.lock().take();
        async move {
            match receiver {
                Some(receiver) => match receiver.await {
                    Ok(end) => end.await,
                    Err(_) => pending().await,
                },
                None => pending().await,
            }
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
