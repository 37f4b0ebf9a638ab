//! A byte stream with a different read function, which can limit or abort reads. Writes are unchanged.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Replaces the read function of a byte stream.
pub(crate) trait Reading<S>: Unpin {
    /// Like [`AsyncRead::poll_read`], with the inner stream as an argument.
    fn poll_read(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>>;
}

pub(crate) struct ReadThrough<S, R> {
    pub(crate) stream: S,
    pub(crate) reading: R,
}

impl<S: Unpin, R: Reading<S>> AsyncRead for ReadThrough<S, R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, reading } = &mut *self;
        reading.poll_read(Pin::new(stream), cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin, R: Unpin> AsyncWrite for ReadThrough<S, R> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
