//! Memory for a member's answer.

use tributary_sharing::body::WHOLE_BODY_BYTES_MAX;

/// Bytes of a member's answer that the sent object lacks: defaults, `managedFields`, the head of a Status. Most objects
/// are smaller than this value.
pub(super) const ADDED_BYTES: usize = 16 << 10;

/// Returns the bytes to reserve for the answer to a request. `known` is the size of the present or sent object. Reserve
/// them after the whole request has arrived, and before it is sent to the member.
pub(super) fn answer_bytes(known: usize) -> usize {
    known.saturating_add(ADDED_BYTES).min(WHOLE_BODY_BYTES_MAX)
}
