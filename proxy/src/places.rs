//! How many of something there may be at once.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tributary_apimachinery::Permit;

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
    pub(crate) fn take(&self) -> Option<Permit> {
        self.free.clone().try_acquire_owned().ok().map(Permit::keeping)
    }
}

/// For whom a request is sent to a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Asker {
    /// For a client, of whom there may be any number, or for what they have this process hold any number of: single namespaces.
    #[default]
    Client,
    /// For this process: discovery, and the lists and watches of its cachers.
    Ourselves,
}

/// How many of `all` clients may take together. A quarter is left for what this process asks for itself: if clients could take all, a
/// cacher's watch that was cut could not be opened again, and what is served from memory would be stale for everybody. Of HTTP/2
/// connections, on which many share a window, clients have so many of their own.
pub(crate) fn for_clients(all: usize) -> usize {
    all - all / 4
}

/// Places that clients and this process share.
#[derive(Debug)]
pub(crate) struct SharedPlaces {
    all: Places,
    of_clients: Places,
}

impl SharedPlaces {
    /// So many places, all of them free.
    pub(crate) fn new(all: usize) -> Self {
        Self { all: Places::new(all), of_clients: Places::new(for_clients(all)) }
    }

    /// How many this asker may take.
    pub(crate) fn most(&self, asker: Asker) -> usize {
        match asker {
            Asker::Client => self.of_clients.all(),
            Asker::Ourselves => self.all.all(),
        }
    }

    /// Takes a place; `None` where this asker finds none. Nobody waits.
    pub(crate) fn take(&self, asker: Asker) -> Option<Permit> {
        let of_clients = match asker {
            Asker::Client => Some(self.of_clients.take()?),
            Asker::Ourselves => None,
        };
        Some(Permit::keeping((self.all.take()?, of_clients)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_a_quarter_to_this_process() {
        for (all, clients) in [(0, 0), (1, 1), (3, 3), (4, 3), (8, 6), (256, 192)] {
            let places = SharedPlaces::new(all);
            let taken: Vec<_> = std::iter::from_fn(|| places.take(Asker::Client)).collect();
            assert_eq!((taken.len(), places.most(Asker::Client)), (clients, clients), "of {all}");
            let own: Vec<_> = std::iter::from_fn(|| places.take(Asker::Ourselves)).collect();
            assert_eq!(own.len(), all - clients, "of {all}");
            drop(taken);
            let own_too: Vec<_> = std::iter::from_fn(|| places.take(Asker::Ourselves)).collect();
            assert_eq!(own_too.len(), clients, "what clients leave is anybody's");
            assert!(places.take(Asker::Client).is_none());
            drop((own, own_too));
            assert_eq!(places.take(Asker::Client).is_some(), clients > 0, "what was refused takes nothing");
        }
    }
}
