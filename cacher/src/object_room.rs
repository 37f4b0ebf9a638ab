//! What the objects of all collections of a process may occupy together.
//!
//! Nobody is made to give back: a collection that is held stays as large as it is. So what each needs is *reserved*,
//! and who would have more is refused, by one rule, so that one that has become large takes no other's place:
//!
//! ```text
//!   0 ───────────────────── 3/4 ──────────────────── 13/16 ──────────────────── 7/8 ┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈┈ all
//!   any collection           │ one that is little      │ what comes first and is   │ nobody's reservation:
//!                            │ (a 256th of all), and   │ little                    │ what is held grows a little
//!                            │ what comes first        │                           │
//! ```
//!
//! Whatever is reserved may grow a little without a new reservation, by an eighth. An eighth of seven eighths is less
//! than what is left, so a collection that is held and grows by no more is never refused because of what others have.
//!
//! One that becomes smaller keeps its reservation for some minutes: a rollout, or the drain of a node, is no reason to
//! lose the place of what is back a minute later.
//!
//! What decides who may see what comes first, and without it nobody could read anything. That is no reason to give it
//! all there is: whoever fills memory with objects in one cluster can fill it with roles, too.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Which part is not for collections of any size: a quarter, as of the bounds that clients share.
const KEPT_FROM_ANY: u64 = 4;

/// Which part is reserved by nobody: an eighth. What all may grow by together is an eighth of seven eighths, which is
/// less.
const KEPT_FOR_GROWTH: u64 = 8;

/// Which part is besides for what comes first and is little: a 16th, 64 MiB of 1 GiB. That is room for the roles and
/// bindings of 500 clusters of usual size, where others have taken whatever they could.
const KEPT_FOR_FIRST: u64 = 16;

/// Which part of all is little: a 256th, as of the bounds that clients share; 4 MiB of 1 GiB. Most resources of most
/// clusters have less, and sixteen of that size find room beside one that has taken whatever it could.
const SMALL: u64 = 256;

/// By which part of its reservation a collection grows a little: an eighth, a day's growth and more.
const LITTLE_GROWTH: u64 = 8;

/// How long a collection that became smaller may become as large again, at least; at most twice as long. 10 minutes:
/// longer than a rollout takes, or the drain of a node.
const RESERVED_FOR: Duration = Duration::from_secs(600);

/// Is told how much is occupied, whenever that changes.
type UsageCallback = Box<dyn Fn(u64) + Send + Sync>;

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
    usage: Mutex<RoomUsage>,
    told: UsageCallback,
}

/// What all collections have together, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct RoomUsage {
    held: u64,
    reserved: u64,
}

impl ObjectRoom {
    /// So many bytes. `told` is given how many are occupied whenever that changes; it is called with a lock held, and
    /// must not wait.
    pub fn new(max: u64, told: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self { shared: Arc::new(SharedRoom { max, usage: Mutex::default(), told: Box::new(told) }), is_first: false }
    }

    /// As much as there is, for tests and measurements.
    pub fn unbounded() -> Self {
        Self::new(u64::MAX, |_| ())
    }

    /// The same room, for what comes before all else: it finds some where other collections find none.
    pub fn for_what_comes_first(&self) -> Self {
        Self { is_first: true, ..self.clone() }
    }

    /// How many bytes there are.
    pub fn max(&self) -> u64 {
        self.shared.max
    }

    /// How many of them are occupied.
    pub fn used(&self) -> u64 {
        self.shared.usage.lock().held
    }

    /// What one more collection has of it: nothing yet.
    pub(crate) fn of_collection(&self) -> CollectionRoom {
        CollectionRoom { room: self.clone(), held: 0, reserved: 0, served: 0, low: None, handed_over: false }
    }

    /// Whether a collection may have so many bytes reserved, where all have so many after that.
    fn may_reserve(&self, bytes: u64, after: u64) -> bool {
        let max = self.max();
        let kept = match (self.is_first, bytes <= max / SMALL) {
            (true, true) => max / KEPT_FOR_GROWTH,
            (true, false) | (false, true) => max / KEPT_FOR_GROWTH + max / KEPT_FOR_FIRST,
            (false, false) => max / KEPT_FROM_ANY,
        };
        after <= max - kept
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

/// What one collection occupies, and has reserved. Given back when dropped.
pub(crate) struct CollectionRoom {
    room: ObjectRoom,
    held: u64,
    /// What it may have whatever the others have, and an eighth of that more. It has no more than both.
    reserved: u64,
    /// The most that was served of it lately.
    served: u64,
    /// Since when less is served.
    low: Option<LowServed>,
    /// Whether another one has what this one had. Whose it was goes on until it is dropped: what it has then is what
    /// the other one has reserved, so it takes nothing, and is refused nothing.
    handed_over: bool,
}

/// That less is served of a collection than there was.
#[derive(Clone, Copy)]
struct LowServed {
    since: Instant,
    /// The most that was served since.
    most: u64,
}

impl CollectionRoom {
    /// Occupies so many bytes in all, if that is more than now. Costs a comparison where it is not. Does nothing
    /// once it was [handed over](Self::hand_over).
    ///
    /// # Errors
    /// [`NoRoom`]; then it occupies what it did.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), NoRoom> {
        if bytes <= self.held || self.handed_over {
            return Ok(());
        }
        let room = &self.room;
        let SharedRoom { max, usage, told } = &*room.shared;
        let mut usage = usage.lock();
        let reserved = usage.reserved.saturating_sub(self.reserved).saturating_add(bytes);
        if bytes > self.reserved && room.may_reserve(bytes, reserved) {
            (self.reserved, usage.reserved) = (bytes, reserved);
        } else if !is_little_growth(self.reserved, bytes) {
            return Err(NoRoom { bytes, max: *max });
        }
        usage.held = usage.held.saturating_sub(self.held).saturating_add(bytes);
        self.held = bytes;
        told(usage.held);
        Ok(())
    }

    /// Occupies no more than so many bytes, which are what is served of the collection now. It may be as large as it
    /// was for some minutes, and until this is called again. Costs a comparison where it neither is nor was larger.
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        if self.handed_over {
            return;
        }
        let before = self.served.max(self.held.min(self.reserved));
        (self.served, self.low) = match self.low {
            _ if bytes >= before => (bytes, None),
            None => (before, Some(LowServed { since: Instant::now(), most: bytes })),
            Some(low) => {
                let (now, most) = (Instant::now(), low.most.max(bytes));
                match now.saturating_duration_since(low.since) < RESERVED_FOR {
                    true => (before, Some(LowServed { most, ..low })),
                    false => (most, (bytes < most).then_some(LowServed { since: now, most: bytes })),
                }
            }
        };
        self.fall_back_to(bytes);
    }

    /// Occupies no more than so many bytes, which are what is served: what was to take its place is let go, and so is
    /// the reservation for that.
    pub(crate) fn fall_back_to(&mut self, bytes: u64) {
        let (held, reserved) = (self.held.min(bytes), self.reserved.min(self.served.max(bytes)));
        if (held, reserved) == (self.held, self.reserved) {
            return;
        }
        let SharedRoom { usage, told, .. } = &*self.room.shared;
        let mut usage = usage.lock();
        usage.held = usage.held.saturating_sub(self.held - held);
        usage.reserved = usage.reserved.saturating_sub(self.reserved - reserved);
        (self.held, self.reserved) = (held, reserved);
        told(usage.held);
    }

    /// What was served is followed by another cacher from now on: gives what this one has, and leaves what takes
    /// nothing any more. Handed over once more it gives nothing: one that is to be counted as any other.
    pub(crate) fn hand_over(&mut self) -> Self {
        let mut nothing = self.room.of_collection();
        if self.handed_over {
            return nothing;
        }
        nothing.handed_over = true;
        std::mem::replace(self, nothing)
    }

    /// Whether it is of this room, and comes as far ahead there.
    pub(crate) fn is_of(&self, room: &ObjectRoom) -> bool {
        Arc::ptr_eq(&self.room.shared, &room.shared) && self.room.is_first == room.is_first
    }
}

impl Drop for CollectionRoom {
    fn drop(&mut self) {
        self.served = 0;
        self.fall_back_to(0);
    }
}

/// Whether one that has so much reserved grows a little, or not at all.
fn is_little_growth(reserved: u64, bytes: u64) -> bool {
    bytes <= reserved.saturating_add(reserved / LITTLE_GROWTH)
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
            assert_eq!(small.len(), 256 / 16, "a 16th is for those");
            for (own, bytes) in held.iter_mut().zip(sizes) {
                assert_eq!(own.grow_to(bytes + bytes / 8), Ok(()), "{sizes:?}");
            }
        }
    }

    /// One cluster may fill memory with objects, and with roles: others' are followed, and read.
    #[test]
    fn what_comes_first_finds_room_and_takes_no_growth_of_others() {
        let room = room();
        let first = room.for_what_comes_first();
        let (mut pods, mut maps) = (room.of_collection(), room.of_collection());
        assert_eq!(pods.grow_to(100), Ok(()));
        (101..).take_while(|bytes| maps.grow_to(*bytes).is_ok()).for_each(drop);
        // What comes first and is large has a 16th besides, and an eighth of that to grow by.
        let mut roles = first.of_collection();
        assert_eq!((roles.grow_to(256), roles.grow_to(288)), (Ok(()), Ok(())));
        assert_eq!(roles.grow_to(289), Err(NoRoom { bytes: 289, max: 4096 }));
        assert!(room.of_collection().grow_to(1).is_err(), "what is little and does not come first finds none now");
        // What is little and comes first has another 16th.
        let mut others: Vec<_> = std::iter::from_fn(|| {
            let mut own = first.of_collection();
            own.grow_to(16).is_ok().then_some(own)
        })
        .collect();
        assert_eq!(others.len(), 256 / 16);
        assert_eq!((pods.grow_to(112), pods.grow_to(113).is_err()), (Ok(()), true));
        assert_eq!(others.iter_mut().try_for_each(|own| own.grow_to(18)), Ok(()));
        assert!(room.used() <= room.max(), "{room:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_became_smaller_may_be_as_large_again_for_some_minutes() {
        let room = room();
        let (mut pods, mut maps) = (room.of_collection(), room.of_collection());
        assert_eq!(pods.grow_to(800), Ok(()));
        let fill = |maps: &mut CollectionRoom| {
            (maps.held + 1..).take_while(|bytes| maps.grow_to(*bytes).is_ok()).for_each(drop);
        };
        fill(&mut maps);
        pods.shrink_to(400);
        fill(&mut maps);
        assert_eq!(room.used(), 400 + (3072 - 800) / 8 * 9);
        assert_eq!((pods.grow_to(800), pods.grow_to(900)), (Ok(()), Ok(())));
        let mut late = room.of_collection();
        assert!(late.grow_to(200).is_err());
        // What it was not for so long is anybody's, as soon as it says once more how large it is.
        pods.shrink_to(400);
        tokio::time::advance(RESERVED_FOR / 2).await;
        pods.shrink_to(600);
        pods.shrink_to(400);
        tokio::time::advance(RESERVED_FOR / 2).await;
        pods.shrink_to(400);
        assert_eq!((late.grow_to(201).is_err(), late.grow_to(200)), (true, Ok(())));
        assert_eq!((pods.grow_to(675), pods.grow_to(676).is_err()), (Ok(()), true), "600 were there in between");
    }

    /// A list that finds no room, or breaks off, leaves the room that it was given to others at once.
    #[test]
    fn what_was_only_listed_is_not_reserved_any_longer() {
        let room = room();
        let [mut pods, mut maps] = std::array::from_fn(|_| room.of_collection());
        assert_eq!(pods.grow_to(1000), Ok(()));
        pods.shrink_to(1000);
        pods.shrink_to(700);
        // A list that is to take its place becomes larger than both.
        assert_eq!((pods.grow_to(3072), maps.grow_to(1000).is_err()), (Ok(()), true));
        pods.fall_back_to(700);
        assert_eq!(room.used(), 700);
        assert_eq!((maps.grow_to(2072), maps.grow_to(u64::MAX).is_err()), (Ok(()), true));
        assert_eq!(pods.grow_to(1125), Ok(()), "what was served lately is still its own");
    }

    #[test]
    fn what_is_handed_over_is_held_by_one() {
        let room = room();
        let [mut pods, mut maps] = std::array::from_fn(|_| room.of_collection());
        assert_eq!((pods.grow_to(800), maps.grow_to(2272)), (Ok(()), Ok(())));
        pods.shrink_to(800);
        let mut after = pods.hand_over();
        assert!(after.is_of(&room) && !after.is_of(&room.for_what_comes_first()));
        // Whose it was goes on for a while: that is held by the other one, and all is taken.
        assert_eq!((pods.grow_to(900), room.used()), (Ok(()), 800 + 2272));
        pods.shrink_to(700);
        assert_eq!(room.used(), 800 + 2272);
        assert!(pods.hand_over().grow_to(800).is_err(), "only one has what there was");
        drop(pods);
        assert_eq!(room.used(), 800 + 2272);
        // Its list begins with nothing.
        after.fall_back_to(0);
        assert_eq!((room.used(), after.grow_to(800)), (2272, Ok(())));
        drop(after);
        assert_eq!(maps.grow_to(3072), Ok(()));
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
