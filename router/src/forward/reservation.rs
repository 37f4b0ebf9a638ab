//! Reservation of memory for a member's answer, before the request is sent.

use tributary_answers::refusal::Refusal;
use tributary_sharing::body::WHOLE_BODY_BYTES_MAX;
use tributary_sharing::flow::fair_semaphore::FairPermit;

use crate::Router;
use crate::caller::Caller;

/// Bytes of a member's answer beyond the sent object: defaults, `managedFields`, the head of a Status. Most whole
/// objects are smaller.
pub(super) const ADDED_BYTES: usize = 16 << 10;

/// Reserves bytes for the answer to a request. `known` is the size of the present or sent object. Must be called after
/// the whole request has arrived, and before it is sent.
///
/// # Errors
/// 429 at the limit of body bytes. The cluster has not got the request.
pub(crate) fn reservation(router: &Router, caller: &Caller, known: usize) -> Result<FairPermit, Refusal> {
    let likely = known.saturating_add(ADDED_BYTES).min(WHOLE_BODY_BYTES_MAX);
    Ok(router.held_bytes().acquire(caller.share_key, likely)?)
}
