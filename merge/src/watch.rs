//! A watch of the merged log: a position in the log, and the state of one client. The watch is a plain value that never
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
//! V0 is the client's version. A version from [`Watcher::next`] or [`Watcher::bookmark`] covers only events that `next`
//! has already returned, so a client whose watch breaks at any point resumes without loss.

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

/// The native version of the DELETED events of a leaving cluster. Each etcd begins at revision 1, so no log can resume
/// from this version. The version is not 0, because the integer form of 0 may be the text `0`, which means any version.
const LEFT: ResourceVersion = ResourceVersion(1);

/// A watch of the merged log for one client.
pub struct Watcher<F> {
    filter: F,
    phase: WatcherPhase,
    /// The position of the current entry in the log, and the number of the entry's changes that have been sent.
    position: u64,
    part: usize,
    /// The clusters in which the client has events that the watch has not yet passed in the log. When the map is empty,
    /// all watches send the same versions.
    pending: UnpassedClusters,
    /// The cluster for which the watch waits before it sends a DELETED, and the client's component of that cluster. The
    /// cluster may have an object with the same name, which the watch must send after the DELETED.
    awaited: Option<(ClusterName, CollectionVersion)>,
    /// The number of clusters that the log had dropped when the watch started. The client has no objects of those
    /// clusters, because they had left.
    drops: u64,
}

enum WatcherPhase {
    Initial(InitialEvents),
    Missing(MissingClusters),
    Live,
}

impl<F: ObjectFilter> Watcher<F> {
    /// Resumes from a client's version.
    ///
    /// A cluster that the version lacks is new to the client: the watch first sends its objects as ADDED. A component
    /// that is newer than the log is no error: the watch skips the events that the component covers.
    ///
    /// # Errors
    /// [`TooOld`] names the first cluster of which the log lacks changes after the version. These changes have been
    /// evicted, lie inside the gap of a relist or a join, or belong to a cluster that the log does not contain.
    pub fn resume(log: &Log, from: &CompositeResourceVersion, filter: F) -> Result<Self, TooOld> {
        let (pending, position) = UnpassedClusters::new(log, from, &filter)?;
        let phase = match MissingClusters::new(log, from) {
            Some(missing) => WatcherPhase::Missing(missing),
            None => WatcherPhase::Live,
        };
        Ok(Self { phase, pending, ..Self::live(log, position, filter) })
    }

    /// Starts with ADDED for each object of the present state. `bookmark` is true if the client accepts a bookmark at
    /// the end of the initial events; otherwise the last ADDED carries the composite version.
    pub fn initial(log: &Log, filter: F, bookmark: bool) -> Self {
        let phase = WatcherPhase::Initial(InitialEvents::new(log, bookmark));
        Self { phase, ..Self::live(log, log.position(), filter) }
    }

    /// Starts with the next change, without initial events.
    pub fn now(log: &Log, filter: F) -> Self {
        Self::live(log, log.position(), filter)
    }

    /// Starts at a position, for a client that has exactly the events before the position.
    fn live(log: &Log, position: u64, filter: F) -> Self {
        let (pending, drops) = (UnpassedClusters::default(), log.drops());
        Self { filter, phase: WatcherPhase::Live, position, part: 0, pending, awaited: None, drops }
    }

    /// Resumes behind a single event, identified by its cluster and native version.
    ///
    /// Returns `None` if the log lacks the event, or if the client may have received later events. `private_before` is
    /// the highest [`BatchOutcome::private_before`] of all watches of this log, because any of them may have sent the
    /// event to the client. The event must come from this log, because the watch resumes at the event's position for
    /// all clusters. An object of a list or of the initial events is not such an event.
    ///
    /// After a DELETED, the watch may have sent a different cluster's object of the same name. A client that resumes
    /// from the DELETED has not received that object, so the watch sends both events again. If the version may also be
    /// the version of that repeated object, the event is ambiguous, and the result is `None`.
    ///
    /// Cost: O(later entries).
    pub fn after_event(
        log: &Log,
        private_before: u64,
        cluster: &ClusterName,
        version: ResourceVersion,
        filter: F,
    ) -> Option<Self> {
        let position = log.position_of_change(private_before, cluster, version)?;
        // The client has all earlier events, so it may have objects of clusters that the log has dropped since.
        let mut watcher = Self { drops: 0, ..Self::live(log, position, filter) };
        let named = log.entry(position)?;
        let key = named.changes().first()?.object.key().as_str();
        if watcher.find_following_object(log, position, named, key).is_none() {
            watcher.position = position + 1;
        }
        let is_named = |other: &ClusterName, object: &Object| other == cluster && object.resource_version() == version;
        let is_sent_again = |(position, entry): (u64, &LogEntry)| {
            entry.others.with_key(key).any(|(_, other, object)| object.upgrade().is_some_and(|it| is_named(other, &it)))
                && watcher
                    .find_following_object(log, position, entry, key)
                    .is_some_and(|(other, object)| is_named(&other, &object))
        };
        (!log.entries_from(position + 1).any(is_sent_again) && !watcher.is_lagging(log)).then_some(watcher)
    }

    /// Returns the filter that selects the objects of the watch.
    pub fn filter(&self) -> &F {
        &self.filter
    }

    /// Returns whether the watch starts with events for existing objects: all objects, or the objects of clusters that
    /// the client's version lacks.
    pub fn starts_with_state(&self) -> bool {
        !matches!(self.phase, WatcherPhase::Live)
    }

    /// Returns whether all later events depend on the filter alone, and not on the client's version. Once the result is
    /// true, it stays true. A change that does not [concern](concerns) the filter then only advances the position.
    pub fn depends_only_on_filter(&self) -> bool {
        matches!(self.phase, WatcherPhase::Live) && self.pending.is_empty()
    }

    /// Returns the position in the log before which all events have been sent.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Advances to a later position of the log. The caller ensures that the skipped changes do not [concern](concerns)
    /// the filter; the log may have evicted them. Does nothing unless the watch [depends only on its
    /// filter](Self::depends_only_on_filter).
    pub fn skip_to(&mut self, position: u64) {
        if self.depends_only_on_filter() && position > self.position {
            (self.position, self.part) = (position, 0);
        }
    }

    /// Returns the other cluster's object that the watch sends after a DELETED of this key. `None` if the entry has no
    /// such object.
    fn find_following_object(
        &self,
        log: &Log,
        position: u64,
        entry: &LogEntry,
        key: &str,
    ) -> Option<(ClusterName, Arc<Object>)> {
        let own = entry.changes().iter().enumerate().filter(|(_, change)| change.object.key().as_str() == key);
        let mut deleted = own.filter(|(part, change)| {
            let classified = classify(&self.filter, &entry.cluster, change);
            classified
                .is_some_and(|(change_type, _)| change_type == ChangeType::Deleted && entry.emits(*part, change_type))
        });
        let (_, change) = deleted.next()?;
        match self.following_object(log, &EventContext { position, entry, change }) {
            FollowingObject::Object(_, cluster, object) => Some((cluster, object)),
            FollowingObject::None | FollowingObject::Unknown(..) => None,
        }
    }

    /// Appends the next events, at most about `events_max`, to `events`, and returns the state of the watch. Never
    /// blocks, and `events_max` bounds the work of the call.
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

    /// Returns the composite version of all events that have been sent. `None` before the initial events are complete,
    /// and for a watch whose next events have been evicted. Cost: none once the log has passed the client's version.
    pub fn bookmark(&self, log: &Log) -> Option<EventVersion> {
        match &self.phase {
            WatcherPhase::Initial(_) => None,
            WatcherPhase::Missing(missing) => Some(EventVersion::Vector(missing.vector())),
            WatcherPhase::Live if self.is_lagging(log) => None,
            WatcherPhase::Live => {
                let entry = log.entry(self.position);
                let component = entry.and_then(|entry| entry.component_after(self.part.checked_sub(1)?));
                let written = LogVersion { position: self.position, component };
                Some(self.version(log, written))
            }
        }
    }

    /// Returns the first cluster in which the client has received more events than this log contains. Either a more
    /// recent replica issued the client's version, or the cluster's revisions went back unnoticed. The caller requests
    /// the cluster's latest version to distinguish the two cases.
    ///
    /// In the meantime, the watch sends the other clusters' events up to the first DELETED. The cluster that is ahead
    /// may have an object with the same name, and the watch would have to send that object after the DELETED.
    ///
    /// A client may have all deletions of a revision of which this log has only some. The cluster is then returned only
    /// while the watch waits at a DELETED for the missing deletions. Without this wait, the watch would send the object
    /// that follows the DELETED, although a missing deletion may have deleted that object. A client whose connection
    /// then breaks would keep the object forever. A bookmark of the cluster shows that the log has all deletions of the
    /// revision.
    pub fn ahead(&self) -> Option<(&ClusterName, CollectionVersion)> {
        let awaited = self.awaited.as_ref().map(|(cluster, version)| (cluster, *version));
        self.pending.ahead().or(awaited)
    }

    fn next_live(&mut self, log: &Log, batch: &mut WatchBatch<'_>) -> Progress {
        self.awaited = None;
        if self.is_lagging(log) {
            return Progress::Lagged;
        }
        if let Err(too_old) = self.pending.settle(log, self.position) {
            return Progress::Expired(too_old);
        }
        for (position, entry) in log.entries_from(self.position) {
            if self.position < position {
                (self.position, self.part) = (position, 0);
            }
            if batch.is_over() {
                return Progress::More;
            }
            batch.add_filter_cost(Filter::COST_PER_OBJECT);
            if !self.pending.skips(&entry.cluster, position) {
                self.pending.apply_boundary(entry);
                if let Some(progress) = self.next_parts(log, position, entry, batch) {
                    return progress;
                }
            }
            (self.position, self.part) = (position + 1, 0);
        }
        self.position = log.position();
        match self.pending.settle(log, self.position) {
            Ok(()) => Progress::CaughtUp,
            Err(too_old) => Progress::Expired(too_old),
        }
    }

    /// Sends the remaining changes of an entry. Returns `None` after the last change, or the reason why the call
    /// stopped earlier.
    fn next_parts(
        &mut self,
        log: &Log,
        position: u64,
        entry: &LogEntry,
        batch: &mut WatchBatch<'_>,
    ) -> Option<Progress> {
        let changes = entry.changes();
        while let Some(change) = changes.get(self.part) {
            if batch.is_over() {
                return Some(Progress::More);
            }
            // The filter is evaluated twice: for the object before the change, and for the object after the change.
            batch.add_filter_cost(2 * self.filter.cost(&change.object));
            if let Some((change_type, object)) = classify(&self.filter, &entry.cluster, change)
                && entry.emits(self.part, change_type)
            {
                let at = EventContext { position, entry, change };
                let other = match change_type {
                    ChangeType::Deleted if self.pending.ahead().is_some() => return Some(Progress::CaughtUp),
                    ChangeType::Deleted => self.following_object(log, &at),
                    ChangeType::Added | ChangeType::Modified => FollowingObject::None,
                };
                if let FollowingObject::Unknown(cluster, component) = other {
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

    /// Sends a change and, after a DELETED, the object of a different cluster with the same name. Without this object,
    /// a client that identifies objects by name alone would lose it. Only the last of the two events carries the
    /// version of this position. So a client that received only the first event receives both events again after it
    /// resumes.
    fn emit(
        &self,
        log: &Log,
        at: &EventContext<'_>,
        own: Emission<'_>,
        other: FollowingObject,
        batch: &mut WatchBatch<'_>,
    ) {
        let before = LogVersion { position: at.position, component: at.entry.component_at(self.part) };
        let after = if self.part + 1 == at.entry.changes().len() {
            LogVersion { position: at.position + 1, component: None }
        } else {
            LogVersion { position: at.position, component: at.entry.component_after(self.part) }
        };
        let FollowingObject::Object(index, cluster, object) = other else {
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

    fn push(
        &self,
        log: &Log,
        at: &EventContext<'_>,
        emission: Emission<'_>,
        version: LogVersion,
        batch: &mut WatchBatch<'_>,
    ) {
        let Emission { change_type, cluster, object, native, other, is_followed } = emission;
        if let Some(end) = self.pending.seen_until(log, at.position, &self.filter) {
            batch.record_private(end);
        }
        let shared = self.pending.is_empty().then_some(SharedKey {
            position: at.position,
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
            version: if is_followed { self.followed_version(log, at, version) } else { self.version(log, version) },
            is_repeat: other.is_some(),
            shared,
        }));
    }

    /// Returns the object that the watch sends after a DELETED: the object with the same name in the first other
    /// cluster, in its state at this position of the log.
    ///
    /// If the client has already received later events of that cluster, the object is returned in its state at the
    /// client. If the log cannot tell that state, the result is `None`: the watch sends the object, or its deletion,
    /// later at its own position. Objects of dropped clusters are excluded: their deletion was before the watch
    /// started, and would never be sent.
    fn following_object(&self, log: &Log, at: &EventContext<'_>) -> FollowingObject {
        let key = at.change.object.key().as_str();
        let mut here = at.entry.others.with_key(key).filter_map(|(index, cluster, object)| {
            let is_here =
                !self.pending.skips(cluster, at.position) && log.component_before(cluster, at.position).is_some();
            let object = if is_here { object.upgrade() } else { None };
            object.filter(|object| self.filter.matches(cluster, object)).map(|object| (index, cluster, object))
        });
        if let Some((index, cluster, object)) = here.next() {
            return FollowingObject::Object(index, cluster.clone(), object);
        }
        let mut unknown = FollowingObject::None;
        for SeenBeyond { cluster, component, received_until, has_more_of_revision } in
            self.pending.seen_beyond(at.position)
        {
            let object =
                log.object_before(cluster, key, received_until).filter(|object| self.filter.matches(cluster, object));
            match (object, component) {
                (Some(_), Some(component)) if has_more_of_revision => {
                    unknown = FollowingObject::Unknown(cluster.clone(), component)
                }
                (Some(object), Some(component)) if !log.certainly_has(cluster, component, received_until, &object) => {}
                (Some(object), _) => return FollowingObject::Object(0, cluster.clone(), object),
                (None, _) => {}
            }
        }
        unknown
    }

    /// Converts a point in the log into the version that this client receives.
    fn version(&self, log: &Log, version: LogVersion) -> EventVersion {
        if self.pending.is_empty() {
            EventVersion::Log(version)
        } else {
            EventVersion::Vector(Arc::new(self.pending.vector(log, version)))
        }
    }

    /// Returns the version of a DELETED that an object of a different cluster follows. The component of the deletion's
    /// cluster comes from the log, even if the client has received more events of that cluster. So a client whose
    /// connection breaks between the two events receives both again, at any replica.
    fn followed_version(&self, log: &Log, at: &EventContext<'_>, version: LogVersion) -> EventVersion {
        if self.pending.is_empty() {
            return EventVersion::Log(version);
        }
        let cluster = &at.entry.cluster;
        let mut vector = self.pending.vector(log, version);
        if let Some(component) = version.component.or_else(|| log.component_before(cluster, at.position)) {
            vector.set(cluster, component);
        }
        EventVersion::Vector(Arc::new(vector))
    }

    /// Returns whether the log has evicted an event that this client has not received yet.
    fn is_lagging(&self, log: &Log) -> bool {
        match log.evicted_from(self.position, self.drops) {
            None => true,
            Some(clusters) => {
                // `before` is the position behind the cluster's newest evicted event.
                clusters.iter().any(|(cluster, before)| !self.pending.skips(cluster, before.saturating_sub(1)))
            }
        }
    }
}

/// Returns whether a watch with this filter sends an event for a change in a cluster.
pub fn concerns(filter: &impl ObjectFilter, cluster: &ClusterName, change: &Change) -> bool {
    classify(filter, cluster, change).is_some()
}

struct EventContext<'a> {
    position: u64,
    entry: &'a LogEntry,
    change: &'a Change,
}

impl EventContext<'_> {
    /// Returns the native version that an event of this type carries for the change.
    ///
    /// - For a leaving cluster, the version is [`LEFT`]: an object's own version would claim that the client still has
    ///   the deleted objects.
    /// - For an object that a relist did not contain, or that left a selection, the version of the deletion is unknown.
    ///   Such deletions precede the other differences, so they carry the version before the relist. With a later
    ///   version, a client that resumes from the deletion, or waits for a write up to its version, would miss the
    ///   following events.
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

/// The other cluster's object that follows a DELETED of the same name.
enum FollowingObject {
    /// No object follows now. The watch may send an object later at its own position.
    None,
    /// The object that follows: its index among the entry's same-named objects, its cluster, and the object itself.
    Object(usize, ClusterName, Arc<Object>),
    /// The log has an object that the client may lack. The log has only some deletions of a revision that the client
    /// has completely, and a missing deletion may have deleted the object.
    Unknown(ClusterName, CollectionVersion),
}

struct Emission<'a> {
    change_type: ChangeType,
    cluster: &'a ClusterName,
    object: &'a Arc<Object>,
    native: ResourceVersion,
    other: Option<usize>,
    /// Whether a different cluster's object with the same name follows this event.
    is_followed: bool,
}
