//! How many collections of one member are listed again at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Duration, Instant};

/// How many. 8: with small collections, 30 ms away, 250 in a second; and eight of a thousand objects take 80 of the 600
/// seats that kube-apiserver has for all requests, one for each hundred (`objectsPerSeat` in apiserver's
/// `pkg/util/flowcontrol/request`).
const PLACES: usize = 8;

/// How long a list occupies its place at most. 1 s: a collection that comes for minutes keeps no small one waiting.
const HELD_FOR: Duration = Duration::from_secs(1);

/// The places that all collections of a member share, where they are listed again: what is held of them is served
/// meanwhile. Clones share them.
#[derive(Clone, Debug)]
pub struct ListPlaces(Arc<Semaphore>);

impl Default for ListPlaces {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(PLACES)))
    }
}

impl ListPlaces {
    /// A place, once there is one; those who wait take turns. Cancelling gives up the turn.
    pub(crate) async fn acquire(&self) -> Option<ListPlace> {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.0).acquire_owned().await.ok()?;
        Some(ListPlace { _permit: permit, until: Instant::now() + HELD_FOR })
    }
}

/// A place, until it is dropped.
#[derive(Debug)]
pub(crate) struct ListPlace {
    _permit: OwnedSemaphorePermit,
    until: Instant,
}

impl ListPlace {
    /// When it is to be given back at the latest.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }
}
