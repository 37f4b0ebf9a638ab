//! How many of something there may be at once.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tributary_apimachinery::Permit;
use tributary_limiters::{FairShare, ShareHolder, Shares};

/// A fixed number of places. Clones share them.
#[derive(Clone, Debug)]
pub struct Places {
    all: usize,
    free: Arc<Semaphore>,
}

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
    pub(crate) fn acquire(&self) -> Option<Permit> {
        self.free.clone().try_acquire_owned().ok().map(Permit::keeping)
    }
}

/// For whom a request is sent to a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Asker {
    /// For a client, of whom there may be any number.
    #[default]
    Client,
    /// For the cachers of single namespaces, of which clients have this process hold any number.
    Namespaces,
    /// For this process: discovery, its questions, and the cachers of whole collections.
    Ourselves,
}

impl ShareHolder for Asker {
    fn group(self) -> Option<u64> {
        None
    }
}

/// Places that all askers share. Each finds a quarter, whatever the others have taken. If clients could take all, a
/// cacher's watch that was cut could not be opened again, and memory would be stale for everybody; if the cachers of
/// single namespaces could, clients would find no way to the member.
#[derive(Debug)]
pub(crate) struct SharedPlaces {
    share: FairShare,
    taken: Arc<Mutex<Shares<Asker>>>,
}

impl SharedPlaces {
    /// So many places, all of them free.
    pub(crate) fn new(all: usize) -> Self {
        Self { share: FairShare::among_three(all), taken: Arc::default() }
    }

    /// The most places that this asker may have while the others hold theirs.
    pub(crate) fn room(&self, asker: Asker) -> usize {
        let taken = self.taken.lock();
        self.share.room(taken.held() - taken.held_by(asker))
    }

    /// Takes a place; `None` where this asker finds none. Nobody waits.
    pub(crate) fn acquire(&self, asker: Asker) -> Option<Permit> {
        let mut taken = self.taken.lock();
        taken.check(self.share, asker, 1).ok()?;
        taken.add(asker, 1);
        let shared = self.taken.clone();
        Some(Permit::new(move || shared.lock().remove(asker, 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKERS: [Asker; 3] = [Asker::Client, Asker::Namespaces, Asker::Ourselves];

    /// All that an asker gets.
    fn all_for(places: &SharedPlaces, asker: Asker) -> Vec<Permit> {
        std::iter::from_fn(|| places.acquire(asker)).collect()
    }

    #[test]
    fn each_asker_leaves_a_quarter_to_each_of_the_others() {
        for (all, most, kept) in [(0, 0, 0), (1, 1, 0), (3, 1, 1), (4, 2, 1), (8, 4, 2), (256, 128, 64)] {
            for (at, first) in ASKERS.into_iter().enumerate() {
                let [second, third] = [ASKERS[(at + 1) % 3], ASKERS[(at + 2) % 3]];
                let places = SharedPlaces::new(all);
                assert_eq!(places.room(first), most, "of {all}");
                let greedy = all_for(&places, first);
                assert_eq!(greedy.len(), most, "of {all}");
                let others = [second, third].map(|asker| all_for(&places, asker));
                assert_eq!(others.each_ref().map(Vec::len), [kept, kept], "of {all}");
                assert!(ASKERS.iter().all(|asker| places.acquire(*asker).is_none()), "of {all}");
                drop((greedy, others));
                assert_eq!(all_for(&places, third).len(), most, "refusals take nothing, of {all}");
            }
        }
    }
}
