//! Joins small writes to a socket into large writes.
//!
//! HTTP/2 writes and flushes each DATA frame separately, and TLS makes a record of each frame. 500 watchers of one
//! event would cost 500 system calls of 7 KB, and each call passes through the TCP stack. The 500 calls take half of
//! the time for delivering the event. So a flush is deferred until the connection's task is polled again. Before that
//! poll, all other streams with ready frames add these frames to the buffer.
//!
//! The buffer is written when the task next reads (an HTTP/2 connection always reads), when the task flushes again
//! without a write, or when the buffer is full. A deferred flush wakes the task at once, so a frame waits only for
//! frames that are ready at the same time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The size of the large buffer. 128 KiB contain about eight full TLS records. For larger writes, the system call is a
/// small part of the cost of copying.
const BUFFER_BYTES: usize = 128 << 10;

/// The number of pending bytes from which a flush is deferred even if only one stream is open. An answer longer than 16
/// KiB, which is one HTTP/2 frame, has more frames to send. With fewer pending bytes, a flush is deferred only if
/// several streams are open.
const SHORT_BYTES: usize = 16 << 10;

/// The capacity of the small write buffer. 20 KiB hold a full HTTP/2 frame with its TLS overhead. 16 KiB would cost
/// memory: h2 allocates a buffer of 16 KiB for each connection and writes a few hundred bytes to it. The allocator
/// keeps blocks of 16 KiB and of 20 KiB apart. With an equal size, h2's buffer of a new connection would get the block
/// of a previous answer, and all pages of that block would stay resident while the connection is idle.
const SMALL_BUFFER_BYTES: usize = 20 << 10;

/// Counts the open streams of a connection. A stream is open from its request to the end of its answer. Clones share
/// the count.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenStreams(Arc<AtomicUsize>);

impl OpenStreams {
    pub(super) fn open(&self) -> OpenStream {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenStream(Arc::clone(&self.0))
    }

    /// Returns whether more than one stream is open, so that a frame may be sent together with frames of another
    /// stream. The count may be stale while a stream opens or ends. A stale count only delays the flush or sends it
    /// early.
    fn has_several(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }
}

/// An open stream. The stream is counted until this value is dropped.
pub(super) struct OpenStream(Arc<AtomicUsize>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that collects writes until a flush. The buffer is freed when no bytes are pending.
pub(super) struct Coalesce<S> {
    stream: S,
    pending: Vec<u8>,
    /// The number of bytes in `pending` that the inner stream has already accepted.
    written: usize,
    flush: Flush,
    /// True if flushes of small writes may be deferred.
    defers: bool,
    streams: OpenStreams,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flush {
    /// No flush of the last write was requested.
    None,
    /// A flush was requested, and deferred until the next poll.
    Deferred,
}

impl<S> Coalesce<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            pending: Vec::new(),
            written: 0,
            flush: Flush::None,
            defers: false,
            streams: OpenStreams::default(),
        }
    }

    /// Enables deferred flushes of small writes. Allowed only for HTTP/2, because an HTTP/2 connection's task always
    /// reads again. The task of a tunnel stops reading when one direction waits or has ended, so a deferred flush of
    /// the opposite direction might never happen.
    pub(super) fn defer_flushes(&mut self) {
        self.defers = true;
    }

    pub(super) fn streams(&self) -> OpenStreams {
        self.streams.clone()
    }

    /// Returns whether a flush should be deferred, because more writes may follow.
    fn waits_for_more(&self) -> bool {
        let may_come = self.streams.has_several() || self.pending.len() >= SHORT_BYTES;
        self.defers && may_come && !self.pending.is_empty() && self.flush == Flush::None
    }
}

/// Returns the capacity of a write buffer that starts with this many bytes. Most answers and events fit in the small
/// buffer. A longer answer gets the large buffer, because more of its frames follow.
fn capacity_for(bytes: usize) -> usize {
    if bytes <= SMALL_BUFFER_BYTES { SMALL_BUFFER_BYTES } else { BUFFER_BYTES }
}

impl<S: AsyncWrite + Unpin> Coalesce<S> {
    /// Writes all pending bytes to the inner stream.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.pending.len() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.pending[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        // The empty buffer is freed, because thousands of connections are idle at any time.
        self.pending = Vec::new();
        self.written = 0;
        self.flush = Flush::None;
        Poll::Ready(Ok(()))
    }

    /// Reserves capacity in the buffer for a write of this many bytes. If the write would overflow the buffer, the
    /// pending bytes are written first. Reserves nothing for a write that exceeds the buffer's size.
    fn poll_reserve(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<io::Result<()>> {
        if !self.pending.is_empty() && self.pending.len() + bytes > BUFFER_BYTES {
            ready!(self.poll_drain(cx))?;
        }
        self.flush = Flush::None;
        let wanted = self.pending.len() + bytes;
        if wanted > self.pending.capacity() && bytes < BUFFER_BYTES {
            self.pending.reserve_exact(capacity_for(wanted) - self.pending.len());
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Coalesce<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.flush == Flush::Deferred
            && let Poll::Ready(Err(error)) = self.poll_drain(cx)
        {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Coalesce<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_reserve(cx, buf.len()))?;
        if self.pending.is_empty() && buf.len() >= BUFFER_BYTES {
            return Pin::new(&mut self.stream).poll_write(cx, buf);
        }
        self.pending.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = bufs.iter().map(|buf| buf.len()).sum();
        ready!(self.poll_reserve(cx, bytes))?;
        if self.pending.is_empty() && bytes >= BUFFER_BYTES {
            return Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        }
        for buf in bufs {
            self.pending.extend_from_slice(buf);
        }
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.waits_for_more() {
            self.flush = Flush::Deferred;
            cx.waker().wake_by_ref();
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn writes_of_one_task_poll_are_sent_together() {
        let (near, mut far) = tokio::io::duplex(BUFFER_BYTES);
        let mut stream = Coalesce::new(near);
        stream.defer_flushes();
        let _two = [(); 2].map(|()| stream.streams().open());
        stream.write_all(b"one ").await.unwrap();
        stream.write_all(b"two").await.unwrap();
        let early = tokio::time::timeout(std::time::Duration::from_millis(20), far.read_u8()).await;
        assert!(early.is_err(), "written before it was flushed");
        stream.flush().await.unwrap();
        stream.write_all(b" three").await.unwrap();
        stream.flush().await.unwrap();
        let early = tokio::time::timeout(std::time::Duration::from_millis(20), far.read_u8()).await;
        assert!(early.is_err(), "each write was flushed on its own");
        // `read_u8` stands for the connection's task, which reads after the deferred flush. This read writes the
        // deferred bytes.
        let idle = tokio::time::timeout(std::time::Duration::from_millis(20), stream.read_u8()).await;
        assert!(idle.is_err());
        let mut got = [0; 13];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"one two three");
        assert_eq!(stream.pending.capacity(), 0, "an idle connection holds a buffer");
    }

    #[tokio::test]
    async fn short_write_is_deferred_only_with_several_open_streams() {
        for (length, streams, goes) in [(100, 0, true), (100, 1, true), (100, 2, false), (SHORT_BYTES, 1, false)] {
            let (near, mut far) = tokio::io::duplex(BUFFER_BYTES);
            let mut stream = Coalesce::new(near);
            stream.defer_flushes();
            let open: Vec<_> = (0..streams).map(|_| stream.streams().open()).collect();
            stream.write_all(&vec![0; length]).await.unwrap();
            stream.flush().await.unwrap();
            assert_eq!(futures::poll!(Box::pin(far.read_u8())).is_ready(), goes, "{length} bytes of {streams}");
            drop(open);
            assert!(!stream.streams.has_several(), "what has ended counts no more");
        }
    }

    #[tokio::test]
    async fn short_writes_use_a_small_buffer() {
        let (near, _far) = tokio::io::duplex(BUFFER_BYTES);
        let mut stream = Coalesce::new(near);
        let rest = SMALL_BUFFER_BYTES - SHORT_BYTES;
        for (length, capacity) in [
            (100, SMALL_BUFFER_BYTES),
            (SHORT_BYTES - 100, SMALL_BUFFER_BYTES),
            (rest, SMALL_BUFFER_BYTES),
            (1, BUFFER_BYTES),
        ] {
            stream.write_all(&vec![0; length]).await.unwrap();
            assert_eq!(stream.pending.capacity(), capacity, "after {length} more");
        }
    }

    #[tokio::test]
    async fn second_flush_sends_the_bytes_that_the_first_flush_deferred() {
        let (near, mut far) = tokio::io::duplex(BUFFER_BYTES);
        let mut stream = Coalesce::new(near);
        stream.defer_flushes();
        let _two = [(); 2].map(|()| stream.streams().open());
        stream.write_all(b"one").await.unwrap();
        stream.flush().await.unwrap();
        stream.flush().await.unwrap();
        let mut got = [0; 3];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"one");
    }

    #[tokio::test]
    async fn writes_of_every_size_arrive_in_order() {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let sizes = [1, 16_406, BUFFER_BYTES - 1, BUFFER_BYTES, 3 * BUFFER_BYTES + 7, 100, 16_406, 16_406];
        let expected: Vec<u8> = sizes.iter().enumerate().flat_map(|(at, size)| vec![at as u8; *size]).collect();
        let writer = tokio::spawn(async move {
            let mut stream = Coalesce::new(near);
            stream.defer_flushes();
            for (at, size) in sizes.iter().enumerate() {
                stream.write_all(&vec![at as u8; *size]).await.unwrap();
            }
            stream.shutdown().await.unwrap();
        });
        let mut got = Vec::new();
        far.read_to_end(&mut got).await.unwrap();
        writer.await.unwrap();
        assert!(got == expected);
    }
}
