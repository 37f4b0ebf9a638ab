//! The collection as readers see it: put in place by a list, changed by a watch, told to the observer first.

use tokio::time::Instant;
use tributary_apimachinery::{Change, ResourceVersion};

use super::task::Reflector;
use crate::machine::Input;
use crate::object_room::NoRoom;
use crate::state::StaleReason;
use crate::store::{Staging, Store};
use crate::update::Update;

impl Reflector {
    /// The list is complete: it takes the place of what was served. It is of "most recent", so it says how far the
    /// member has come as well as a question for that does; what the member does next may take it past a version that
    /// it has not come to.
    pub(super) fn put_in_place(&mut self, version: ResourceVersion) {
        self.list_place = None;
        let was_planned = self.progress.listed(Instant::now());
        self.shared.wanted.resolve_question(self.question, version);
        let store = std::mem::take(&mut self.staging).finish(version);
        let after = store.snapshot();
        let before = self.store.replace(store);
        let went_back = before.as_ref().is_some_and(|before| self.machine.is_void() || before.is_undone_by(&after));
        // A list for want of bookmarks takes the place of one: nothing was lost, however often there is one.
        let has_lost_changes = went_back || (before.is_some() && !was_planned);
        let counts = &self.shared.counts;
        counts.relists.add(usize::from(has_lost_changes));
        counts.resets.add(usize::from(went_back));
        if let Some(before) = &before {
            tracing::debug!(before = %before.version(), after = %version, "the collection was listed anew");
        }
        self.health.heard(Instant::now());
        self.health.synced();
        let update = match before {
            None => Update::Synced { snapshot: after },
            Some(before) if went_back => Update::Reset { before: before.snapshot(), after },
            Some(before) => Update::Relisted { before: before.snapshot(), after },
        };
        self.publish(update);
        // Only now: whoever takes the place of this one finds one of the two.
        self.shared.forget_earlier();
        self.shrink_room();
        self.show_state();
    }

    /// What there is to do about a collection of this size, if it is larger than is held, or than there is room for.
    pub(super) fn too_large(&mut self, bytes: u64) -> Option<Input> {
        let most = self.shared.config.tuning.collection_size_max;
        let reason = if bytes > most {
            StaleReason::TooLarge(most)
        } else {
            let NoRoom { bytes, max } = self.shared.room.lock().grow_to(bytes).err()?;
            StaleReason::NoRoom { bytes, max }
        };
        self.staging = Staging::default();
        self.shrink_room();
        Some(self.failed(reason))
    }

    /// Gives back the room of objects that are not served: deleted ones, and those of a list that did not end.
    pub(super) fn shrink_room(&mut self) {
        self.shared.room.lock().shrink_to(self.store.as_ref().map_or(0, Store::bytes));
    }

    /// Tells what one read of the watch brought.
    pub(super) fn publish_changes(&mut self, changes: Vec<Change>) {
        let snapshot = self.store.as_ref().map(Store::snapshot).unwrap_or_default();
        self.shared.counts.events.add(changes.len());
        self.publish(if changes.is_empty() {
            Update::Progress { snapshot }
        } else {
            Update::Changes { changes, snapshot }
        });
    }

    /// First the observer, then the readers: what a reader sees, the observer knows.
    fn publish(&mut self, update: Update) {
        let mut snapshot = update.snapshot().clone();
        let counts = &self.shared.counts;
        counts.objects.set(self.store.as_ref().map_or(0, Store::len) as u64);
        counts.object_bytes.set(self.store.as_ref().map_or(0, Store::bytes));
        let is_about_objects = !matches!(update, Update::Progress { .. });
        self.observer.update(update);
        let lets_go = self.shared.config.held.is_until_told() && is_about_objects;
        if let Some(store) = self.store.as_mut().filter(|_| lets_go) {
            store.let_go();
            snapshot = store.snapshot();
        }
        self.shared.published.send_replace(Some(snapshot));
    }
}
