//! Who waits for room on a connection, in the order in which they came.
//!
//! Two thousand streams may wait for what one piece leaves. So one is woken for it, and whoever then finds room wakes
//! the next: that one may have nothing to give by now, and must not keep the others from it.

use std::collections::BTreeMap;
use std::task::Waker;

/// Tasks that wait, by their places.
#[derive(Default)]
pub(super) struct WaitQueue {
    wakers: BTreeMap<u64, Waker>,
    /// Counts all places.
    places: u64,
}

/// The place of one of them. Kept by whoever is woken and finds no room, until it is left.
#[derive(Default)]
pub(super) struct QueueTicket(Option<u64>);

impl QueueTicket {
    pub(super) fn is_taken(&self) -> bool {
        self.0.is_some()
    }
}

impl WaitQueue {
    /// Has this task woken in its turn.
    pub(super) fn join(&mut self, place: &mut QueueTicket, waker: &Waker) {
        let number = *place.0.get_or_insert_with(|| {
            self.places += 1;
            self.places
        });
        self.wakers.entry(number).and_modify(|own| own.clone_from(waker)).or_insert_with(|| waker.clone());
    }

    /// Waits no longer. Whether it was its turn.
    pub(super) fn leave(&mut self, place: &mut QueueTicket) -> bool {
        place.0.take().is_some_and(|number| self.wakers.remove(&number).is_none())
    }

    /// Whose turn it is, to be woken.
    pub(super) fn next(&mut self) -> Option<Waker> {
        self.wakers.pop_first().map(|(_, waker)| waker)
    }
}
