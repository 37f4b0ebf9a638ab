//! Bodies that are read whole, counted in the bytes that may be held.

use bytes::Bytes;

use super::fair_semaphore::Portion;
use crate::body::{Body, BoxError, gathered};

/// Reads a whole body of at most `bytes_max` bytes. The portion grows by the bytes of each frame.
///
/// # Errors
/// The body's own, [`TooLarge`](crate::body::TooLarge), or [`Exceeded`](super::fair_semaphore::Exceeded).
pub async fn whole_within(body: Body, bytes_max: usize, held: &mut Portion) -> Result<Bytes, BoxError> {
    gathered(body, bytes_max, |bytes| Ok(held.grow(bytes)?)).await
}
