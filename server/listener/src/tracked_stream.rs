//! The socket of a connection, whose reads and writes are counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tributary_apimachinery::Permit;

use crate::authentication::ConnectionAuthentication;
use crate::byte_counter::ByteCounter;
use crate::coalesce::Coalesce;
use crate::outgoing::Outgoing;

/// A socket with its permits. An upgrade keeps the permits, so a tunnel is counted until it closes.
pub(super) struct TrackedStream {
    pub(super) stream: TlsStream<Coalesce<TcpStream>>,
    pub(super) outgoing: Arc<Outgoing>,
    pub(super) byte_counter: ByteCounter,
    /// The authentication state, whose permit counts the connection for its user until the socket closes.
    pub(super) authentication: Arc<ConnectionAuthentication>,
    pub(super) _socket: Permit,
}

impl TrackedStream {
    /// Records, for the connection's time limits, whether the socket accepted a write.
    fn record_write_result<T>(&self, written: Poll<T>) -> Poll<T> {
        self.outgoing.record_write(written.is_pending());
        written
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, byte_counter, authentication, .. } = &mut *self;
        ready!(byte_counter.poll_read_allowed(authentication, cx));
        let before = buf.filled().len();
        let read = Pin::new(stream).poll_read(cx, buf);
        if !byte_counter.add(&buf.filled()[before..], authentication) {
            // The connection will be closed, so it is no longer read.
            authentication.refuse_trailers();
            return Poll::Pending;
        }
        read
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.record_write_result(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.record_write_result(flushed)
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
        self.record_write_result(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
