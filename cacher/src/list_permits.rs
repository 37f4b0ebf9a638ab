//! Limits the number of concurrent lists of a member.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Duration, Instant};

/// The maximum number of concurrent lists of a member. 8: with small collections and a round trip of 30 ms, 250
/// collections are listed in a second. Eight lists of a thousand objects take 80 of the 600 seats that a kube-apiserver
/// has for all requests, one for each hundred objects (`objectsPerSeat` in apiserver's `pkg/util/flowcontrol/request`).
const LISTS_MAX: usize = 8;

/// The maximum time for which a list keeps its permit. 1 s, so that a list of several minutes does not delay the lists
/// of small collections.
const PERMIT_TIME_MAX: Duration = Duration::from_secs(1);

/// The permits of a member for repeated lists of its collections. The first list of a collection needs no permit,
/// because clients wait for it. A collection that waits for a permit serves its previous snapshot. Clones share the
/// permits.
#[derive(Clone, Debug)]
pub struct ListPermits(Arc<Semaphore>);

impl Default for ListPermits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LISTS_MAX)))
    }
}

impl ListPermits {
    /// Waits for a permit, in order of arrival. A cancelled call loses its position in the queue.
    pub(crate) async fn acquire(&self) -> Option<ListPermit> {
        // `acquire_owned` fails only for a closed semaphore, and this semaphore is never closed.
        let permit = Arc::clone(&self.0).acquire_owned().await.ok()?;
        Some(ListPermit { _permit: permit, until: Instant::now() + PERMIT_TIME_MAX })
    }
}

#[derive(Debug)]
pub(crate) struct ListPermit {
    _permit: OwnedSemaphorePermit,
    until: Instant,
}

impl ListPermit {
    /// Returns the time at which the list must release the permit, even if the list is incomplete.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }
}
