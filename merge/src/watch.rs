//! A watch of the merged log: a position in it and what is still private to one client. A value; never blocks.
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
//! A version that [`Watcher::next`] or [`Watcher::bookmark`] gives out covers only events that `next` gave out before
//! it, so a stream that is cut anywhere resumes without loss.

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
use pending::{Further, UnpassedClusters};

/// The native version of the DELETED events of a cluster that leaves: every etcd begins there, so it is too old
/// everywhere. Not 0, because in the integer form that may be the number which asks for any state.
const LEFT: ResourceVersion = ResourceVersion(1);

/// A watch of the merged log.
pub struct Watcher<F> {
    filter: F,
    phase: WatcherPhase,
    /// The entry that comes next, and how many of its changes are done.
    position: u64,
    part: usize,
    /// The clusters in which the log has not passed the client's version yet. Empty once the watcher shares the log's
    /// versions.
    pending: UnpassedClusters,
    /// Where it waits behind a DELETED: the cluster of whose object it is not known whether the client has it,
    /// and the client's component.
    awaited: Option<(ClusterName, CollectionVersion)>,
    /// How often the log had dropped clusters when this began: of those the client has nothing.
    drops: u64,
}

enum WatcherPhase {
    Initial(InitialEvents),
    Missing(MissingClusters),
    Live,
}

impl<F: ObjectFilter> Watcher<F> {
    /// Goes on after a version.
    ///
    /// A cluster that the version lacks is new to the client: its objects come first, as ADDED. A component that is
    /// newer than the log is no error: what it covers is skipped as it comes.
    ///
    /// # Errors
    /// [`TooOld`] names the first cluster whose changes since are not known here: forgotten, inside a gap that a
    /// relist or a join left, or of a cluster that is not known at all.
    pub fn resume(log: &Log, from: &CompositeResourceVersion, filter: F) -> Result<Self, TooOld> {
        let (pending, position) = UnpassedClusters::new(log, from, &filter)?;
        let phase = match MissingClusters::new(log, from) {
            Some(missing) => WatcherPhase::Missing(missing),
            None => WatcherPhase::Live,
        };
        Ok(Self { phase, pending, ..Self::live(log, position, filter) })
    }

    /// Starts with every object as it is now, then goes on. `bookmark` says whether the client takes an end bookmark;
    /// if it does not, the last ADDED carries the vector.
    pub fn initial(log: &Log, filter: F, bookmark: bool) -> Self {
        let phase = WatcherPhase::Initial(InitialEvents::new(log, bookmark));
        Self { phase, ..Self::live(log, log.position(), filter) }
    }

    /// Starts with what happens from now on.
    pub fn now(log: &Log, filter: F) -> Self {
        Self::live(log, log.position(), filter)
    }

    /// Goes on at a position, with what stands before it and no more.
    fn live(log: &Log, position: u64, filter: F) -> Self {
        let (pending, drops) = (UnpassedClusters::default(), log.drops());
        Self { filter, phase: WatcherPhase::Live, position, part: 0, pending, awaited: None, drops }
    }

    /// Goes on after one event, named by its cluster and native version; `None` if it is not in the log, or if it is
    /// not certain that the client has what stands up to there and no more. `own_before` is the highest
    /// [`BatchOutcome::own_before`] of all watchers that this log has had, because the client may have got the event
    /// from any of them. Only for a client that got that event from this very log, because the other clusters'
    /// positions are taken from it; an object of a list or of the initial events is no such event.
    ///
    /// A DELETED behind which another cluster's object of that name is told comes once more, with that object: whoever
    /// names the deletion has not got the object. And if that object is the one whose event is named, nobody knows
    /// which of the two events is meant.
    ///
    /// Cost: O(entries since).
    pub fn after_event(
        log: &Log,
        own_before: u64,
        cluster: &ClusterName,
        version: ResourceVersion,
        filter: F,
    ) -> Option<Self> {
        let seq = log.place_of_change(own_before, cluster, version)?;
        // It has what stood up to there, of clusters that were dropped since, too.
        let mut watcher = Self { drops: 0, ..Self::live(log, seq, filter) };
        let named = log.entry(seq)?;
        let key = named.changes().first()?.object.key().as_str();
        if watcher.told_with(log, seq, named, key).is_none() {
            watcher.position = seq + 1;
        }
        let is_named = |other: &ClusterName, object: &Object| other == cluster && object.resource_version() == version;
        let is_told_again = |(seq, entry): (u64, &LogEntry)| {
            entry.others.with_key(key).any(|(_, other, object)| object.upgrade().is_some_and(|it| is_named(other, &it)))
                && watcher.told_with(log, seq, entry, key).is_some_and(|(other, object)| is_named(&other, &object))
        };
        (!log.entries_from(seq + 1).any(is_told_again) && !watcher.lags(log)).then_some(watcher)
    }

    /// Which objects it tells of.
    pub fn filter(&self) -> &F {
        &self.filter
    }

    /// Whether it begins with objects as they are: with all, or with those of clusters that the version lacks.
    pub fn tells_state(&self) -> bool {
        !matches!(self.phase, WatcherPhase::Live)
    }

    /// Whether all that is still to come is what its filter says of what happens from now on. Once it is so it stays
    /// so: a change that is no matter of the filter's ([`concerns`]) is no matter of this then, but for its place.
    pub fn follows_filter_alone(&self) -> bool {
        matches!(self.phase, WatcherPhase::Live) && self.pending.is_empty()
    }

    /// The place in the log before which nothing is still to come.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes on from this place of the log, if it is further: of all changes between, it is known that they do not
    /// [concern](concerns) the filter. They need not be in the log any more. Does nothing for a watcher that does not
    /// [follow its filter alone](Self::follows_filter_alone).
    pub fn pass(&mut self, position: u64) {
        if self.follows_filter_alone() && position > self.position {
            (self.position, self.part) = (position, 0);
        }
    }

    /// The other cluster's object that is told behind a DELETED of this key, if an entry has one.
    fn told_with(&self, log: &Log, seq: u64, entry: &LogEntry, key: &str) -> Option<(ClusterName, Arc<Object>)> {
        let own = entry.changes().iter().enumerate().filter(|(_, change)| change.object.key().as_str() == key);
        let mut deleted = own.filter(|(part, change)| {
            let told = classify(&self.filter, &entry.cluster, change);
            told.is_some_and(|(told, _)| told == ChangeType::Deleted && entry.tells(*part, told))
        });
        let (_, change) = deleted.next()?;
        match self.other(log, &At { seq, entry, change }) {
            Other::Told(_, cluster, object) => Some((cluster, object)),
            Other::None | Other::Unknown(..) => None,
        }
    }

    /// Appends the next events, about `events_max` of them, and says what that came to. Never blocks; bounded work.
    pub fn next(&mut self, log: &Log, events_max: usize, events: &mut Vec<WatchEvent>) -> BatchOutcome {
        let mut turn = WatchBatch::new(events_max, events);
        let progress = self.next_events(log, &mut turn);
        turn.outcome(progress)
    }

    fn next_events(&mut self, log: &Log, turn: &mut WatchBatch<'_>) -> Progress {
        match &mut self.phase {
            WatcherPhase::Initial(initial) => {
                if !initial.next(&self.filter, turn) {
                    return Progress::More;
                }
            }
            WatcherPhase::Missing(missing) => {
                if !missing.next(&self.filter, turn) {
                    return Progress::More;
                }
            }
            WatcherPhase::Live => {}
        }
        self.phase = WatcherPhase::Live;
        self.next_live(log, turn)
    }

    /// The vector that this stream has fully written; `None` before its initial events are complete, for a watcher that
    /// lags. Cost: none once the watcher is shared.
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

    /// The first cluster, if any, in which the client has seen more than this log: it comes from another replica that
    /// is further, or the member's revisions went back unseen. The caller asks the member which of the two it is.
    ///
    /// Meanwhile the stream tells what is new in the other clusters up to the first DELETED, and waits there: the
    /// client may have an object of that name, unknown here, which would have to be announced behind it.
    ///
    /// Who has all of a revision of which this log has a part is ahead only while the stream waits for the rest: behind
    /// a DELETED an object would be told that may be deleted in that revision, and a client that was cut there would
    /// keep it for ever. The part may be all, which the caller has the member say.
    pub fn ahead(&self) -> Option<(&ClusterName, CollectionVersion)> {
        let awaited = self.awaited.as_ref().map(|(cluster, version)| (cluster, *version));
        self.pending.ahead().or(awaited)
    }

    fn next_live(&mut self, log: &Log, turn: &mut WatchBatch<'_>) -> Progress {
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
            if turn.is_over() {
                return Progress::More;
            }
            turn.add_filter_cost(Filter::LOOK_COST);
            if !self.pending.skips(&entry.cluster, seq) {
                self.pending.meet(entry);
                if let Some(progress) = self.next_parts(log, seq, entry, turn) {
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

    /// Gives out the rest of an entry's changes, or says why not all of them.
    fn next_parts(&mut self, log: &Log, seq: u64, entry: &LogEntry, turn: &mut WatchBatch<'_>) -> Option<Progress> {
        let changes = entry.changes();
        while let Some(change) = changes.get(self.part) {
            if turn.is_over() {
                return Some(Progress::More);
            }
            // Of the state before and the one after.
            turn.add_filter_cost(2 * self.filter.cost(&change.object));
            if let Some((change_type, object)) = classify(&self.filter, &entry.cluster, change)
                && entry.tells(self.part, change_type)
            {
                let at = At { seq, entry, change };
                let other = match change_type {
                    ChangeType::Deleted if self.pending.ahead().is_some() => return Some(Progress::CaughtUp),
                    ChangeType::Deleted => self.other(log, &at),
                    ChangeType::Added | ChangeType::Modified => Other::None,
                };
                if let Other::Unknown(cluster, component) = other {
                    self.awaited = Some((cluster, component));
                    return Some(Progress::CaughtUp);
                }
                self.emit(log, &at, change_type, object, other, turn);
            }
            self.part += 1;
        }
        None
    }

    /// Gives out one change, and behind a DELETED the object that another cluster has under the same name: a client
    /// that keys by name would lose it otherwise. Only that one carries the version of this place, because the change
    /// is not told without it.
    fn emit(
        &self,
        log: &Log,
        at: &At<'_>,
        change_type: ChangeType,
        object: &Arc<Object>,
        other: Other,
        turn: &mut WatchBatch<'_>,
    ) {
        let before = LogVersion { position: at.seq, component: at.entry.component_at(self.part) };
        let after = if self.part + 1 == at.entry.changes().len() {
            LogVersion { position: at.seq + 1, component: None }
        } else {
            LogVersion { position: at.seq, component: at.entry.component_after(self.part) }
        };
        let own =
            Emission { change_type, cluster: &at.entry.cluster, object, native: at.native(change_type), other: None };
        let Other::Told(index, cluster, object) = other else {
            return self.push(log, at, own, after, turn);
        };
        self.push(log, at, own, before, turn);
        let (native, other) = (object.resource_version(), Some(index));
        let again = Emission { change_type: ChangeType::Added, cluster: &cluster, object: &object, native, other };
        self.push(log, at, again, after, turn);
    }

    fn push(&self, log: &Log, at: &At<'_>, emission: Emission<'_>, version: LogVersion, turn: &mut WatchBatch<'_>) {
        let Emission { change_type, cluster, object, native, other } = emission;
        if let Some(end) = self.pending.further_until(log, at.seq, &self.filter) {
            turn.told_own(end);
        }
        let shared = self.pending.is_empty().then_some(SharedKey {
            position: at.seq,
            part: self.part,
            other,
            change_type,
            version,
        });
        turn.push(WatchEvent::Object(ObjectEvent {
            change_type,
            object: object.clone(),
            cluster: cluster.clone(),
            native_version: native,
            version: self.version(log, version),
            again: other.is_some(),
            shared,
        }));
    }

    /// The first other cluster's object of the name, in its state at this place: for a cluster of which the client
    /// has seen more than this place, in the state that the client has; if that is not known, and never will be, what
    /// the client may lack is told it in its place, or deleted. None of a cluster that left and was dropped since:
    /// whoever still reads here came after that, and would never be told that the object is gone.
    fn other(&self, log: &Log, at: &At<'_>) -> Other {
        let key = at.change.object.key().as_str();
        let mut here = at.entry.others.with_key(key).filter_map(|(index, cluster, object)| {
            let is_here = !self.pending.skips(cluster, at.seq) && log.component_before(cluster, at.seq).is_some();
            let object = if is_here { object.upgrade() } else { None };
            object.filter(|object| self.filter.matches(cluster, object)).map(|object| (index, cluster, object))
        });
        if let Some((index, cluster, object)) = here.next() {
            return Other::Told(index, cluster.clone(), object);
        }
        let mut unknown = Other::None;
        for Further { cluster, component, has, is_midway } in self.pending.further(at.seq) {
            let object = log.object_before(cluster, key, has).filter(|object| self.filter.matches(cluster, object));
            match (object, component) {
                (Some(_), Some(component)) if is_midway => unknown = Other::Unknown(cluster.clone(), component),
                (Some(object), Some(component)) if !log.is_held(cluster, component, has, &object) => {}
                (Some(object), _) => return Other::Told(0, cluster.clone(), object),
                (None, _) => {}
            }
        }
        unknown
    }

    /// A place in the log as a version for this client.
    fn version(&self, log: &Log, version: LogVersion) -> EventVersion {
        if self.pending.is_empty() {
            EventVersion::Log(version)
        } else {
            EventVersion::Vector(Arc::new(self.pending.vector(log, version)))
        }
    }

    /// Whether something that this client has not seen has been forgotten.
    fn lags(&self, log: &Log) -> bool {
        match log.forgotten_from(self.position, self.drops) {
            None => true,
            Some(clusters) => {
                // A place before the newest that was forgotten, and not skipped.
                clusters.iter().any(|(cluster, before)| !self.pending.skips(cluster, before.saturating_sub(1)))
            }
        }
    }
}

/// Whether a watch with this filter is told anything of a change that a member sent.
pub fn concerns(filter: &impl ObjectFilter, cluster: &ClusterName, change: &Change) -> bool {
    classify(filter, cluster, change).is_some()
}

/// A change where it stands.
struct At<'a> {
    seq: u64,
    entry: &'a LogEntry,
    change: &'a Change,
}

impl At<'_> {
    /// The member's version of the change, as `change_type`. Nobody may go on from an object of a cluster that leaves:
    /// its own version would claim that the client still has what it was told to delete. Which one deleted an object
    /// that a relist found gone, or took it out of a selection, is not known. Such deletions come first, so they carry
    /// the version before the relist: its own would say that what follows has been told, too, and who went on from
    /// there, or waits for a write up to there, would miss it.
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

/// What another cluster has under the name of an object that is DELETED.
enum Other {
    /// Nothing.
    None,
    /// This object of this cluster, with its index among those at that place.
    Told(usize, ClusterName, Arc<Object>),
    /// An object in the log, of a cluster of which the client has all of a revision: that may have deleted it, and the
    /// log has only a part of that revision.
    Unknown(ClusterName, CollectionVersion),
}

/// An event without its version.
struct Emission<'a> {
    change_type: ChangeType,
    cluster: &'a ClusterName,
    object: &'a Arc<Object>,
    native: ResourceVersion,
    other: Option<usize>,
}
