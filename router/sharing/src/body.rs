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

/// Minimum size of a frame that Tributary writes to a connection, in bytes, because small frames are slow.
///
/// Over one TLS connection on two cores, HTTP/2 carries 400-byte frames at 144 MB/s, and 64 KiB frames at 2.4 GB/s.
pub const FRAME_BYTES: usize = 64 << 10;

pub use ending::fail_late;
pub use ending::{EarlyEnd, end_early};
pub use tributary_apimachinery::body::{Body, BoxError, empty, full};

/// Maximum size of a body that Tributary holds as a whole to rewrite it, in bytes. The limit applies to requests and to
/// answers to writes.
///
/// kube-apiserver accepts requests of 3 MiB (`MaxRequestBodyBytes` in apiserver's `config.go`). Answers are larger,
/// because they contain defaults and managedFields.
pub const WHOLE_BODY_BYTES_MAX: usize = 8 << 20;

/// Error: a body is larger than the limit. The value is the limit in bytes.
#[derive(Debug, thiserror::Error)]
#[error("the body is larger than {0} bytes")]
pub struct TooLarge(pub usize);

/// Reads a whole body, up to [`WHOLE_BODY_BYTES_MAX`].
///
/// # Errors
/// The error of the body, or [`TooLarge`].
pub async fn whole(body: Body) -> Result<Bytes, BoxError> {
    whole_up_to(body, WHOLE_BODY_BYTES_MAX).await
}

/// Reads a whole body of at most `bytes_max` bytes.
///
/// # Errors
/// The error of the body, or [`TooLarge`].
pub async fn whole_up_to(body: Body, bytes_max: usize) -> Result<Bytes, BoxError> {
    collect_frames(body, bytes_max, |_| Ok(())).await
}

/// Reads a whole body of at most `bytes_max` bytes. Calls `hold` with the length of each frame before the frame is
/// stored.
///
/// # Errors
/// The error of the body, [`TooLarge`], or the error of `hold`.
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

/// The bytes of a body in one buffer. A list of frames would cost 32 bytes for each frame, and the sender decides the
/// number of frames.
#[derive(Debug, Default)]
pub struct CollectedFrames {
    /// The only frame. Most bodies have a single frame, which is not copied.
    only: Bytes,
    /// The bytes of all frames, if there are at least two.
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
