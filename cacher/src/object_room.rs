//! What the objects of all collections of a process may occupy together.
//!
//! Nobody is made to give back: a collection that is held stays as large as it is. Whoever grows is refused, by three
//! rules, so that one that has become large takes no other's place:
//!
//! ```text
//!   0 ──────────────────────────────── 3/4 ────────────────── 7/8 ─────────────── all
//!   any collection, of any size         │ one that is little   │ one that is held  │ nobody
//!                                       │ (a 256th of all)     │ and grows a little│
//!                                       └─ one that is held and grows a little ────┘
//! ```
//!
//! A little is an eighth of what a collection had when it last grew by one of the first two rules. All have seven
//! eighths by these, and an eighth of that is less than what is left, so a collection that is held and grows by no more
//! is never refused because of what others have. What decides who may see what comes first: it may have whatever there
//! is, and without it nobody could read anything.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// Which part is not for collections of any size: a quarter, as of the bounds that clients share.
const KEPT_FOR_SMALL: u64 = 4;

/// Which part is for those alone that are held already: an eighth. What they may grow by together is an eighth of seven
/// eighths, which is less.
const KEPT_FOR_HELD: u64 = 8;

/// Which part of all is little: a 256th, as of the bounds that clients share; 4 MiB of 1 GiB. Most resources of most
/// clusters have less, and thirty of that size find room beside one that has taken whatever it could.
const SMALL: u64 = 256;

/// By which part of itself a collection grows a little: an eighth, a day's growth and more.
const LITTLE_GROWTH: u64 = 8;

/// Is told how much is occupied, whenever that changes.
type Told = Box<dyn Fn(u64) + Send + Sync>;

/// What the objects of all collections may occupy together, in bytes of text and places. One per process; clones share
/// it.
#[derive(Clone)]
pub struct ObjectRoom {
    shared: Arc<SharedRoom>,
    /// Whether what is taken through this comes before all else.
    is_first: bool,
}

struct SharedRoom {
    max: u64,
    used: Mutex<u64>,
    told: Told,
}

impl ObjectRoom {
    /// So many bytes. `told` is given how many are occupied whenever that changes; it is called with a lock held, and
    /// must not wait.
    pub fn new(max: u64, told: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self { shared: Arc::new(SharedRoom { max, used: Mutex::new(0), told: Box::new(told) }), is_first: false }
    }

    /// As much as there is, for tests and measurements.
    pub fn unbounded() -> Self {
        Self::new(u64::MAX, |_| ())
    }

    /// The same room, for what comes before all else: it is refused only where all is occupied.
    pub fn for_what_comes_first(&self) -> Self {
        Self { is_first: true, ..self.clone() }
    }

    /// How many bytes there are.
    pub fn max(&self) -> u64 {
        self.shared.max
    }

    /// How many of them are occupied.
    pub fn used(&self) -> u64 {
        *self.shared.used.lock()
    }

    /// What one more collection has of it: nothing yet.
    pub(crate) fn of_collection(&self) -> CollectionRoom {
        CollectionRoom { room: self.clone(), held: 0, settled: 0 }
    }
}

impl fmt::Debug for ObjectRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (max, used) = (self.max(), self.used());
        f.debug_struct("ObjectRoom").field("max", &max).field("used", &used).finish_non_exhaustive()
    }
}

/// There is no room for so much of one collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom {
    /// What it would have occupied.
    pub(crate) bytes: u64,
    /// What all may occupy together.
    pub(crate) max: u64,
}

/// What one collection occupies. Given back when dropped.
pub(crate) struct CollectionRoom {
    room: ObjectRoom,
    held: u64,
    /// What it had when there was still room for those who are not held; never more than it has.
    settled: u64,
}

impl CollectionRoom {
    /// Occupies so many bytes in all, if that is more than now. Costs a comparison where it is not.
    ///
    /// # Errors
    /// [`NoRoom`]; then it occupies what it did.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), NoRoom> {
        if bytes <= self.held {
            return Ok(());
        }
        let SharedRoom { max, used, told } = &*self.room.shared;
        let mut used = used.lock();
        let after = used.saturating_sub(self.held).saturating_add(bytes);
        if is_settled(*max, after, bytes) {
            self.settled = bytes;
        } else {
            let is_admitted = self.room.is_first || is_little_growth(self.settled, bytes);
            if !is_admitted || after > *max {
                return Err(NoRoom { bytes, max: *max });
            }
        }
        (*used, self.held) = (after, bytes);
        told(after);
        Ok(())
    }

    /// Occupies no more than so many bytes.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        if bytes >= self.held {
            return;
        }
        let SharedRoom { used, told, .. } = &*self.room.shared;
        let mut used = used.lock();
        *used = used.saturating_sub(self.held - bytes);
        (self.held, self.settled) = (bytes, self.settled.min(bytes));
        told(*used);
    }
}

impl Drop for CollectionRoom {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// Whether a collection may have so many bytes, where all have so many after that, whether it is held or not.
fn is_settled(max: u64, after: u64, bytes: u64) -> bool {
    let is_small = bytes <= max / SMALL && after <= max - max / KEPT_FOR_HELD;
    is_small || after <= max - max / KEPT_FOR_SMALL
}

/// Whether one that had so much grows a little.
fn is_little_growth(settled: u64, bytes: u64) -> bool {
    bytes <= settled.saturating_add(settled / LITTLE_GROWTH)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn room() -> ObjectRoom {
        ObjectRoom::new(4096, |_| ())
    }

    #[test]
    fn who_grows_is_refused_and_who_is_there_stays() {
        let room = room();
        let [mut pods, mut maps, mut events, mut leases] = std::array::from_fn(|_| room.of_collection());
        assert_eq!(pods.grow_to(800), Ok(()));
        // One that takes whatever it can has what is left of three quarters, and an eighth of itself.
        let had = (0_u64..).take_while(|more| maps.grow_to(800 + more).is_ok()).last();
        assert_eq!(had.map(|more| 800 + more), Some((3072 - 800) / 8 * 9));
        assert_eq!(maps.grow_to(u64::MAX), Err(NoRoom { bytes: u64::MAX, max: 4096 }));
        // Those that were there grow by a little, and what is little comes in. What is neither does not.
        assert_eq!((pods.grow_to(900), pods.grow_to(901)), (Ok(()), Err(NoRoom { bytes: 901, max: 4096 })));
        assert_eq!((leases.grow_to(16), events.grow_to(17)), (Ok(()), Err(NoRoom { bytes: 17, max: 4096 })));
        assert_eq!(room.used(), 900 + 2556 + 16);
        // What is given back is anybody's.
        drop(maps);
        assert_eq!((events.grow_to(2000), pods.grow_to(1000)), (Ok(()), Ok(())));
        events.shrink_to(2000);
        assert_eq!(room.used(), 1000 + 2000 + 16);
        events.shrink_to(10);
        assert_eq!(room.used(), 1000 + 10 + 16);
        drop((pods, events, leases));
        assert_eq!(room.used(), 0);
    }

    /// However those that are held came to be as large as they are.
    #[test]
    fn all_may_grow_a_little_whatever_the_others_have() {
        for sizes in [[2000_u64, 1000, 72], [3070, 1, 1], [16, 3000, 56]] {
            let room = room();
            let mut held = sizes.map(|bytes| {
                let mut own = room.of_collection();
                assert_eq!(own.grow_to(bytes), Ok(()), "{sizes:?}");
                own
            });
            let small: Vec<_> = std::iter::from_fn(|| {
                let mut own = room.of_collection();
                own.grow_to(16).is_ok().then_some(own)
            })
            .collect();
            assert_eq!(small.len(), 512 / 16, "an eighth is for those");
            for (own, bytes) in held.iter_mut().zip(sizes) {
                assert_eq!(own.grow_to(bytes + bytes / 8), Ok(()), "{sizes:?}");
            }
        }
    }

    #[test]
    fn what_comes_first_may_have_all_and_no_more() {
        let room = room();
        let (mut maps, mut roles) = (room.of_collection(), room.for_what_comes_first().of_collection());
        assert_eq!(maps.grow_to(3072), Ok(()));
        assert_eq!((roles.grow_to(1024), roles.grow_to(1025)), (Ok(()), Err(NoRoom { bytes: 1025, max: 4096 })));
    }

    #[test]
    fn what_is_occupied_is_told() {
        let (shown, told) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (gauge, changes) = (Arc::clone(&shown), Arc::clone(&told));
        let room = ObjectRoom::new(1000, move |used| {
            gauge.store(used, Ordering::Relaxed);
            changes.fetch_add(1, Ordering::Relaxed);
        });
        let mut own = room.of_collection();
        // (bytes, what is shown after that, how often it was told)
        for (bytes, expected, changes) in [(500, 500, 1), (400, 500, 1), (600, 600, 2), (2000, 600, 2)] {
            let _ = own.grow_to(bytes);
            let found = (shown.load(Ordering::Relaxed), told.load(Ordering::Relaxed));
            assert_eq!(found, (expected, changes), "{bytes}");
        }
        drop(own);
        assert_eq!((shown.load(Ordering::Relaxed), room.max()), (0, 1000));
    }
}
