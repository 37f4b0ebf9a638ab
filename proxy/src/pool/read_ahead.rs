//! Reads from a socket in large pieces.
//!
//! rustls requests only 4 KiB at a time. A list of 65 MB would need 16,000 system calls, and an object of 6 KB two.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

use crate::pool::read_through::{ReadThrough, Reading};

/// Size of one read in bytes. 64 KiB, four full TLS records. With larger reads, copying and decryption cost more than
/// the system calls do.
const AT_ONCE_BYTES: usize = 64 << 10;

/// Reads ahead from a byte stream. While no data is waiting, the stream has no buffer, because there are thousands of
/// connections.
#[derive(Default)]
pub(crate) struct ReadAhead {
    /// Data that was read from the socket before rustls requested it.
    read_buffer: BytesMut,
}

impl ReadAhead {
    pub(crate) fn wrap<S>(stream: S) -> ReadThrough<S, Self> {
        ReadThrough { stream, reading: Self::default() }
    }
}

impl<S: AsyncRead> Reading<S> for ReadAhead {
    fn poll_read(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { read_buffer } = self;
        if read_buffer.is_empty() {
            if buffer.remaining() >= AT_ONCE_BYTES {
                return stream.poll_read(cx, buffer);
            }
            let mut read = BytesMut::with_capacity(AT_ONCE_BYTES);
            ready!(poll_read_buf(stream, cx, &mut read))?;
            *read_buffer = read;
        }
        let count = read_buffer.len().min(buffer.remaining());
        buffer.put_slice(&read_buffer[..count]);
        match count == read_buffer.len() {
            true => *read_buffer = BytesMut::new(),
            false => read_buffer.advance(count),
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    struct CountedReads(tokio::io::DuplexStream, usize);

    impl AsyncRead for CountedReads {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            self.1 += 1;
            Pin::new(&mut self.0).poll_read(cx, buffer)
        }
    }

    #[tokio::test]
    async fn available_bytes_of_a_connection_are_read_in_one_system_call() {
        let (near, mut far) = tokio::io::duplex(256 << 10);
        let mut stream = ReadAhead::wrap(CountedReads(near, 0));
        let sent: Vec<u8> = (0..50_000_u32).map(|at| at as u8).collect();
        far.write_all(&sent).await.unwrap();
        let mut got = vec![0; sent.len()];
        for part in got.chunks_mut(4096) {
            stream.read_exact(part).await.unwrap();
        }
        assert!(got == sent);
        assert_eq!(stream.stream.1, 1);
        assert_eq!(stream.reading.read_buffer.capacity(), 0, "a connection that waits holds a buffer");
        let sent = vec![7; 200_000];
        far.write_all(&sent).await.unwrap();
        drop(far);
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        assert!(got == sent);
    }
}
