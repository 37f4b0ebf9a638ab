//! Limits the bytes that are read from a connection at a time, so that they are processed before the next read.
//!
//! h2 reads as long as a socket has data. If the server is fast, one poll could read as many bytes as the windows of
//! all streams allow. A frame of one byte takes hundreds of bytes of memory until its stream is read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

use crate::pool::read_through::{ReadThrough, Reading};

/// Maximal number of bytes that are read between two pauses. 64 KiB, one read of the socket. A frame of one byte has
/// ten bytes with its header. So 64 KiB contain at most 6,500 frames, which take less than 2 MiB of memory.
pub(crate) const YIELD_BYTES: usize = 64 << 10;

/// A read function that pauses after [`YIELD_BYTES`]: it returns `Pending` once, and wakes the reader.
pub(crate) struct YieldingReads {
    /// Number of bytes since the last pause.
    bytes_since_pause: usize,
    has_data: Arc<AtomicBool>,
}

impl YieldingReads {
    /// Wraps a stream. Sets `has_data` whenever data arrives.
    pub(crate) fn wrap<S>(stream: S, has_data: Arc<AtomicBool>) -> ReadThrough<S, Self> {
        ReadThrough { stream, reading: Self { bytes_since_pause: 0, has_data } }
    }
}

impl<S: AsyncRead> Reading<S> for YieldingReads {
    fn poll_read(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.bytes_since_pause >= YIELD_BYTES {
            self.bytes_since_pause = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = stream.poll_read(cx, buffer);
        let Poll::Ready(read) = read else {
            self.bytes_since_pause = 0;
            return Poll::Pending;
        };
        read?;
        let arrived = buffer.filled().len().saturating_sub(before);
        self.bytes_since_pause += arrived;
        if arrived > 0 {
            self.has_data.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn connection_read_yields_to_other_tasks_after_64_kib() {
        let (near, mut far) = tokio::io::duplex(4 * YIELD_BYTES);
        far.write_all(&vec![7; 3 * YIELD_BYTES]).await.unwrap();
        let has_data = Arc::new(AtomicBool::new(false));
        let mut yielding_reads = YieldingReads::wrap(near, has_data.clone());
        let (mut buffer, mut turns) = (vec![0; 1000], vec![0]);
        poll_fn(|cx| {
            for _ in 0..YIELD_BYTES {
                let mut read = ReadBuf::new(&mut buffer);
                match Pin::new(&mut yielding_reads).poll_read(cx, &mut read) {
                    Poll::Ready(read_all) => read_all.unwrap(),
                    Poll::Pending => {
                        turns.push(0);
                        break;
                    }
                }
                *turns.last_mut().unwrap() += read.filled().len();
            }
            if turns.iter().sum::<usize>() == 3 * YIELD_BYTES { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        assert!(turns.len() >= 3, "{turns:?}");
        assert!(turns.iter().all(|bytes| *bytes < YIELD_BYTES + buffer.len()), "{turns:?}");
        assert!(has_data.load(Ordering::Relaxed));
    }
}
