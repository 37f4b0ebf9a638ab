//! Bodies of requests and answers, and functions that read bodies.

mod ending;

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt;
use tower::ServiceExt;
use tributary_apimachinery::Permit;
use tributary_proxy::Transport;

/// Minimal size of a frame that Tributary writes to a connection, in bytes.
///
/// Over one TLS connection on two cores, HTTP/2 carries 400-byte frames at 144 MB/s, and 64 KiB frames at 2.4 GB/s.
pub const FRAME_BYTES: usize = 64 << 10;

pub use ending::fail_late;
pub use ending::{EarlyEnd, end_early};
pub use tributary_apimachinery::body::{Body, BoxError, empty, full};

/// Maximal size of a body that Tributary keeps whole to rewrite it, in bytes. The limit applies to requests and to
/// answers to writes.
///
/// kube-apiserver accepts 3 MiB (`MaxRequestBodyBytes` in apiserver's `config.go`); answers are larger by defaults and
/// managedFields.
pub const WHOLE_BODY_BYTES_MAX: usize = 8 << 20;

/// Error: a body is larger than this limit in bytes.
#[derive(Debug, thiserror::Error)]
#[error("the body is larger than {0} bytes")]
pub struct TooLarge(pub usize);

/// Reads a whole body, up to [`WHOLE_BODY_BYTES_MAX`].
///
/// # Errors
/// The body's own error, or [`TooLarge`].
pub async fn whole(body: Body) -> Result<Bytes, BoxError> {
    whole_up_to(body, WHOLE_BODY_BYTES_MAX).await
}

/// Reads a whole body of at most `bytes_max` bytes.
///
/// # Errors
/// The body's own error, or [`TooLarge`].
pub async fn whole_up_to(body: Body, bytes_max: usize) -> Result<Bytes, BoxError> {
    collect_frames(body, bytes_max, |_| Ok(())).await
}

/// Reads a whole body of at most `bytes_max` bytes. Calls `hold` with the length of each frame before the frame is
/// stored.
///
/// # Errors
/// The body's own error, [`TooLarge`], or the error of `hold`.
pub async fn collect_frames(
    mut body: Body,
    bytes_max: usize,
    mut hold: impl FnMut(usize) -> Result<(), BoxError>,
) -> Result<Bytes, BoxError> {
    let mut whole = CollectedFrames::default();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        if whole.len() + data.len() > bytes_max {
            return Err(Box::new(TooLarge(bytes_max)));
        }
        hold(data.len())?;
        whole.push(data);
    }
    Ok(whole.into())
}

/// A body's bytes in one buffer. The sender decides the number of frames, and a list of frames would cost 32 bytes for
/// each frame.
#[derive(Debug, Default)]
pub struct CollectedFrames {
    /// The first frame. Most bodies have a single frame, which is not copied.
    only: Bytes,
    /// All frames, from the second frame on.
    several: BytesMut,
}

impl CollectedFrames {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.only.len() + self.several.len()
    }

    /// Returns whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the bytes of a frame.
    pub fn push(&mut self, data: Bytes) {
        if self.is_empty() {
            self.only = data;
        } else {
            self.several.extend_from_slice(&std::mem::take(&mut self.only));
            self.several.extend_from_slice(&data);
        }
    }
}

impl From<CollectedFrames> for Bytes {
    fn from(collect_frames: CollectedFrames) -> Self {
        if collect_frames.several.is_empty() { collect_frames.only } else { collect_frames.several.freeze() }
    }
}

/// Attaches a permit to a body. The permit is released when the body ends or is dropped.
pub fn attach_permit(body: Body, permit: Permit) -> Body {
    BodyWithPermit { body, permit: Some(permit) }.boxed_unsync()
}

struct BodyWithPermit {
    body: Body,
    permit: Option<Permit>,
}

impl http_body::Body for BodyWithPermit {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) {
            self.permit = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Sends a request to a member with Tributary's own credentials. Boxed, so that a spawned task can own the future.
pub fn send(transport: Transport, request: Request<Body>) -> BoxFuture<'static, Result<Response<Body>, BoxError>> {
    Box::pin(transport.oneshot(request))
}
