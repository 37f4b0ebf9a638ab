//! A watch of the merged log: a position in the log and the state that is private to one client. A value; it never
//! blocks.
//!
//! ```text
//!   initial ─▶ ADDED of every object, key order ─▶ end bookmark ─┐
//!   now ─────────────────────────────────────────────────────────┼─▶ shared: every watcher sees the same
//!   resume ─▶ ADDED of clusters that V0 lacks ─▶ private: ───────┘
//!                                       the log from the first entry that V0 does not cover; entries that it
//!                                       covers are skipped; versions are join(V0, the log's vector) until the log
//!                                       has passed V0
//! ```
//!
//! A version from [`Watcher::next`] or [`Watcher::bookmark`] covers only events that `next` returned before it, so a
//! stream that is cut anywhere resumes without loss.

mod event;
mod initial;
mod missing;
mod pending;

use std::sync::Arc;

use tributary_apimachinery::{Change, ChangeType, ClusterName, CollectionVersion, Filter, Object, ResourceVersion};

use crate::log::{Boundary, BoundaryKind, Log, LogEntry, LogVersion, TooOld};
use crate::{CompositeResourceVersion, ObjectFilter};
pub use event::{BatchOutcome, EventVersion, ObjectEvent, Progress, SharedKey, WatchEvent};
use event::{WatchBatch, classify};
use initial::InitialEvents;
use missing::MissingClusters;
use pending::{SeenBeyond, UnpassedClusters};

/// The native version of the DELETED events of a leaving cluster: each etcd begins there, so it is too old everywhere.
/// It is not 0, because an integer form of 0 may be the text `0`, which asks for any state.
const LEFT: ResourceVersion = ResourceVersion(1);

/// A watch of the merged log.
pub struct Watcher<F> {
    filter: F,
    phase: WatcherPhase,
    /// The number of the next entry, and the number of its changes that are done.
    position: u64,
    part: usize,
    /// The clusters in which the log has not passed the client's version yet. Empty once the watcher shares the log's
    /// versions.
    pending: UnpassedClusters,
    /// Set while the watcher waits before a DELETED: the cluster that may have an object of that name, and the client's
    /// component of that cluster.
    awaited: Option<(ClusterName, CollectionVersion)>,
    /// The number of clusters that the log had dropped when the watch started; the client has no object of those.
    drops: u64,
}

enum WatcherPhase {
    Initial(InitialEvents),
    Missing(MissingClusters),
    Live,
}

impl<F: ObjectFilter> Watcher<F> {
    /// Resumes from a version.
    ///
    /// A cluster that the version lacks is new to the client: its objects come first, as ADDED. A component that is
    /// newer than the log is no error: the events that it covers are skipped as they arrive.
    ///
    /// # Errors
    /// [`TooOld`] names the first cluster whose later changes are not known here: they are forgotten, inside the gap of
    /// a relist or a join, or belong to an unknown cluster.
    pub fn resume(log: &Log, from: &CompositeResourceVersion, filter: F) -> Result<Self, TooOld> {
        let (pending, position) = UnpassedClusters::new(log, from, &filter)?;
        let phase = match MissingClusters::new(log, from) {
            Some(missing) => WatcherPhase::Missing(missing),
            None => WatcherPhase::Live,
        };
        Ok(Self { phase, pending, ..Self::live(log, position, filter) })
    }

    /// Starts with ADDED for each object of the present state. `bookmark` is true if the client accepts an end
    /// bookmark; otherwise the last ADDED carries the vector.
    pub fn initial(log: &Log, filter: F, bookmark: bool) -> Self {
        let phase = WatcherPhase::Initial(InitialEvents::new(log, bookmark));
        Self { phase, ..Self::live(log, log.position(), filter) }
    }

    /// Starts with the next change.
    pub fn now(log: &Log, filter: F) -> Self {
        Self::live(log, log.position(), filter)
    }

    /// Starts at a position, for a client that has all events before it and no later one.
    fn live(log: &Log, position: u64, filter: F) -> Self {
        let (pending, drops) = (UnpassedClusters::default(), log.drops());
        Self { filter, phase: WatcherPhase::Live, position, part: 0, pending, awaited: None, drops }
    }

    /// Resumes behind an event that is named by its cluster and native version. `None` if the log lacks the event, or
    /// if the client may have received later events. `private_before` is the highest [`BatchOutcome::private_before`]
    /// of all watchers of this log, because the client may have received the event from any of them. The event must
    /// come from this log, because the positions of the other clusters are taken from it; an object of a list or of the
    /// initial events is not such an event.
    ///
    /// A DELETED that is followed by a different cluster's object of the same name is sent again with that object,
    /// because a client that names the deletion has not received the object. If the named event belongs to that object
    /// itself, the event is ambiguous, and the result is `None`.
    ///
    /// Cost: O(entries since).
    pub fn after_event(
        log: &Log,
        private_before: u64,
        cluster: &ClusterName,
        version: ResourceVersion,
        filter: F,
    ) -> Option<Self> {
        let seq = log.position_of_change(private_before, cluster, version)?;
        // The client has everything before this event, including the objects of clusters that were dropped since.
        let mut watcher = Self { drops: 0, ..Self::live(log, seq, filter) };
        let named = log.entry(seq)?;
        let key = named.changes().first()?.object.key().as_str();
        if watcher.other_object_behind(log, seq, named, key).is_none() {
            watcher.position = seq + 1;
        }
        let is_named = |other: &ClusterName, object: &Object| other == cluster && object.resource_version() == version;
        let is_told_again = |(seq, entry): (u64, &LogEntry)| {
            entry.others.with_key(key).any(|(_, other, object)| object.upgrade().is_some_and(|it| is_named(other, &it)))
                && watcher
                    .other_object_behind(log, seq, entry, key)
                    .is_some_and(|(other, object)| is_named(&other, &object))
        };
        (!log.entries_from(seq + 1).any(is_told_again) && !watcher.lags(log)).then_some(watcher)
    }

    /// Returns the filter that selects the objects of the watch.
    pub fn filter(&self) -> &F {
        &self.filter
    }

    /// Returns whether the watch starts with present objects: with all objects, or with those of clusters that the
    /// version lacks.
    pub fn starts_with_state(&self) -> bool {
        !matches!(self.phase, WatcherPhase::Live)
    }

    /// Returns whether the filter alone determines all later events. Once true, it stays true: a change that does not
    /// [concern](concerns) the filter then only advances the position.
    pub fn depends_only_on_filter(&self) -> bool {
        matches!(self.phase, WatcherPhase::Live) && self.pending.is_empty()
    }

    /// Returns the position in the log before which all events have been sent.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Moves on to a later position of the log. The caller knows that the changes between do not [concern](concerns)
    /// the filter; the log may have forgotten them. Does nothing unless the watch [depends only on its
    /// filter](Self::depends_only_on_filter).
    pub fn skip_to(&mut self, position: u64) {
        if self.depends_only_on_filter() && position > self.position {
            (self.position, self.part) = (position, 0);
        }
    }

    /// Returns the other cluster's object that is sent behind a DELETED of this key, if the entry has one.
    fn other_object_behind(
        &self,
        log: &Log,
        seq: u64,
        entry: &LogEntry,
        key: &str,
    ) -> Option<(ClusterName, Arc<Object>)> {
        let own = entry.changes().iter().enumerate().filter(|(_, change)| change.object.key().as_str() == key);
        let mut deleted = own.filter(|(part, change)| {
            let told = classify(&self.filter, &entry.cluster, change);
            told.is_some_and(|(told, _)| told == ChangeType::Deleted && entry.emits(*part, told))
        });
        let (_, change) = deleted.next()?;
        match self.announcement(log, &At { seq, entry, change }) {
            Announcement::Object(_, cluster, object) => Some((cluster, object)),
            Announcement::None | Announcement::Unknown(..) => None,
        }
    }

    /// Appends the next events, about `events_max`, and returns the state of the watcher. Never blocks; the work is
    /// bounded.
    pub fn next(&mut self, log: &Log, events_max: usize, events: &mut Vec<WatchEvent>) -> BatchOutcome {
        let mut batch = WatchBatch::new(events_max, events);
        let progress = self.next_events(log, &mut batch);
        batch.outcome(progress)
    }

    fn next_events(&mut self, log: &Log, batch: &mut WatchBatch<'_>) -> Progress {
        match &mut self.phase {
            WatcherPhase::Initial(initial) => {
                if !initial.next(&self.filter, batch) {
                    return Progress::More;
                }
            }
            WatcherPhase::Missing(missing) => {
                if !missing.next(&self.filter, batch) {
                    return Progress::More;
                }
            }
            WatcherPhase::Live => {}
        }
        self.phase = WatcherPhase::Live;
        self.next_live(log, batch)
    }

    /// Returns the vector that this stream has fully sent; `None` before the initial events are complete, and for a
    /// watcher that lags. Cost: none once the watcher shares the log's versions.
    pub fn bookmark(&self, log: &Log) -> Option<EventVersion> {
        match &self.phase {
            WatcherPhase::Initial(_) => None,
            WatcherPhase::Missing(missing) => Some(EventVersion::Vector(missing.vector())),
            WatcherPhase::Live if self.lags(log) => None,
            WatcherPhase::Live => {
                let entry = log.entry(self.position);
                let component = entry.and_then(|entry| entry.component_after(self.part.checked_sub(1)?));
                let written = LogVersion { position: self.position, component };
                Some(self.version(log, written))
            }
        }
    }

    /// Returns the first cluster, if any, in which the client has seen more than this log. Either a more recent replica
    /// sent the client's version, or the cluster's revisions went back unnoticed. The caller asks the cluster which of
    /// the two it is.
    ///
    /// In the meantime the stream sends the other clusters' events up to the first DELETED, and waits there: the client
    /// may have an object of that name, unknown here, which would have to be announced behind the DELETED.
    ///
    /// A client with all of a revision of which this log has only a part counts as ahead only while the stream waits
    /// for the rest: an object announced behind a DELETED may be deleted in that revision, and a client that is cut
    /// there would keep it forever. The part may already be complete; the caller asks the cluster for a bookmark that
    /// says so.
    pub fn ahead(&self) -> Option<(&ClusterName, CollectionVersion)> {
        let awaited = self.awaited.as_ref().map(|(cluster, version)| (cluster, *version));
        self.pending.ahead().or(awaited)
    }

    fn next_live(&mut self, log: &Log, batch: &mut WatchBatch<'_>) -> Progress {
        self.awaited = None;
        if self.lags(log) {
            return Progress::Lagged;
        }
        if let Err(too_old) = self.pending.settle(log, self.position) {
            return Progress::Expired(too_old);
        }
        for (seq, entry) in log.entries_from(self.position) {
            if self.position < seq {
                (self.position, self.part) = (seq, 0);
            }
            if batch.is_over() {
                return Progress::More;
            }
            batch.add_filter_cost(Filter::LOOK_COST);
            if !self.pending.skips(&entry.cluster, seq) {
                self.pending.apply_boundary(entry);
                if let Some(progress) = self.next_parts(log, seq, entry, batch) {
                    return progress;
                }
            }
            (self.position, self.part) = (seq + 1, 0);
        }
        self.position = log.position();
        match self.pending.settle(log, self.position) {
            Ok(()) => Progress::CaughtUp,
            Err(too_old) => Progress::Expired(too_old),
        }
    }

    /// Emits the remaining changes of an entry, or returns the reason why it stopped early.
    fn next_parts(&mut self, log: &Log, seq: u64, entry: &LogEntry, batch: &mut WatchBatch<'_>) -> Option<Progress> {
        let changes = entry.changes();
        while let Some(change) = changes.get(self.part) {
            if batch.is_over() {
                return Some(Progress::More);
            }
            // The filter is evaluated for the states before and after.
            batch.add_filter_cost(2 * self.filter.cost(&change.object));
            if let Some((change_type, object)) = classify(&self.filter, &entry.cluster, change)
                && entry.emits(self.part, change_type)
            {
                let at = At { seq, entry, change };
                let other = match change_type {
                    ChangeType::Deleted if self.pending.ahead().is_some() => return Some(Progress::CaughtUp),
                    ChangeType::Deleted => self.announcement(log, &at),
                    ChangeType::Added | ChangeType::Modified => Announcement::None,
                };
                if let Announcement::Unknown(cluster, component) = other {
                    self.awaited = Some((cluster, component));
                    return Some(Progress::CaughtUp);
                }
                let (cluster, native) = (&entry.cluster, at.native(change_type));
                let own = Emission { change_type, cluster, object, native, other: None, is_followed: false };
                self.emit(log, &at, own, other, batch);
            }
            self.part += 1;
        }
        None
    }

    /// Emits a change, and behind a DELETED the object that a different cluster has under the same name: a client that
    /// keys by name would lose it otherwise. Only the last of these events carries the version of this position,
    /// because the change includes both.
    fn emit(&self, log: &Log, at: &At<'_>, own: Emission<'_>, other: Announcement, batch: &mut WatchBatch<'_>) {
        let before = LogVersion { position: at.seq, component: at.entry.component_at(self.part) };
        let after = if self.part + 1 == at.entry.changes().len() {
            LogVersion { position: at.seq + 1, component: None }
        } else {
            LogVersion { position: at.seq, component: at.entry.component_after(self.part) }
        };
        let Announcement::Object(index, cluster, object) = other else {
            return self.push(log, at, own, after, batch);
        };
        self.push(log, at, Emission { is_followed: true, ..own }, before, batch);
        let again = Emission {
            change_type: ChangeType::Added,
            cluster: &cluster,
            object: &object,
            native: object.resource_version(),
            other: Some(index),
            is_followed: false,
        };
        self.push(log, at, again, after, batch);
    }

    fn push(&self, log: &Log, at: &At<'_>, emission: Emission<'_>, version: LogVersion, batch: &mut WatchBatch<'_>) {
        let Emission { change_type, cluster, object, native, other, is_followed } = emission;
        if let Some(end) = self.pending.seen_until(log, at.seq, &self.filter) {
            batch.record_private(end);
        }
        let shared = self.pending.is_empty().then_some(SharedKey {
            position: at.seq,
            part: self.part,
            other,
            change_type,
            version,
        });
        batch.push(WatchEvent::Object(ObjectEvent {
            change_type,
            object: object.clone(),
            cluster: cluster.clone(),
            native_version: native,
            version: if is_followed { self.version_of_followed(log, at, version) } else { self.version(log, version) },
            is_repeat: other.is_some(),
            shared,
        }));
    }

    /// Looks up the first other cluster's object of the name, in its state at this position. If the client has seen
    /// more of that cluster, the client's state counts. If that state is unknown and stays so, the result is `None`:
    /// the client receives that cluster's object, or its deletion, at its own position later. Objects of dropped
    /// clusters are excluded: a reader of this entry connected after the leave, and would never receive the deletion.
    fn announcement(&self, log: &Log, at: &At<'_>) -> Announcement {
        let key = at.change.object.key().as_str();
        let mut here = at.entry.others.with_key(key).filter_map(|(index, cluster, object)| {
            let is_here = !self.pending.skips(cluster, at.seq) && log.component_before(cluster, at.seq).is_some();
            let object = if is_here { object.upgrade() } else { None };
            object.filter(|object| self.filter.matches(cluster, object)).map(|object| (index, cluster, object))
        });
        if let Some((index, cluster, object)) = here.next() {
            return Announcement::Object(index, cluster.clone(), object);
        }
        let mut unknown = Announcement::None;
        for SeenBeyond { cluster, component, has, has_more_of_revision } in self.pending.seen_beyond(at.seq) {
            let object = log.object_before(cluster, key, has).filter(|object| self.filter.matches(cluster, object));
            match (object, component) {
                (Some(_), Some(component)) if has_more_of_revision => {
                    unknown = Announcement::Unknown(cluster.clone(), component)
                }
                (Some(object), Some(component)) if !log.certainly_has(cluster, component, has, &object) => {}
                (Some(object), _) => return Announcement::Object(0, cluster.clone(), object),
                (None, _) => {}
            }
        }
        unknown
    }

    /// Converts a point in the log into a version for this client.
    fn version(&self, log: &Log, version: LogVersion) -> EventVersion {
        if self.pending.is_empty() {
            EventVersion::Log(version)
        } else {
            EventVersion::Vector(Arc::new(self.pending.vector(log, version)))
        }
    }

    /// Converts the point of a DELETED that a different cluster's object follows. The component of the deletion's
    /// cluster is the log's, even if the client has seen more of that cluster: a client that is cut between the two
    /// events receives both again, at any replica.
    fn version_of_followed(&self, log: &Log, at: &At<'_>, version: LogVersion) -> EventVersion {
        if self.pending.is_empty() {
            return EventVersion::Log(version);
        }
        let cluster = &at.entry.cluster;
        let mut vector = self.pending.vector(log, version);
        if let Some(component) = version.component.or_else(|| log.component_before(cluster, at.seq)) {
            vector.set(cluster, component);
        }
        EventVersion::Vector(Arc::new(vector))
    }

    /// Returns whether the log has forgotten an event that this client has not seen.
    fn lags(&self, log: &Log) -> bool {
        match log.forgotten_from(self.position, self.drops) {
            None => true,
            Some(clusters) => {
                // The last forgotten event stands before this position, and the client has not skipped it.
                clusters.iter().any(|(cluster, before)| !self.pending.skips(cluster, before.saturating_sub(1)))
            }
        }
    }
}

/// Returns whether a change that a cluster sent produces an event for a watch with this filter.
pub fn concerns(filter: &impl ObjectFilter, cluster: &ClusterName, change: &Change) -> bool {
    classify(filter, cluster, change).is_some()
}

/// A change and its entry.
struct At<'a> {
    seq: u64,
    entry: &'a LogEntry,
    change: &'a Change,
}

impl At<'_> {
    /// Returns the native version of the change for an event of this type. No client may resume from an object of a
    /// leaving cluster: its own version would claim that the client still has the deleted objects. For an object that a
    /// relist no longer found, or that left a selection, the deleting version is unknown. Such deletions come first, so
    /// they carry the version before the relist. With their own version, a client that resumes there, or waits for a
    /// write up to there, would miss the events that follow.
    fn native(&self, change_type: ChangeType) -> ResourceVersion {
        let own = self.change.resource_version();
        match (change_type, self.entry.boundary()) {
            (_, Some(Boundary { kind: BoundaryKind::Leave, .. })) => LEFT,
            (
                ChangeType::Deleted,
                Some(Boundary { kind: BoundaryKind::Relist | BoundaryKind::Reset, component_before, .. }),
            ) => component_before.map_or(own, CollectionVersion::revision),
            _ => own,
        }
    }
}

/// The other cluster's object behind a DELETED of the same name.
enum Announcement {
    /// There is none, or the client receives it at its own position.
    None,
    /// An object and its cluster, with the object's index among the entry's objects of the key.
    Object(usize, ClusterName, Arc<Object>),
    /// The log has an object of a cluster, but only a part of a revision of which the client has all. The missing part
    /// may have deleted the object.
    Unknown(ClusterName, CollectionVersion),
}

struct Emission<'a> {
    change_type: ChangeType,
    cluster: &'a ClusterName,
    object: &'a Arc<Object>,
    native: ResourceVersion,
    other: Option<usize>,
    /// Whether the object of a different cluster with the same name follows.
    is_followed: bool,
}
