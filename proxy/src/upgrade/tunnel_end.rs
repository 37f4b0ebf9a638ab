//! What ends a tunnel that both sides would keep open.

use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, pending};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Among the extensions of a request that may be switched: ends its tunnel once the future is over that its
/// [`TunnelEnder`] is given. Clones are one.
#[derive(Clone)]
pub struct TunnelEnd(Arc<Mutex<Option<oneshot::Receiver<BoxFuture<'static, ()>>>>>);

/// Says when a tunnel is to end. Dropped, it ends when its sides part.
pub struct TunnelEnder(oneshot::Sender<BoxFuture<'static, ()>>);

impl TunnelEnd {
    /// The end of one tunnel, and who says when it is.
    pub fn new() -> (Self, TunnelEnder) {
        let (sender, receiver) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Some(receiver)))), TunnelEnder(sender))
    }

    /// Ends when the tunnel is to end, for the first who asks.
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
