//! Reading of whole bodies within the limit of body bytes in memory.

use bytes::Bytes;

use super::fair_semaphore::FairPermit;
use crate::body::{Body, BoxError, collect_frames};

/// Reads a whole body of at most `bytes_max` bytes. `permit` grows by the bytes of each frame.
///
/// # Errors
/// The body's own error, [`TooLarge`](crate::body::TooLarge), or [`Exceeded`](super::fair_semaphore::Exceeded).
pub async fn read_whole_within(body: Body, bytes_max: usize, permit: &mut FairPermit) -> Result<Bytes, BoxError> {
    collect_frames(body, bytes_max, |bytes| Ok(permit.grow(bytes)?)).await
}
