//! Copies the bytes of an upgraded connection in both directions, and reports whether the member's connection broke.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tributary_apimachinery::explain;

use crate::endpoints::endpoint::Endpoint;

/// Buffer size of each direction, in bytes. Larger buffers gain little for bulk transfers such as `kubectl cp`.
const BUFFER: usize = 32 << 10;

/// Copies bytes in both directions until both connections have ended or one breaks. Returns the cause if the member's
/// connection broke. A disconnected client is not a fault of the member.
pub(crate) async fn copy_both_ways(client: OnUpgrade, member: OnUpgrade, endpoint: Arc<Endpoint>) -> Option<String> {
    // The client's future resolves after the 101 was written, or fails if the client has disconnected.
    let (client, member) = match tokio::try_join!(client, member) {
        Ok(both) => both,
        Err(error) => {
            tracing::debug!(error = explain(&error), "upgrade was not completed");
            return None;
        }
    };
    let (mut client, member) = (TokioIo::new(client), TokioIo::new(member));
    let mut member = MemberSide { stream: member, endpoint, is_waiting: true, broken: None };
    if let Err(error) = tokio::io::copy_bidirectional_with_sizes(&mut client, &mut member, BUFFER, BUFFER).await {
        tracing::debug!(error = explain(&error), "a tunnel broke");
    }
    member.broken
}

/// The member's connection of a tunnel. Only new bytes from the cluster prove that the cluster is alive. Late delivery
/// of old bytes to a slow client proves nothing.
struct MemberSide<S> {
    stream: S,
    endpoint: Arc<Endpoint>,
    /// Whether the last read was pending, so that the next bytes are new; see
    /// [`MemberBody`](crate::forward::member_body::MemberBody).
    is_waiting: bool,
    broken: Option<String>,
}

impl<S> MemberSide<S> {
    fn record_failure<T>(&mut self, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(error)) = &done {
            self.broken = Some(explain(error));
        }
        done
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MemberSide<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let done = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let comes_now = std::mem::replace(&mut self.is_waiting, done.is_pending());
        if comes_now && buffer.filled().len() > before {
            self.endpoint.record_data();
        }
        self.record_failure(done)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MemberSide<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.record_failure(done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(cx);
        self.record_failure(done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.record_failure(done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.record_failure(done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
