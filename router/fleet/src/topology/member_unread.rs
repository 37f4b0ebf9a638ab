//! What clusters' answers may leave unread, all clusters together.

use std::sync::Arc;

use tributary_sharing::flow::fair_share::{Exceeded, FairShare, Portion, ShareMetrics};
use tributary_sharing::flow::holder::Holder;
use tributary_sharing::limits::ANSWER_WINDOW;

/// What answers of all members that last may have that no client has read, in bytes. A member sends as much of an
/// answer as its stream's window lets it, whether or not somebody reads: so each request that lasts has its window of
/// this until its answer has ended. Each member has as much for itself as its connections carry, and of a fleet that
/// would be a multiple of all memory. Clones share it.
#[derive(Clone, Debug)]
pub struct MemberUnreadBytes(Arc<FairShare>);

impl MemberUnreadBytes {
    /// So many bytes.
    pub fn new(max: usize, metrics: ShareMetrics) -> Self {
        let what = "bytes that clusters' answers may leave unread (--max-member-unread-bytes)";
        Self(FairShare::of_pieces(what, max, ANSWER_WINDOW, metrics))
    }

    /// So many for one request, until they are dropped.
    ///
    /// # Errors
    /// [`Exceeded`].
    pub(super) fn reserve_bytes(&self, holder: Holder, bytes: usize) -> Result<Portion, Exceeded> {
        self.0.acquire(holder, bytes)
    }

    /// How many are taken, of how many, and how many requests were refused.
    pub fn usage(&self) -> (usize, usize, u64) {
        (self.0.used(), self.0.max(), self.0.refused())
    }
}

/// As much as there is.
impl Default for MemberUnreadBytes {
    fn default() -> Self {
        Self::new(usize::MAX, ShareMetrics::default())
    }
}
