//! Byte streams to one endpoint, which are closed together when the endpoint becomes silent. Watches, followed logs and
//! tunnels then end at once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::pool::read_through::{ReadThrough, Reading};

/// A byte stream, with or without TLS.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A boxed byte stream of any kind.
pub type BoxIo = Box<dyn Io>;

/// All byte streams to one endpoint. A cut closes all of them, but does not affect later streams.
#[derive(Debug, Default)]
pub(crate) struct ByteStreams {
    cut: Mutex<CancellationToken>,
}

impl ByteStreams {
    /// Wraps a byte stream. The next cut closes the wrapped stream.
    pub(crate) fn attach(&self, stream: BoxIo) -> BoxIo {
        let cut = Box::pin(self.cut.lock().clone().cancelled_owned());
        // Only the read side checks for a cut. This suffices, because every stream with a writer is also read.
        Box::new(ReadThrough { stream, reading: AbortableStream { cut, is_cut: false } })
    }

    pub(crate) fn cut(&self) {
        std::mem::take(&mut *self.cut.lock()).cancel();
    }
}

struct AbortableStream {
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    is_cut: bool,
}

impl AbortableStream {
    /// Returns an error after the cut. Before the cut, registers the reader's waker.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        self.is_cut = self.is_cut || self.cut.as_mut().poll(cx).is_ready();
        match self.is_cut {
            true => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server no longer answers")),
            false => Ok(()),
        }
    }
}

impl<S: AsyncRead> Reading<S> for AbortableStream {
    fn poll_read(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        stream.poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn pending_reads_fail_when_byte_streams_are_cut_and_new_streams_work() {
        let byte_streams = ByteStreams::default();
        let (mut near, _far) = {
            let (near, far) = tokio::io::duplex(64);
            (byte_streams.attach(Box::new(near)), far)
        };
        let waiting = tokio::spawn(async move { near.read_u8().await });
        tokio::task::yield_now().await;
        byte_streams.cut();
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = byte_streams.attach(Box::new(near));
        far.write_u8(7).await.unwrap();
        assert_eq!(near.read_u8().await.unwrap(), 7);
    }
}
