//! The memory limit for the objects of all collections of a process.
//!
//! Collections reserve bytes in order of arrival, and no collection is evicted. A collection that would exceed the
//! limit is refused. It keeps the objects that it has. An eighth of the limit is reserved for objects that decide about
//! access rights (RBAC), because without RBAC objects no client could read.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// The fraction of the limit that is reserved for RBAC objects ([`ObjectMemoryLimit::with_reserve`]), as a divisor: an
/// eighth, 128 MiB of 1 GiB. 128 MiB suffice for the roles and bindings of 1,000 clusters of usual size.
const RESERVE_PART: u64 = 8;

/// A callback that receives the number of used bytes after each change.
type UsageCallback = Box<dyn Fn(u64) + Send + Sync>;

/// The memory limit for the objects of all collections, in bytes of text and index. A process has one limit, which all
/// clones share.
#[derive(Clone)]
pub struct ObjectMemoryLimit {
    shared: Arc<SharedMemoryLimit>,
    may_use_reserve: bool,
}

struct SharedMemoryLimit {
    max: u64,
    used: Mutex<u64>,
    on_change: UsageCallback,
}

impl ObjectMemoryLimit {
    /// Creates a limit of `max` bytes. `on_change` receives the number of used bytes after each change. `on_change`
    /// runs under a lock and must not wait.
    pub fn new(max: u64, on_change: impl Fn(u64) + Send + Sync + 'static) -> Self {
        let shared = SharedMemoryLimit { max, used: Mutex::default(), on_change: Box::new(on_change) };
        Self { shared: Arc::new(shared), may_use_reserve: false }
    }

    /// Creates a limit that no collection reaches, for tests and measurements.
    pub fn unbounded() -> Self {
        Self::new(u64::MAX, |_| ())
    }

    /// Returns the same limit, with the right to use the reserve. Used for objects that decide about access rights.
    pub fn with_reserve(&self) -> Self {
        Self { may_use_reserve: true, ..self.clone() }
    }

    /// Returns the limit, in bytes.
    pub fn max(&self) -> u64 {
        self.shared.max
    }

    /// Returns the number of used bytes.
    pub fn used(&self) -> u64 {
        *self.shared.used.lock()
    }

    pub(crate) fn new_collection(&self) -> MemoryReservation {
        MemoryReservation { object_memory: self.clone(), used: 0, inherited: 0, is_handed_over: false }
    }

    /// Returns the number of bytes that all collections may use together, from the view of a collection with this
    /// limit: the whole limit with the right to the reserve, or seven eighths of it.
    fn bound(&self) -> u64 {
        if self.may_use_reserve { self.max() } else { self.max() - self.max() / RESERVE_PART }
    }
}

impl fmt::Debug for ObjectMemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (max, used) = (self.max(), self.used());
        f.debug_struct("ObjectMemoryLimit").field("max", &max).field("used", &used).finish_non_exhaustive()
    }
}

/// The error for a collection that needs more bytes than the memory limit leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryLimitReached {
    /// The bytes that the refused collection needs.
    pub(crate) bytes: u64,
    /// The bytes that all collections may use together.
    pub(crate) max: u64,
}

/// The reserved bytes of one collection. Dropping the value releases the bytes.
pub(crate) struct MemoryReservation {
    object_memory: ObjectMemoryLimit,
    used: u64,
    /// The size of the predecessor's objects in bytes. These objects are still served, so their bytes stay reserved.
    inherited: u64,
    /// Whether the reservation has moved to the cacher's successor. Until this cacher is dropped, the successor's
    /// reservation covers the objects of both cachers. So later requests of this cacher for bytes succeed, and reserve
    /// nothing.
    is_handed_over: bool,
}

impl MemoryReservation {
    /// Grows the reservation to `bytes`. Does nothing if the reservation is larger.
    ///
    /// # Errors
    /// [`MemoryLimitReached`]; the reservation stays unchanged.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), MemoryLimitReached> {
        if bytes <= self.used || self.is_handed_over {
            return Ok(());
        }
        let mut all = self.object_memory.shared.used.lock();
        let after = (*all - self.used).saturating_add(bytes);
        if after > self.object_memory.bound() {
            return Err(MemoryLimitReached { bytes, max: self.object_memory.max() });
        }
        (*all, self.used) = (after, bytes);
        (self.object_memory.shared.on_change)(after);
        Ok(())
    }

    /// Shrinks the reservation to `bytes`, the size of the served objects. Used, for example, after an incomplete list.
    /// The bytes of the predecessor's objects stay reserved until [`drop_inherited`](Self::drop_inherited).
    pub(crate) fn shrink_to(&mut self, bytes: u64) {
        let bytes = bytes.max(self.inherited);
        if bytes >= self.used {
            return;
        }
        let mut all = self.object_memory.shared.used.lock();
        *all -= self.used - bytes;
        self.used = bytes;
        (self.object_memory.shared.on_change)(*all);
    }

    /// Marks the predecessor's objects as no longer served. The next call of [`shrink_to`](Self::shrink_to) releases
    /// their bytes.
    pub(crate) fn drop_inherited(&mut self) {
        self.inherited = 0;
    }

    /// Moves the reservation to the cacher's successor. A second call returns an empty reservation.
    pub(crate) fn hand_over(&mut self) -> Self {
        let mut nothing = self.object_memory.new_collection();
        if self.is_handed_over {
            return nothing;
        }
        nothing.is_handed_over = true;
        let mut moved = std::mem::replace(self, nothing);
        moved.inherited = moved.used;
        moved
    }

    /// Returns whether this reservation belongs to the limit `object_memory`, with the same right to the reserve.
    pub(crate) fn belongs_to(&self, object_memory: &ObjectMemoryLimit) -> bool {
        Arc::ptr_eq(&self.object_memory.shared, &object_memory.shared)
            && self.object_memory.may_use_reserve == object_memory.may_use_reserve
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.drop_inherited();
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn collection_above_the_memory_limit_is_refused_and_others_stay() {
        let object_memory = ObjectMemoryLimit::new(4096, |_| ());
        let [mut pods, mut maps] = std::array::from_fn(|_| object_memory.new_collection());
        assert_eq!((pods.grow_to(800), maps.grow_to(2784)), (Ok(()), Ok(())));
        assert_eq!(maps.grow_to(2785), Err(MemoryLimitReached { bytes: 2785, max: 4096 }));
        assert_eq!(maps.grow_to(u64::MAX), Err(MemoryLimitReached { bytes: u64::MAX, max: 4096 }));
        assert_eq!((pods.grow_to(700), object_memory.used()), (Ok(()), 3584));
        pods.shrink_to(700);
        assert_eq!((maps.grow_to(2884), object_memory.used()), (Ok(()), 3584));
        drop((pods, maps));
        assert_eq!(object_memory.used(), 0);
    }

    #[test]
    fn an_eighth_of_the_memory_limit_is_reserved_for_rbac() {
        let object_memory = ObjectMemoryLimit::new(4096, |_| ());
        let reserve = object_memory.with_reserve();
        let (mut pods, mut roles) = (object_memory.new_collection(), reserve.new_collection());
        assert_eq!((pods.grow_to(3584), pods.grow_to(3585).is_err()), (Ok(()), true));
        assert_eq!((roles.grow_to(512), roles.grow_to(513).is_err()), (Ok(()), true));
        // RBAC objects may use more bytes than the reserve, if bytes are free.
        drop(pods);
        assert_eq!(roles.grow_to(4096), Ok(()));
    }

    #[test]
    fn new_cacher_takes_over_the_memory_reservation_of_the_replaced_cacher() {
        let object_memory = ObjectMemoryLimit::new(4096, |_| ());
        let [mut pods, mut maps] = std::array::from_fn(|_| object_memory.new_collection());
        assert_eq!((pods.grow_to(800), maps.grow_to(2784)), (Ok(()), Ok(())));
        let mut after = pods.hand_over();
        assert!(after.belongs_to(&object_memory) && !after.belongs_to(&object_memory.with_reserve()));
        // The predecessor keeps running for a while. Its requests for bytes succeed without effect, because the
        // successor's reservation covers its objects.
        assert_eq!((pods.grow_to(900), object_memory.used()), (Ok(()), 3584));
        pods.shrink_to(700);
        assert!(pods.hand_over().grow_to(800).is_err(), "the room is handed over once");
        drop(pods);
        // The predecessor's objects are served until the successor's first list is complete.
        after.shrink_to(0);
        assert_eq!((object_memory.used(), after.grow_to(700)), (3584, Ok(())));
        after.drop_inherited();
        after.shrink_to(700);
        assert_eq!(object_memory.used(), 3484);
        drop(after);
        assert_eq!((object_memory.used(), maps.grow_to(3584)), (2784, Ok(())));
    }

    #[test]
    fn each_change_of_the_used_memory_is_reported() {
        let (shown, reports) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (gauge, changes) = (Arc::clone(&shown), Arc::clone(&reports));
        let object_memory = ObjectMemoryLimit::new(1000, move |used| {
            gauge.store(used, Ordering::Relaxed);
            changes.fetch_add(1, Ordering::Relaxed);
        });
        let mut own = object_memory.new_collection();
        for (bytes, expected, changes) in [(500, 500, 1), (400, 500, 1), (600, 600, 2), (2000, 600, 2)] {
            let _ = own.grow_to(bytes);
            let found = (shown.load(Ordering::Relaxed), reports.load(Ordering::Relaxed));
            assert_eq!(found, (expected, changes), "{bytes}");
        }
        drop(own);
        assert_eq!((shown.load(Ordering::Relaxed), object_memory.max()), (0, 1000));
    }
}
