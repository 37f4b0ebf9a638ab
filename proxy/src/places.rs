//! Limits of connections and requests, as counters of permits.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tributary_apimachinery::Permit;

/// A fixed number of permits, for example for tunnels. Clones share the permits.
#[derive(Clone, Debug)]
pub struct Places {
    all: usize,
    free: Arc<Semaphore>,
}

impl Places {
    /// Creates a number of free permits.
    pub fn new(all: usize) -> Self {
        Self { all, free: Arc::new(Semaphore::new(all)) }
    }

    /// Returns the total number of permits.
    pub fn all(&self) -> usize {
        self.all
    }

    /// Returns the number of permits in use.
    pub fn taken(&self) -> usize {
        self.all.saturating_sub(self.free.available_permits())
    }

    /// Takes a permit; `None` if all permits are in use. There is no wait, because a permit may be in use for hours.
    pub(crate) fn acquire(&self) -> Option<Permit> {
        self.free.clone().try_acquire_owned().ok().map(Permit::keeping)
    }
}

/// Origin of a request to a member. Each origin has a part of the connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asker {
    /// Clients, in any number.
    #[default]
    Client,
    /// Cachers of single namespaces. Clients can cause any number of such cachers.
    Namespaces,
    /// Tributary itself: discovery, probes, and cachers of whole collections.
    Ourselves,
}

/// One quarter of the permits is reserved for each of the three origins. Without a reserve, clients could take all
/// permits, and a cacher could not reopen its watch. Cachers of single namespaces could do the same to clients. The
/// last quarter has no reserve, so one origin may have half of the permits.
const KEPT_FOR_EACH: usize = 4;

/// Returns the maximal number of permits of an origin, if the other origins have taken `others`.
fn room(all: usize, others: impl Iterator<Item = usize>) -> usize {
    let kept = all / KEPT_FOR_EACH;
    all.saturating_sub(others.map(|taken| taken.max(kept)).sum())
}

/// Permits that all origins share. Each origin has a reserve.
#[derive(Debug)]
pub(crate) struct SharedPlaces {
    all: usize,
    taken: Arc<Mutex<[usize; 3]>>,
}

impl SharedPlaces {
    pub(crate) fn new(all: usize) -> Self {
        Self { all, taken: Arc::default() }
    }

    /// Returns the number of permits that this origin may have now.
    pub(crate) fn room(&self, asker: Asker) -> usize {
        self.room_beside(asker, &self.taken.lock())
    }

    /// Takes a permit; `None` if the origin has no free permit. There is no wait.
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

    fn all_for(places: &SharedPlaces, asker: Asker) -> Vec<Permit> {
        std::iter::from_fn(|| places.acquire(asker)).collect()
    }

    #[test]
    fn request_origin_leaves_a_quarter_of_permits_to_each_other() {
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
