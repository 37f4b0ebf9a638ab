//! What the reflector's task and the handle that readers hold have in common.

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tributary_apimachinery::Snapshot;

use crate::config::CacherConfig;
use crate::member_health::MemberHealth;
use crate::object_room::CollectionRoom;
use crate::state::{CacherState, Continuity};
use crate::stats::ReflectorCounters;
use crate::wait::VersionWaiters;

/// What the reflector's task and the handle share. The task writes, the handle reads.
pub(crate) struct ReflectorShared {
    pub(crate) config: CacherConfig,
    pub(crate) published: watch::Sender<Option<Snapshot>>,
    pub(crate) state: watch::Sender<CacherState>,
    pub(crate) continuity: watch::Sender<Continuity>,
    pub(crate) wanted: VersionWaiters,
    pub(crate) reset: Notify,
    /// Ends the wait before the next attempt.
    pub(crate) retry: Notify,
    /// When contact was last lost, or an attempt to have it back failed.
    pub(crate) failed_at: watch::Sender<Option<Instant>>,
    /// When the watch is to be opened anew, if it is.
    pub(crate) reopen_at: watch::Sender<Option<Instant>>,
    /// What is known of the member beside what this collection shows.
    pub(crate) member: watch::Sender<MemberHealth>,
    pub(crate) counts: ReflectorCounters,
    /// The room for the objects that are served, or for those of the list that is to replace them if these are more:
    /// both are in memory until the list ends, but share the objects that have not changed.
    pub(crate) room: Mutex<CollectionRoom>,
    /// What was served of the collection before this one, until the first complete list is published, which shares with
    /// it what is the same. Whoever takes the place of this one before that begins with it, too: it is served on, and
    /// counts in `room`.
    pub(crate) earlier: Mutex<Option<Snapshot>>,
}

impl ReflectorShared {
    /// As it is before the first request: nothing is held but what was served `earlier`, and nobody waits.
    pub(crate) fn new(config: CacherConfig, room: CollectionRoom, earlier: Option<Snapshot>) -> Self {
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
            room: Mutex::new(room),
            earlier: Mutex::new(earlier),
            config,
        }
    }

    /// Lets go of what was served before. Not with the lock held: this may be the last that has those objects.
    pub(crate) fn forget_earlier(&self) {
        let earlier = self.earlier.lock().take();
        self.room.lock().drop_inherited();
        drop(earlier);
    }
}
