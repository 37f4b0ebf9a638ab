//! Limit for the bytes of all clusters' answers that clients have not read.

use std::sync::Arc;

use tributary_sharing::flow::fair_semaphore::{Exceeded, FairPermit, FairSemaphore, ShareMetrics};
use tributary_sharing::flow::share_key::ShareKey;
use tributary_sharing::limits::ANSWER_WINDOW;

/// Limit for the unread bytes of all clusters' long-running answers. A cluster sends as much of an answer as the
/// flow-control window of its stream allows, even if the client does not read. So each long-running request reserves
/// its whole window until its answer has ended. The window of each connection would be no sufficient limit: for a whole
/// fleet, the sum of these windows exceeds all memory. Clones share the limit.
#[derive(Clone, Debug)]
pub struct MemberUnreadBytes(Arc<FairSemaphore>);

impl MemberUnreadBytes {
    /// Creates a limit in bytes.
    pub fn new(max: usize, metrics: ShareMetrics) -> Self {
        let what = "unread bytes of long-running answers from clusters (--max-member-unread-bytes)";
        Self(FairSemaphore::with_unit(what, max, ANSWER_WINDOW, metrics))
    }

    /// Reserves bytes for a request until the returned permit is dropped.
    ///
    /// # Errors
    /// [`Exceeded`] if the client cannot get the bytes now.
    pub(super) fn reserve_bytes(&self, share_key: ShareKey, bytes: usize) -> Result<FairPermit, Exceeded> {
        self.0.acquire(share_key, bytes)
    }

    /// Returns the number of reserved bytes, the limit, and the number of refused requests.
    pub fn usage(&self) -> (usize, usize, u64) {
        (self.0.used(), self.0.max(), self.0.refused())
    }
}

/// Creates a limit that no request reaches.
impl Default for MemberUnreadBytes {
    fn default() -> Self {
        Self::new(usize::MAX, ShareMetrics::default())
    }
}
