//! How many of something there may be at once.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A fixed number of places. Clones share them.
#[derive(Clone, Debug)]
pub struct Places {
    all: usize,
    free: Arc<Semaphore>,
}

/// One place, taken until it is dropped.
#[derive(Debug)]
pub(crate) struct Place(#[allow(dead_code, reason = "held for its Drop")] OwnedSemaphorePermit);

impl Places {
    /// So many places, all of them free.
    pub fn new(all: usize) -> Self {
        Self { all, free: Arc::new(Semaphore::new(all)) }
    }

    /// How many there are, taken ones included.
    pub fn all(&self) -> usize {
        self.all
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.all.saturating_sub(self.free.available_permits())
    }

    /// Takes a place; `None` where all are taken. Nobody waits: what holds a place may last for hours.
    pub(crate) fn take(&self) -> Option<Place> {
        self.free.clone().try_acquire_owned().ok().map(Place)
    }
}
