//! The line to the clients: a TCP stream that can fall silent, as one does when its peer vanishes without a word.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Whether the member's connections carry bytes. Shared by all of them.
#[derive(Default)]
pub(crate) struct MemberLink {
    silent: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl MemberLink {
    /// Makes every connection silent, or lets them go on.
    pub(crate) fn set_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
        if !silent {
            self.waiting.lock().drain(..).for_each(Waker::wake);
        }
    }

    /// Registers the task to be woken when the line carries bytes again; false if it does.
    fn blocks(&self, context: &Context<'_>) -> bool {
        if !self.silent.load(Ordering::SeqCst) {
            return false;
        }
        self.waiting.lock().push(context.waker().clone());
        // The line may have come back between the first look and the push.
        self.silent.load(Ordering::SeqCst)
    }
}

/// One connection's stream on the [`MemberLink`].
pub(crate) struct LineStream<S> {
    stream: S,
    line: Arc<MemberLink>,
}

impl<S> LineStream<S> {
    /// Puts a stream on the line.
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
