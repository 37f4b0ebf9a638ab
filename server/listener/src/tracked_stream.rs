//! The socket of a connection, whose reads and writes are counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tributary_apimachinery::Permit;

use crate::acquaintance::Acquaintance;
use crate::coalesce::Coalesce;
use crate::outgoing::Outgoing;
use crate::received::ByteCounter;

/// A socket with its permits. An upgrade keeps the permits, so a tunnel is counted until it closes.
pub(super) struct TrackedStream {
    pub(super) stream: TlsStream<Coalesce<TcpStream>>,
    pub(super) outgoing: Arc<Outgoing>,
    pub(super) received: ByteCounter,
    /// The authentication state, whose permit counts the connection for its user until the socket closes.
    pub(super) acquaintance: Arc<Acquaintance>,
    pub(super) _socket: Permit,
}

impl TrackedStream {
    /// Records whether the socket accepted the bytes of a write.
    fn noted<T>(&self, written: Poll<T>) -> Poll<T> {
        self.outgoing.wrote(written.is_pending());
        written
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, received, acquaintance, .. } = &mut *self;
        ready!(received.poll_turn(acquaintance, cx));
        let before = buf.filled().len();
        let read = Pin::new(stream).poll_read(cx, buf);
        if !received.add(&buf.filled()[before..], acquaintance) {
            // The connection will be closed, so it is no longer read.
            acquaintance.refuse_trailers();
            return Poll::Pending;
        }
        read
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.noted(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.noted(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.noted(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
