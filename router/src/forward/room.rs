//! Room for the answer to what is sent to a member, taken before it is sent.

use tributary_answers::refusal::Refusal;
use tributary_sharing::body::WHOLE_BODY_BYTES_MAX;
use tributary_sharing::flow::fair_semaphore::Portion;

use crate::Router;
use crate::caller::Caller;

/// What a member's answer has beyond what was written, in bytes: defaults, `managedFields`, the head of a Status. Most
/// objects are smaller as a whole.
pub(super) const ADDED_BYTES: usize = 16 << 10;

/// Takes room for the answer to a request. `known` bytes are known of it: the object as it is, or as it is to be. Call
/// once the request is there whole, and before anything is sent.
///
/// # Errors
/// 429 where there is none. This cluster has not been asked then.
pub(crate) fn room(router: &Router, caller: &Caller, known: usize) -> Result<Portion, Refusal> {
    let likely = known.saturating_add(ADDED_BYTES).min(WHOLE_BODY_BYTES_MAX);
    Ok(router.held_bytes().acquire(caller.holder, likely)?)
}
