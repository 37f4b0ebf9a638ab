//! Limits the concurrent lists of a member's collections.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Duration, Instant};

/// The number of concurrent lists. 8: with small collections and a round trip of 30 ms, 250 collections are listed in a
/// second. Eight lists of a thousand objects take 80 of the 600 seats that kube-apiserver has for all requests, one for
/// each hundred objects (`objectsPerSeat` in apiserver's `pkg/util/flowcontrol/request`).
const LISTS_MAX: usize = 8;

/// The maximum time for which a list occupies its permit. 1 s: a collection that takes minutes does not delay small
/// ones.
const PERMIT_TIME_MAX: Duration = Duration::from_secs(1);

/// The permits for lists that all collections of a member share when they list again; the previous snapshots are served
/// in the meantime. Clones share the permits.
#[derive(Clone, Debug)]
pub struct ListPermits(Arc<Semaphore>);

impl Default for ListPermits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LISTS_MAX)))
    }
}

impl ListPermits {
    /// Waits for a permit, in order of arrival. Cancelling gives up the turn.
    pub(crate) async fn acquire(&self) -> Option<ListPermit> {
        // The semaphore is never closed.
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
    /// Returns the latest time at which the permit must be released.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }
}
