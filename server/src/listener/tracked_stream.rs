//! The socket of a connection, and what is taken note of while it is written.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tributary_apimachinery::Permit;

use super::acquaintance::Acquaintance;
use super::coalesce::Coalesce;
use super::outgoing::Outgoing;
use super::sending::Sending;

/// A socket with what it occupies: an upgrade takes both along, so a tunnel is counted until it closes.
pub(super) struct TrackedStream {
    pub(super) stream: TlsStream<Coalesce<TcpStream>>,
    pub(super) outgoing: Arc<Outgoing>,
    /// What comes, while nobody is known.
    pub(super) sending: Option<Sending>,
    /// It counts as one of its user's as long as it is open.
    pub(super) acquaintance: Arc<Acquaintance>,
    pub(super) _socket: Permit,
}

impl TrackedStream {
    /// Reads what somebody sends who is not known: no more than there is room for.
    fn poll_read_unknown(
        &mut self,
        mut sending: Sending,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if sending.is_body_full() {
            self.acquaintance.register_reader(cx.waker());
            if !self.acquaintance.is_known() {
                self.sending = Some(sending);
                return Poll::Pending;
            }
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let has_room = sending.note(&buf.filled()[before..], &self.acquaintance);
        self.sending = Some(sending);
        if !has_room {
            // The connection is closed; nothing of it is read any more.
            self.acquaintance.found_no_room();
            return Poll::Pending;
        }
        read
    }

    /// Whoever is answered may be known by now, and then nothing is counted of what they send.
    fn noted<T>(&mut self, written: Poll<T>) -> Poll<T> {
        if self.sending.is_some() && self.acquaintance.is_known() {
            self.sending = None;
        }
        self.outgoing.wrote(written.is_pending());
        written
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.sending.take() {
            Some(sending) if !self.acquaintance.is_known() => self.poll_read_unknown(sending, cx, buf),
            _ => Pin::new(&mut self.stream).poll_read(cx, buf),
        }
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
