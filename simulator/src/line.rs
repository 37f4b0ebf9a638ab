//! The connection to a client: a stream that can become silent, like a TCP stream whose peer has vanished.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Controls whether the member's connections transfer bytes. All connections share this value.
#[derive(Default)]
pub(crate) struct MemberLink {
    silent: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl MemberLink {
    pub(crate) fn set_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
        if !silent {
            self.waiting.lock().drain(..).for_each(Waker::wake);
        }
    }

    /// Registers the task, so that the end of the silence wakes it. Returns false if the connections are not silent.
    fn blocks(&self, context: &Context<'_>) -> bool {
        if !self.silent.load(Ordering::SeqCst) {
            return false;
        }
        self.waiting.lock().push(context.waker().clone());
        // Checked again, because the silence may have ended before the task was registered.
        self.silent.load(Ordering::SeqCst)
    }
}

/// The stream of a connection whose bytes the [`MemberLink`] may stop.
pub(crate) struct LinkStream<S> {
    stream: S,
    line: Arc<MemberLink>,
}

impl<S> LinkStream<S> {
    pub(crate) fn new(stream: S, line: Arc<MemberLink>) -> Self {
        Self { stream, line }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LinkStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.line.blocks(context) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LinkStream<S> {
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
