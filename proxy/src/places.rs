//! Bounds on the number of connections and requests.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tributary_apimachinery::Permit;

/// A fixed number of places. Clones share them.
#[derive(Clone, Debug)]
pub struct Places {
    all: usize,
    free: Arc<Semaphore>,
}

impl Places {
    /// Makes a pool with this number of places, all of them free.
    pub fn new(all: usize) -> Self {
        Self { all, free: Arc::new(Semaphore::new(all)) }
    }

    /// The number of places, free or taken.
    pub fn all(&self) -> usize {
        self.all
    }

    /// The number of taken places.
    pub fn taken(&self) -> usize {
        self.all.saturating_sub(self.free.available_permits())
    }

    /// Takes a place; `None` if all are taken. Requests do not wait, because a place may stay taken for hours.
    pub(crate) fn acquire(&self) -> Option<Permit> {
        self.free.clone().try_acquire_owned().ok().map(Permit::keeping)
    }
}

/// The users of the places of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asker {
    /// Clients, in any number.
    #[default]
    Client,
    /// The cachers of single namespaces. Clients cause any number of them.
    Namespaces,
    /// This process: discovery, questions, and the cachers of whole collections.
    Ourselves,
}

/// The part of all places that is reserved for each asker: a quarter. Without a reserve, clients could take all places,
/// and a cacher could not reopen its watch. Cachers of single namespaces could take all places of clients. The last
/// quarter has no reserve, so an asker may have half of all places.
const KEPT_FOR_EACH: usize = 4;

/// Returns the number of places that an asker may have, if the others have taken `others`.
fn room(all: usize, others: impl Iterator<Item = usize>) -> usize {
    let kept = all / KEPT_FOR_EACH;
    all.saturating_sub(others.map(|taken| taken.max(kept)).sum())
}

/// Places that all askers share, each with a reserve.
#[derive(Debug)]
pub(crate) struct SharedPlaces {
    all: usize,
    taken: Arc<Mutex<[usize; 3]>>,
}

impl SharedPlaces {
    /// Makes a pool with this number of places, all of them free.
    pub(crate) fn new(all: usize) -> Self {
        Self { all, taken: Arc::default() }
    }

    /// Returns the number of places that this asker may have now.
    pub(crate) fn room(&self, asker: Asker) -> usize {
        self.room_beside(asker, &self.taken.lock())
    }

    /// Takes a place; `None` if this asker has no free place. Requests do not wait.
    pub(crate) fn acquire(&self, asker: Asker) -> Option<Permit> {
        let own = asker as usize;
        let mut taken = self.taken.lock();
        if taken[own] >= self.room_beside(asker, &taken) {
            return None;
        }
        taken[own] += 1;
        let shared = self.taken.clone();
        Some(Permit::new(move || shared.lock()[own] -= 1))
    }

    fn room_beside(&self, asker: Asker, taken: &[usize; 3]) -> usize {
        let others = taken.iter().enumerate().filter(|(of, _)| *of != asker as usize);
        room(self.all, others.map(|(_, taken)| *taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKERS: [Asker; 3] = [Asker::Client, Asker::Namespaces, Asker::Ourselves];

    /// Takes all places that an asker gets.
    fn all_for(places: &SharedPlaces, asker: Asker) -> Vec<Permit> {
        std::iter::from_fn(|| places.acquire(asker)).collect()
    }

    #[test]
    fn asker_leaves_a_quarter_of_the_places_to_every_other_asker() {
        for (all, most, kept) in [(0, 0, 0), (1, 1, 0), (3, 3, 0), (4, 2, 1), (8, 4, 2), (256, 128, 64)] {
            for (at, first) in ASKERS.into_iter().enumerate() {
                let [second, third] = [ASKERS[(at + 1) % 3], ASKERS[(at + 2) % 3]];
                let places = SharedPlaces::new(all);
                assert_eq!(places.room(first), most, "of {all}");
                let greedy = all_for(&places, first);
                assert_eq!(greedy.len(), most, "of {all}");
                let others = [second, third].map(|asker| all_for(&places, asker));
                assert_eq!(others.each_ref().map(Vec::len), [kept, kept], "of {all}");
                assert_eq!((places.room(first), places.room(second)), (most, kept), "of {all}");
                assert!(ASKERS.iter().all(|asker| places.acquire(*asker).is_none()), "of {all}");
                drop(greedy);
                assert_eq!(all_for(&places, second).len(), most - kept, "what is given back is anybody's, of {all}");
                drop(others);
                assert_eq!(all_for(&places, third).len(), most, "what was refused takes nothing, of {all}");
            }
        }
    }
}
