//! Memory for a member's answer.

use tributary_sharing::body::WHOLE_BODY_BYTES_MAX;

/// Bytes of a member's answer beyond the sent object: defaults, `managedFields`, the head of a Status. Most whole
/// objects are smaller.
pub(super) const ADDED_BYTES: usize = 16 << 10;

/// Returns the bytes to reserve for the answer to a request. `known` is the size of the present or sent object. The
/// reservation must be made after the whole request has arrived, and before it is sent.
pub(super) fn answer_bytes(known: usize) -> usize {
    known.saturating_add(ADDED_BYTES).min(WHOLE_BODY_BYTES_MAX)
}
