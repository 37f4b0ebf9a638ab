//! The connection to the clients: a TCP stream that can become silent, like the stream of a vanished peer.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Whether the member's connections transfer bytes. Shared by all connections.
#[derive(Default)]
pub(crate) struct MemberLink {
    silent: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl MemberLink {
    /// Silences all connections, or ends the silence.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
        if !silent {
            self.waiting.lock().drain(..).for_each(Waker::wake);
        }
    }

    /// Registers the task for a wakeup at the end of the silence; false if there is no silence.
    fn blocks(&self, context: &Context<'_>) -> bool {
        if !self.silent.load(Ordering::SeqCst) {
            return false;
        }
        self.waiting.lock().push(context.waker().clone());
        // The silence may have ended between the check and the registration.
        self.silent.load(Ordering::SeqCst)
    }
}

/// The stream of a connection on the [`MemberLink`].
pub(crate) struct LineStream<S> {
    stream: S,
    line: Arc<MemberLink>,
}

impl<S> LineStream<S> {
    pub(crate) fn new(stream: S, line: Arc<MemberLink>) -> Self {
        Self { stream, line }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LineStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.line.blocks(context) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LineStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.line.blocks(context) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(context, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.line.blocks(context) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
