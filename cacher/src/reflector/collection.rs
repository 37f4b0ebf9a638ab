//! Replaces and changes the collection. The observer receives each change before readers do.

use tokio::time::Instant;
use tributary_apimachinery::{Change, ResourceVersion};

use super::task::Reflector;
use crate::machine::Input;
use crate::memory_limit::MemoryLimitReached;
use crate::state::StaleReason;
use crate::store::{Staging, Store};
use crate::update::Update;

impl Reflector {
    /// Replaces the served collection by a complete list.
    ///
    /// The version of the list is the member's most recent version, so the list also answers the pending request for
    /// the latest version. The waiters receive this version before the list is published. Otherwise a later change
    /// could satisfy a waiter for a version that the member did not have at the time of the list.
    pub(super) fn replace_collection(&mut self, version: ResourceVersion) {
        self.list_permit = None;
        let was_planned = self.progress.listed(Instant::now());
        self.shared.wanted.resolve_request(self.request_number, version);
        let store = std::mem::take(&mut self.staging).finish(version);
        let after = store.snapshot();
        let before = self.store.replace(store);
        let went_back =
            before.as_ref().is_some_and(|before| self.machine.are_versions_invalid() || before.is_undone_by(&after));
        // A planned list, which only replaces a missing bookmark, loses no events. So the counter of relists does not
        // include such a list.
        let has_lost_changes = went_back || (before.is_some() && !was_planned);
        let counts = &self.shared.counts;
        counts.relists.add(usize::from(has_lost_changes));
        counts.resets.add(usize::from(went_back));
        if let Some(before) = &before {
            tracing::debug!(before = %before.version(), after = %version, "the collection was listed again");
        }
        self.health.record_data(Instant::now());
        self.health.synced();
        let update = match before {
            None => Update::Synced { snapshot: after },
            Some(before) if went_back => Update::Reset { before: before.snapshot(), after },
            Some(before) => Update::Relisted { before: before.snapshot(), after },
        };
        self.publish(update);
        // The predecessor's snapshot is dropped only now, so that a successor of this cacher always finds one of the
        // two snapshots.
        self.shared.drop_predecessor_snapshot();
        self.shrink_reservation();
        self.publish_state();
    }

    /// Checks a size of `bytes` against the collection's limit and against the memory limit of all collections, and
    /// reserves the memory. If a limit is exceeded, records a failure and returns it as an input for the state machine.
    pub(super) fn check_size(&mut self, bytes: u64) -> Option<Input> {
        let most = self.shared.config.tuning.collection_size_max;
        let reason = if bytes > most {
            StaleReason::TooLarge(most)
        } else {
            let MemoryLimitReached { bytes, max } = self.shared.object_memory.lock().grow_to(bytes).err()?;
            StaleReason::MemoryLimitReached { bytes, max }
        };
        self.staging = Staging::default();
        self.shrink_reservation();
        Some(self.failed(reason))
    }

    /// Reduces the memory reservation to the size of the served collection, without the objects of an unfinished list.
    pub(super) fn shrink_reservation(&mut self) {
        self.shared.object_memory.lock().shrink_to(self.store.as_ref().map_or(0, Store::bytes));
    }

    /// Reduces the memory reservation of a watched collection to its size plus an eighth. The additional bytes let new
    /// objects replace deleted objects, even if other collections wait for memory.
    pub(super) fn shrink_watched_reservation(&mut self) {
        let bytes = self.store.as_ref().map_or(0, Store::bytes);
        self.shared.object_memory.lock().shrink_to(bytes.saturating_add(bytes / 8));
    }

    /// Publishes the changes from one chunk of the watch as one update.
    pub(super) fn publish_changes(&mut self, changes: Vec<Change>) {
        let snapshot = self.store.as_ref().map(Store::snapshot).unwrap_or_default();
        self.shared.counts.events.add(changes.len());
        self.publish(if changes.is_empty() {
            Update::Progress { snapshot }
        } else {
            Update::Changes { changes, snapshot }
        });
    }

    /// Publishes an update, first to the observer and then to readers.
    fn publish(&mut self, update: Update) {
        let mut snapshot = update.snapshot().clone();
        let counts = &self.shared.counts;
        counts.objects.set(self.store.as_ref().map_or(0, Store::len) as u64);
        counts.object_bytes.set(self.store.as_ref().map_or(0, Store::bytes));
        let is_about_objects = !matches!(update, Update::Progress { .. });
        self.observer.update(update);
        let lets_go = self.shared.config.retention.is_until_published() && is_about_objects;
        if let Some(store) = self.store.as_mut().filter(|_| lets_go) {
            store.release_objects();
            snapshot = store.snapshot();
        }
        self.shared.published.send_replace(Some(snapshot));
    }
}
