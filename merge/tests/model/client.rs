//! Clients of the simulated replicas: the state of each client, and the checks on each event that it receives.

use std::collections::{BTreeMap, HashMap};

use tributary_apimachinery::{ChangeType, ClusterName, CollectionVersion};
use tributary_merge::{
    CompositeResourceVersion, Epochs, EventVersion, Log, ObjectEvent, ObjectFilter, Progress, SharedKey, WatchEvent,
    Watcher,
};

use crate::world::Selector;

/// The state of an object at a client: its version, and whether the object is red.
type ObjectState = (u64, bool);

/// For each shared cache key, the first event that a watch received under the key. Later events with an equal key must
/// be equal to it.
#[derive(Default)]
pub(crate) struct Shared(HashMap<SharedKey, (ChangeType, ClusterName, String, u64, CompositeResourceVersion)>);

pub(crate) struct Client {
    pub(crate) selector: Selector,
    pub(crate) replica: usize,
    bookmarks: bool,
    watcher: Watcher<Selector>,
    /// The objects by cluster and key: the state of an informer that distinguishes clusters.
    state: BTreeMap<(ClusterName, String), ObjectState>,
    /// The objects by key alone: the state of an informer that ignores clusters.
    names: BTreeMap<String, (ClusterName, ObjectState)>,
    /// The version of the last event or bookmark from which the client can resume.
    version: Option<CompositeResourceVersion>,
    /// Whether the client's version may belong to a cluster's state that a restore has undone.
    pub(crate) ambiguous: bool,
    /// For each cluster, the newest version in the logs that sent events to the client. Matters if the connection
    /// breaks inside the differences of a boundary (for example a relist). The client has the exact state only after
    /// its version of each cluster has reached the version in this map.
    log_versions: BTreeMap<ClusterName, CollectionVersion>,
    /// Whether a reconnected watch must not repeat any event. True if no cluster joins, leaves or is relisted in the
    /// run.
    pub(crate) exactly_once: bool,
    /// Whether the client moves between logs of all namespaces and logs of one namespace. These logs number the
    /// deletions of a revision differently, so the checks skip a version in the middle of a revision.
    pub(crate) moves_between_scopes: bool,
    stream: Stream,
}

/// The events that the client received since the watch was opened. If no event may repeat (`exactly_once`), the events
/// since the client's start.
#[derive(Default)]
struct Stream {
    newest: BTreeMap<(ClusterName, String), u64>,
    deleted: Option<(ClusterName, String)>,
    initial: bool,
}

impl Client {
    pub(crate) fn open(log: &Log, replica: usize, selector: Selector, bookmarks: bool) -> Self {
        let watcher = Watcher::initial(log, selector, bookmarks);
        let stream = Stream { initial: true, ..Stream::default() };
        let (state, names) = Default::default();
        Self {
            selector,
            replica,
            bookmarks,
            watcher,
            state,
            names,
            version: None,
            ambiguous: false,
            log_versions: BTreeMap::new(),
            exactly_once: false,
            moves_between_scopes: false,
            stream,
        }
    }

    pub(crate) fn reopen(&mut self, log: &Log, replica: usize, bookmarks: bool) {
        let (exactly_once, moves_between_scopes) = (self.exactly_once, self.moves_between_scopes);
        *self = Self { exactly_once, moves_between_scopes, ..Self::open(log, replica, self.selector, bookmarks) };
    }

    pub(crate) fn list(&mut self, log: &Log, replica: usize) {
        self.state = expected(log, self.selector);
        self.names.clear();
        for ((cluster, key), object_state) in &self.state {
            self.names.insert(key.clone(), (cluster.clone(), *object_state));
        }
        let version = log.resource_version();
        self.watcher = Watcher::resume(log, &version, self.selector).expect("a watch resumes from a list's version");
        (self.version, self.replica, self.ambiguous) = (Some(version), replica, false);
        self.stream = Stream::default();
        self.log_versions.clear();
    }

    pub(crate) fn reconnect(&mut self, log: &Log, replica: usize) {
        let Some(version) = self.version.clone() else {
            self.reopen(log, replica, self.bookmarks);
            return;
        };
        let text = version.encode(&Epochs::default());
        assert_eq!(CompositeResourceVersion::decode(&text, &Epochs::default()), Ok(version.clone()));
        match Watcher::resume(log, &version, self.selector) {
            Ok(_) if self.ambiguous => self.list(log, replica),
            Ok(watcher) => {
                (self.watcher, self.replica) = (watcher, replica);
                let newest = std::mem::take(&mut self.stream.newest);
                self.stream = Stream::default();
                if self.exactly_once {
                    self.stream.newest = newest;
                }
            }
            Err(_) => self.list(log, replica),
        }
    }

    /// Reads up to `max` events of the watch. Applies only the first `keep` events, to simulate a broken connection.
    /// Returns whether the client has all events.
    pub(crate) fn pump(&mut self, log: &Log, max: usize, keep: usize, shared: &mut Shared) -> bool {
        let mut events = Vec::new();
        let progress = self.watcher.next(log, max, &mut events).progress;
        assert!(events.len() <= max.max(1) + 2, "{} events of {max}", events.len());
        let whole = keep >= events.len();
        for event in events.into_iter().take(keep) {
            self.apply(log, event, shared);
        }
        if !whole {
            return false;
        }
        match progress {
            Progress::More => false,
            Progress::Lagged => {
                self.reconnect(log, self.replica);
                false
            }
            Progress::Expired(_) => {
                self.list(log, self.replica);
                false
            }
            Progress::CaughtUp => {
                self.check_caught_up(log);
                true
            }
        }
    }

    pub(crate) fn bookmark(&mut self, log: &Log) {
        if let Some(version) = self.watcher.bookmark(log) {
            self.version = Some(vector(log, &version).expect("a bookmark has a vector"));
        }
    }

    /// Checks that the client receives all events and reaches the log's version. Called at the end of a run, when each
    /// replica has all changes.
    pub(crate) fn check_end(&mut self, log: &Log, shared: &mut Shared) {
        for _ in 0..10_000 {
            if self.pump(log, 7, usize::MAX, shared) {
                let bookmark = self.watcher.bookmark(log).and_then(|version| vector(log, &version));
                assert_eq!(bookmark, Some(log.resource_version()), "a complete stream is at the head's version");
                return;
            }
        }
        panic!("the client does not reach the head");
    }

    fn apply(&mut self, log: &Log, event: WatchEvent, shared: &mut Shared) {
        match event {
            WatchEvent::Object(event) => {
                self.check_order(log, &event);
                self.check_shared(log, &event, shared);
                self.version = vector(log, &event.version).or(self.version.take());
                self.remember(event);
            }
            WatchEvent::InitialEventsEnd(version) => {
                assert!(self.bookmarks && self.stream.initial, "an end bookmark comes once, and only on request");
                self.stream.initial = false;
                self.version = vector(log, &version);
            }
        }
    }

    fn remember(&mut self, event: ObjectEvent) {
        let key = event.object.key().as_str().to_owned();
        let object_id = (event.cluster.clone(), key.clone());
        let object_state = (event.object.resource_version().0, event.object.label("color") == Some("red"));
        if event.change_type == ChangeType::Deleted {
            self.state.remove(&object_id);
            self.names.remove(&key);
        } else {
            assert!(self.selector.matches(&event.cluster, &event.object), "an event has a matching object");
            self.state.insert(object_id, object_state);
            self.names.insert(key, (event.cluster, object_state));
        }
    }

    /// Checks that the versions of an object increase. A version may repeat only directly after the DELETED of a
    /// different cluster's object with the same name, because the watch then sends the object again. The composite
    /// version of the event must cover the object's version. If it did not, a client that reconnects from the event
    /// might keep the object forever.
    fn check_order(&mut self, log: &Log, event: &ObjectEvent) {
        let key = event.object.key().as_str().to_owned();
        let object_id = (event.cluster.clone(), key.clone());
        let version = event.object.resource_version().0;
        if let Some(latest) = log.snapshot(&event.cluster) {
            let log_versions = self.log_versions.entry(event.cluster.clone()).or_default();
            *log_versions = latest.resource_version().max(*log_versions);
        }
        let deleted = event.change_type == ChangeType::Deleted;
        let again = self.stream.deleted.take().is_some_and(|(cluster, other)| other == key && cluster != event.cluster);
        match self.stream.newest.get(&object_id) {
            _ if self.ambiguous => {}
            Some(newest) if again => assert!(version >= *newest, "{object_id:?} goes back to {version}"),
            Some(newest) if !deleted => assert!(version > *newest, "{object_id:?} comes twice at {version}"),
            _ => {}
        }
        if deleted {
            // If the deletion is a difference of a boundary (for example a relist), it does not carry its own version,
            // and revisions may have gone back. So the check no longer expects higher versions of this object.
            self.stream.newest.remove(&object_id);
            self.stream.deleted = Some(object_id);
        } else {
            self.stream.newest.insert(object_id, version);
        }
        if let EventVersion::Item(item) = event.version {
            assert!(self.stream.initial && event.change_type == ChangeType::Added);
            assert_eq!(item, event.object.resource_version());
        } else {
            if !self.bookmarks {
                self.stream.initial = false;
            }
            assert!(!self.stream.initial, "versions before the end bookmark are items");
            let components = vector(log, &event.version).expect("an event after the initial ones has a vector");
            let covered = components.get(&event.cluster) >= Some(event.object.resource_version().into());
            assert!(deleted || covered, "{key} of {} at {version} is not covered by {components:?}", event.cluster);
        }
    }

    fn check_shared(&mut self, log: &Log, event: &ObjectEvent, shared: &mut Shared) {
        let Some(key) = event.shared else { return };
        let text = (
            event.change_type,
            event.cluster.clone(),
            event.object.key().as_str().to_owned(),
            event.object.resource_version().0,
            vector(log, &event.version).expect("a shared event has a vector"),
        );
        let first = shared.0.entry(key).or_insert_with(|| text.clone());
        assert_eq!(*first, text, "equal keys mean equal events");
    }

    /// Checks that the client has the log's objects if its version equals the log's version.
    fn check_caught_up(&mut self, log: &Log) {
        self.bookmark(log);
        let Some(version) = &self.version else { return };
        if *version != log.resource_version() {
            return;
        }
        if self.moves_between_scopes && version.iter().any(|(_, component)| component.is_part()) {
            return;
        }
        let is_behind = |(cluster, latest): (&ClusterName, &CollectionVersion)| {
            version.get(cluster).is_some_and(|component| component < *latest)
        };
        if self.log_versions.iter().any(is_behind) {
            return;
        }
        self.ambiguous = false;
        let expected = expected(log, self.selector);
        assert_eq!(self.state, expected, "{:?}", self.selector);
        let mut names: Vec<_> = expected.keys().map(|(_, key)| key.clone()).collect();
        names.sort();
        names.dedup();
        assert_eq!(self.names.keys().cloned().collect::<Vec<_>>(), names, "the client never loses an existing name");
        for (key, (cluster, object_state)) in &self.names {
            assert_eq!(
                expected.get(&(cluster.clone(), key.clone())),
                Some(object_state),
                "{key} of {cluster} is stale"
            );
        }
    }

    /// Disables the checks of increasing versions, because a restored cluster assigns lower versions again.
    pub(crate) fn revisions_went_back(&mut self) {
        self.ambiguous = true;
        self.stream.newest.clear();
    }
}

fn vector(log: &Log, version: &EventVersion) -> Option<CompositeResourceVersion> {
    match version {
        EventVersion::Item(_) => None,
        EventVersion::Log(version) => {
            Some(log.vector(*version).expect("the log knows a version that it has just returned"))
        }
        EventVersion::Vector(vector) => Some((**vector).clone()),
    }
}

fn expected(log: &Log, selector: Selector) -> BTreeMap<(ClusterName, String), ObjectState> {
    let objects =
        log.latest().iter().flat_map(|(cluster, snapshot)| snapshot.iter().map(move |object| (cluster, object)));
    objects
        .filter(|(cluster, object)| selector.matches(cluster, object))
        .map(|(cluster, object)| {
            let object_state = (object.resource_version().0, object.label("color") == Some("red"));
            ((cluster.clone(), object.key().as_str().to_owned()), object_state)
        })
        .collect()
}
