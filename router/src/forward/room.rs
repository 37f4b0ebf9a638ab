//! Room for a member's answer, taken before the request is sent.

use tributary_answers::refusal::Refusal;
use tributary_sharing::body::WHOLE_BODY_BYTES_MAX;
use tributary_sharing::flow::fair_semaphore::Portion;

use crate::Router;
use crate::caller::Caller;

/// The bytes of a member's answer beyond the sent object: defaults, `managedFields`, the head of a Status. Most objects
/// are smaller as a whole.
pub(super) const ADDED_BYTES: usize = 16 << 10;

/// Takes room for the answer to a request. `known` is the size of the known object: the present one, or the sent one.
/// Call after the whole request has arrived, and before it is sent.
///
/// # Errors
/// 429 without room. Then the cluster has not got the request.
pub(crate) fn room(router: &Router, caller: &Caller, known: usize) -> Result<Portion, Refusal> {
    let likely = known.saturating_add(ADDED_BYTES).min(WHOLE_BODY_BYTES_MAX);
    Ok(router.held_bytes().acquire(caller.holder, likely)?)
}
