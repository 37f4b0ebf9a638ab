//! The limits of writes to the hub, which the status and the published objects share.

use std::time::Duration;

use crate::HubError;

/// Least time between two writes: at most five writes per second.
pub(crate) const WRITE_INTERVAL: Duration = Duration::from_millis(200);

/// Time limit of a write.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(4);

/// Time after which a refused write is repeated.
pub(crate) const REFUSED_INTERVAL: Duration = Duration::from_secs(60);

/// Returns the error for a request without an answer in time.
pub(crate) fn no_answer() -> HubError {
    HubError::Unreachable("no answer in time".to_owned())
}
