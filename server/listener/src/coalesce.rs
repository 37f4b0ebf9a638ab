//! Joins small writes into large ones before the socket.
//!
//! HTTP/2 writes and flushes each DATA frame on its own, and TLS makes a record of each frame. 500 watchers of one
//! event would cost 500 system calls of 7 KB, each with its own trip through the TCP stack. The trips are half of the
//! cost of a delivered event. So a flush is deferred until the connection's task is polled again: by then the other
//! ready streams have added their frames.
//!
//! The buffer is written when the task next reads (an HTTP/2 connection always does), flushes again without a write, or
//! fills the buffer. A deferred flush wakes the task at once, so a frame waits only for frames that are ready at the
//! same time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The size of the buffer. 128 KiB is about eight full TLS records; beyond it, the system call is a small part of the
/// cost of copying.
const BUFFER_BYTES: usize = 128 << 10;

/// A flush with fewer pending bytes is not deferred if only one stream is open. 16 KiB is one HTTP/2 frame: an answer
/// with frames of this length has more frames to come.
const SHORT_BYTES: usize = 16 << 10;

/// The capacity of a small buffer. 20 KiB: a full frame fits with its TLS overhead. 16 KiB would be wrong: HTTP/2 keeps
/// a buffer of 16 KiB with each connection and writes a few hundred bytes to it. The allocator has 16 and 20 KiB in
/// different size classes. With one class, each new connection would get the memory of a previous answer, and all its
/// pages would stay in memory while the connection waits.
const SHORT_ROOM_BYTES: usize = 20 << 10;

/// Counts the open streams of a connection, each from its request to the end of its answer. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenStreams(Arc<AtomicUsize>);

impl OpenStreams {
    /// Counts one more stream.
    pub(super) fn open(&self) -> OpenStream {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenStream(Arc::clone(&self.0))
    }

    /// Returns whether a frame could be sent with frames of other streams. The count of a stream that opens or ends
    /// concurrently may be stale; the data is written in either case.
    fn are_several(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 1
    }
}

/// An open stream. Counted until dropped.
pub(super) struct OpenStream(Arc<AtomicUsize>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that collects writes until it is flushed. Holds no memory while nothing is pending.
pub(super) struct Coalesce<S> {
    stream: S,
    pending: Vec<u8>,
    /// The number of bytes of `pending` that have been written.
    written: usize,
    flush: Flush,
    /// Whether flushes are deferred.
    defers: bool,
    streams: OpenStreams,
}

/// The state of the last flush.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flush {
    /// No flush since the last write.
    None,
    /// A flush was requested and deferred.
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

    /// Defers flushes from now on. For HTTP/2 only, which always comes back to read. A tunnel does not read while one
    /// direction waits or has ended, and the data of the other direction would stay in the buffer.
    pub(super) fn defer_flushes(&mut self) {
        self.defers = true;
    }

    /// The counter of the open streams, for the code that opens them.
    pub(super) fn streams(&self) -> OpenStreams {
        self.streams.clone()
    }

    /// Returns whether a flush is to be deferred, because more writes may follow.
    fn waits_for_more(&self) -> bool {
        let may_come = self.streams.are_several() || self.pending.len() >= SHORT_BYTES;
        self.defers && may_come && !self.pending.is_empty() && self.flush == Flush::None
    }
}

/// The capacity for this many bytes. Most answers and events are short and fit in a small buffer; longer ones have more
/// data to come.
fn capacity_for(bytes: usize) -> usize {
    if bytes <= SHORT_ROOM_BYTES { SHORT_ROOM_BYTES } else { BUFFER_BYTES }
}

impl<S: AsyncWrite + Unpin> Coalesce<S> {
    /// Writes all pending bytes.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.pending.len() {
            let count = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.pending[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        // Thousands of connections are idle at any time, so the memory goes back to the allocator.
        self.pending = Vec::new();
        self.written = 0;
        self.flush = Flush::None;
        Poll::Ready(Ok(()))
    }

    /// Makes room for this many more bytes, unless they fill a buffer alone.
    fn poll_room(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<io::Result<()>> {
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
        ready!(self.poll_room(cx, buf.len()))?;
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
        ready!(self.poll_room(cx, bytes))?;
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
    async fn writes_of_one_turn_are_sent_together() {
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
        // The task comes back to read, as connections do.
        let idle = tokio::time::timeout(std::time::Duration::from_millis(20), stream.read_u8()).await;
        assert!(idle.is_err());
        let mut got = [0; 13];
        far.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"one two three");
        assert_eq!(stream.pending.capacity(), 0, "an idle connection holds a buffer");
    }

    #[tokio::test]
    async fn short_write_is_sent_at_once_with_at_most_one_stream() {
        for (length, streams, goes) in [(100, 0, true), (100, 1, true), (100, 2, false), (SHORT_BYTES, 1, false)] {
            let (near, mut far) = tokio::io::duplex(BUFFER_BYTES);
            let mut stream = Coalesce::new(near);
            stream.defer_flushes();
            let open: Vec<_> = (0..streams).map(|_| stream.streams().open()).collect();
            stream.write_all(&vec![0; length]).await.unwrap();
            stream.flush().await.unwrap();
            assert_eq!(futures::poll!(Box::pin(far.read_u8())).is_ready(), goes, "{length} bytes of {streams}");
            drop(open);
            assert!(!stream.streams.are_several(), "what has ended counts no more");
        }
    }

    #[tokio::test]
    async fn short_writes_use_a_small_buffer() {
        let (near, _far) = tokio::io::duplex(BUFFER_BYTES);
        let mut stream = Coalesce::new(near);
        let rest = SHORT_ROOM_BYTES - SHORT_BYTES;
        for (length, capacity) in [
            (100, SHORT_ROOM_BYTES),
            (SHORT_BYTES - 100, SHORT_ROOM_BYTES),
            (rest, SHORT_ROOM_BYTES),
            (1, BUFFER_BYTES),
        ] {
            stream.write_all(&vec![0; length]).await.unwrap();
            assert_eq!(stream.pending.capacity(), capacity, "after {length} more");
        }
    }

    #[tokio::test]
    async fn second_flush_without_a_write_sends_the_bytes() {
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
