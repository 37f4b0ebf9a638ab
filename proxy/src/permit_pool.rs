//! Permits that limit concurrent connections and requests.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tributary_apimachinery::Permit;

/// A fixed number of permits, for example for tunnels. Clones share the permits.
#[derive(Clone, Debug)]
pub struct PermitPool {
    all: usize,
    free: Arc<Semaphore>,
}

impl PermitPool {
    /// Creates a pool of `all` permits, all of them free.
    pub fn new(all: usize) -> Self {
        Self { all, free: Arc::new(Semaphore::new(all)) }
    }

    /// Returns the total number of permits in the pool, free and in use.
    pub fn all(&self) -> usize {
        self.all
    }

    /// Returns the number of permits in use.
    pub fn taken(&self) -> usize {
        self.all.saturating_sub(self.free.available_permits())
    }

    /// Takes a permit; `None` if all permits are in use. Does not wait, because a permit may be in use for hours.
    pub(crate) fn acquire(&self) -> Option<Permit> {
        self.free.clone().try_acquire_owned().ok().map(Permit::from_guard)
    }
}

/// Origin of a request to a member. Each origin may use a part of the connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestOrigin {
    /// Clients, in any number.
    #[default]
    Client,
    /// Cachers of single namespaces. Clients can cause any number of such cachers.
    Namespaces,
    /// Tributary itself: discovery, probes, and cachers of whole collections.
    Ourselves,
}

/// Fraction of the permits that is reserved for each of the three origins: one quarter. Without a reserve, clients
/// could take all permits, and a cacher could not reopen its watch. Cachers of single namespaces could also take all
/// permits away from clients. The last quarter is not reserved, so one origin may have half of the permits.
const RESERVED_PART: usize = 4;

/// Returns the maximal number of permits of one origin. `others` are the numbers of permits that the other origins have
/// taken. Of `all` permits, each other origin keeps these permits, and at least its reserve.
fn max_permits(all: usize, others: impl Iterator<Item = usize>) -> usize {
    let reserve = all / RESERVED_PART;
    all.saturating_sub(others.map(|used| used.max(reserve)).sum())
}

/// Permits that all origins share. Each origin has a reserve.
#[derive(Debug)]
pub(crate) struct OriginPermits {
    all: usize,
    used: Arc<Mutex<[usize; 3]>>,
}

impl OriginPermits {
    pub(crate) fn new(all: usize) -> Self {
        Self { all, used: Arc::default() }
    }

    /// Returns the number of permits that this origin may have now.
    pub(crate) fn max_permits(&self, origin: RequestOrigin) -> usize {
        self.max_permits_beside(origin, &self.used.lock())
    }

    /// Takes a permit; `None` if the origin has no free permit. Does not wait.
    pub(crate) fn acquire(&self, origin: RequestOrigin) -> Option<Permit> {
        let own = origin as usize;
        let mut used = self.used.lock();
        if used[own] >= self.max_permits_beside(origin, &used) {
            return None;
        }
        used[own] += 1;
        let shared = self.used.clone();
        Some(Permit::new(move || shared.lock()[own] -= 1))
    }

    fn max_permits_beside(&self, origin: RequestOrigin, used: &[usize; 3]) -> usize {
        let others = used.iter().enumerate().filter(|(of, _)| *of != origin as usize);
        max_permits(self.all, others.map(|(_, used)| *used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGINS: [RequestOrigin; 3] = [RequestOrigin::Client, RequestOrigin::Namespaces, RequestOrigin::Ourselves];

    fn all_for(permit_pool: &OriginPermits, origin: RequestOrigin) -> Vec<Permit> {
        std::iter::from_fn(|| permit_pool.acquire(origin)).collect()
    }

    #[test]
    fn quarter_of_the_connection_permits_is_reserved_for_each_request_origin() {
        for (all, most, reserve) in [(0, 0, 0), (1, 1, 0), (3, 3, 0), (4, 2, 1), (8, 4, 2), (256, 128, 64)] {
            for (at, first) in ORIGINS.into_iter().enumerate() {
                let [second, third] = [ORIGINS[(at + 1) % 3], ORIGINS[(at + 2) % 3]];
                let permit_pool = OriginPermits::new(all);
                assert_eq!(permit_pool.max_permits(first), most, "of {all}");
                let greedy = all_for(&permit_pool, first);
                assert_eq!(greedy.len(), most, "of {all}");
                let others = [second, third].map(|origin| all_for(&permit_pool, origin));
                assert_eq!(others.each_ref().map(Vec::len), [reserve, reserve], "of {all}");
                assert_eq!(
                    (permit_pool.max_permits(first), permit_pool.max_permits(second)),
                    (most, reserve),
                    "of {all}"
                );
                assert!(ORIGINS.iter().all(|origin| permit_pool.acquire(*origin).is_none()), "of {all}");
                drop(greedy);
                assert_eq!(
                    all_for(&permit_pool, second).len(),
                    most - reserve,
                    "what is given back is anybody's, of {all}"
                );
                drop(others);
                assert_eq!(all_for(&permit_pool, third).len(), most, "what was refused takes nothing, of {all}");
            }
        }
    }
}
