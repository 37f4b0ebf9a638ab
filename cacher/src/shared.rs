//! The state that the reflector's task and the [`Cacher`](crate::Cacher) handle share.

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tributary_apimachinery::Snapshot;

use crate::config::CacherConfig;
use crate::member_health::MemberHealth;
use crate::memory_limit::MemoryReservation;
use crate::state::{CacherState, Continuity};
use crate::stats::ReflectorCounters;
use crate::wait::VersionWaiters;

pub(crate) struct ReflectorShared {
    pub(crate) config: CacherConfig,
    pub(crate) published: watch::Sender<Option<Snapshot>>,
    pub(crate) state: watch::Sender<CacherState>,
    pub(crate) continuity: watch::Sender<Continuity>,
    pub(crate) wanted: VersionWaiters,
    pub(crate) reset: Notify,
    /// Wakes the reflector from its wait before the next attempt.
    pub(crate) retry: Notify,
    /// The time of the last loss of contact, or of the last failed attempt to restore contact.
    pub(crate) failed_at: watch::Sender<Option<Instant>>,
    /// The time at which the watch must be reopened, if a reopening was requested.
    pub(crate) reopen_at: watch::Sender<Option<Instant>>,
    /// The health of the member, from all its collections and probes.
    pub(crate) member: watch::Sender<MemberHealth>,
    pub(crate) counts: ReflectorCounters,
    /// The memory reservation: the size of the store, or of the current list if the list is larger. The sizes are not
    /// added: the list shares unchanged objects with the store, and the store's other objects are dropped when the list
    /// replaces the store.
    pub(crate) object_memory: Mutex<MemoryReservation>,
    /// The predecessor's snapshot, until the first complete list is published. A successor of this cacher that starts
    /// before that list receives this snapshot. Without it, the successor would have no objects until its first list.
    /// The snapshot's objects count in `object_memory`.
    pub(crate) predecessor_snapshot: Mutex<Option<Snapshot>>,
}

impl ReflectorShared {
    pub(crate) fn new(
        config: CacherConfig,
        object_memory: MemoryReservation,
        predecessor_snapshot: Option<Snapshot>,
    ) -> Self {
        Self {
            published: watch::Sender::new(None),
            state: watch::Sender::new(CacherState::Syncing { since: Instant::now(), reason: None }),
            continuity: watch::Sender::default(),
            wanted: VersionWaiters::default(),
            reset: Notify::new(),
            retry: Notify::new(),
            failed_at: watch::Sender::new(None),
            reopen_at: watch::Sender::new(None),
            member: watch::Sender::default(),
            counts: ReflectorCounters::default(),
            object_memory: Mutex::new(object_memory),
            predecessor_snapshot: Mutex::new(predecessor_snapshot),
            config,
        }
    }

    /// Drops the predecessor's snapshot. Releases the lock first, because freeing the objects may take long.
    pub(crate) fn drop_predecessor_snapshot(&self) {
        let predecessor_snapshot = self.predecessor_snapshot.lock().take();
        self.object_memory.lock().drop_inherited();
        drop(predecessor_snapshot);
    }
}
