//! Clients of the simulated replicas: what they believe, and what they check on the way.

use std::collections::{BTreeMap, HashMap};

use tributary_apimachinery::{ChangeType, ClusterName, CollectionVersion};
use tributary_merge::{
    CompositeResourceVersion, Epochs, EventVersion, Log, ObjectEvent, ObjectFilter, Progress, SharedKey, WatchEvent,
    Watcher,
};

use crate::world::Selector;

/// An object as a client knows it: its version, and whether it is red.
type Seen = (u64, bool);

/// What every watcher of one log was given under a shared key.
#[derive(Default)]
pub(crate) struct Shared(HashMap<SharedKey, (ChangeType, ClusterName, String, u64, CompositeResourceVersion)>);

pub(crate) struct Client {
    pub(crate) selector: Selector,
    pub(crate) replica: usize,
    bookmarks: bool,
    watcher: Watcher<Selector>,
    /// By cluster and key: what an informer that knows clusters holds.
    state: BTreeMap<(ClusterName, String), Seen>,
    /// By key alone: what any other informer holds.
    names: BTreeMap<String, (ClusterName, Seen)>,
    /// The last version that can be resumed from.
    version: Option<CompositeResourceVersion>,
    /// Whether the version may be of another incarnation of a member.
    pub(crate) ambiguous: bool,
    /// Where the clusters were in the logs that told of them. After a cut in the middle of differences, the client
    /// holds exactly what there is only once a cluster has come to there.
    owed: BTreeMap<ClusterName, CollectionVersion>,
    /// Whether nothing may repeat after a cut either, because no cluster comes, goes or is listed anew.
    pub(crate) exactly_once: bool,
    /// Whether it is led about between logs that count the deletions of a revision differently.
    pub(crate) counts_differ: bool,
    stream: Stream,
}

/// What one stream has told, since it was opened (or, where nothing may repeat, since the client's start).
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
            owed: BTreeMap::new(),
            exactly_once: false,
            counts_differ: false,
            stream,
        }
    }

    /// Starts anew, with nothing.
    pub(crate) fn reopen(&mut self, log: &Log, replica: usize, bookmarks: bool) {
        let (exactly_once, counts_differ) = (self.exactly_once, self.counts_differ);
        *self = Self { exactly_once, counts_differ, ..Self::open(log, replica, self.selector, bookmarks) };
    }

    /// Lists, and watches from the list's version.
    pub(crate) fn list(&mut self, log: &Log, replica: usize) {
        self.state = expected(log, self.selector);
        self.names.clear();
        for ((cluster, key), seen) in &self.state {
            self.names.insert(key.clone(), (cluster.clone(), *seen));
        }
        let version = log.resource_version();
        self.watcher = Watcher::resume(log, &version, self.selector).expect("a list's version can be watched from");
        (self.version, self.replica, self.ambiguous) = (Some(version), replica, false);
        self.stream = Stream::default();
        self.owed.clear();
    }

    /// Loses the stream and goes on from the last version, at any replica.
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

    /// Reads up to `max` events and applies the first `keep` of them. Says whether the head was reached.
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

    /// Takes a bookmark for the last version.
    pub(crate) fn bookmark(&mut self, log: &Log) {
        if let Some(version) = self.watcher.bookmark(log) {
            self.version = Some(vector(log, &version).expect("a bookmark has a vector"));
        }
    }

    /// At the end, when every replica knows all: exactly what there is.
    pub(crate) fn check_end(&mut self, log: &Log, shared: &mut Shared) {
        for _ in 0..10_000 {
            if self.pump(log, 7, usize::MAX, shared) {
                let bookmark = self.watcher.bookmark(log).and_then(|version| vector(log, &version));
                assert_eq!(bookmark, Some(log.resource_version()), "a stream that has all is at the head's version");
                return;
            }
        }
        panic!("the client never reaches the head");
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
                assert!(self.bookmarks && self.stream.initial, "one end bookmark, for those who asked");
                self.stream.initial = false;
                self.version = vector(log, &version);
            }
        }
    }

    fn remember(&mut self, event: ObjectEvent) {
        let key = event.object.key().as_str().to_owned();
        let place = (event.cluster.clone(), key.clone());
        let seen = (event.object.resource_version().0, event.object.label("color") == Some("red"));
        if event.change_type == ChangeType::Deleted {
            self.state.remove(&place);
            self.names.remove(&key);
        } else {
            assert!(self.selector.matches(&event.cluster, &event.object), "only what is selected");
            self.state.insert(place, seen);
            self.names.insert(key, (event.cluster, seen));
        }
    }

    /// Per object, versions go up; they repeat only where another cluster's DELETED of the name came right before. An
    /// object that is told is one of the version that it is told with:
    /// whoever is cut there might otherwise keep it for ever.
    fn check_order(&mut self, log: &Log, event: &ObjectEvent) {
        let key = event.object.key().as_str().to_owned();
        let place = (event.cluster.clone(), key.clone());
        let version = event.object.resource_version().0;
        if let Some(head) = log.snapshot(&event.cluster) {
            let owed = self.owed.entry(event.cluster.clone()).or_default();
            *owed = head.resource_version().max(*owed);
        }
        let deleted = event.change_type == ChangeType::Deleted;
        let again = self.stream.deleted.take().is_some_and(|(cluster, other)| other == key && cluster != event.cluster);
        match self.stream.newest.get(&place) {
            _ if self.ambiguous => {}
            Some(newest) if again => assert!(version >= *newest, "{place:?} goes back to {version}"),
            Some(newest) if !deleted => assert!(version > *newest, "{place:?} comes twice at {version}"),
            _ => {}
        }
        if deleted {
            // A deletion's differences say nothing of its version, and revisions may have gone back.
            self.stream.newest.remove(&place);
            self.stream.deleted = Some(place);
        } else {
            self.stream.newest.insert(place, version);
        }
        if let EventVersion::Item(item) = event.version {
            assert!(self.stream.initial && event.change_type == ChangeType::Added);
            assert_eq!(item, event.object.resource_version());
        } else {
            if !self.bookmarks {
                self.stream.initial = false;
            }
            assert!(!self.stream.initial, "nothing before the end bookmark but items");
            let told = vector(log, &event.version).expect("an event that is no initial one has a vector");
            let covered = told.get(&event.cluster) >= Some(event.object.resource_version().into());
            assert!(deleted || covered, "{key} of {} at {version} is more than {told:?} says", event.cluster);
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
        assert_eq!(*first, text, "the same key, the same bytes");
    }

    /// A client that is at the head's very version holds what the head holds.
    fn check_caught_up(&mut self, log: &Log) {
        self.bookmark(log);
        let Some(version) = &self.version else { return };
        if *version != log.resource_version() {
            return;
        }
        if self.counts_differ && version.iter().any(|(_, component)| component.is_part()) {
            return;
        }
        let owed = |(cluster, head): (&ClusterName, &CollectionVersion)| {
            version.get(cluster).is_some_and(|component| component < *head)
        };
        if self.owed.iter().any(owed) {
            return;
        }
        self.ambiguous = false;
        let expected = expected(log, self.selector);
        assert_eq!(self.state, expected, "{:?}", self.selector);
        let mut names: Vec<_> = expected.keys().map(|(_, key)| key.clone()).collect();
        names.sort();
        names.dedup();
        assert_eq!(self.names.keys().cloned().collect::<Vec<_>>(), names, "a name that exists is never lost");
        for (key, (cluster, seen)) in &self.names {
            assert_eq!(expected.get(&(cluster.clone(), key.clone())), Some(seen), "{key} of {cluster} is stale");
        }
    }

    /// Forgets what a stream told, because revisions went back.
    pub(crate) fn revisions_went_back(&mut self) {
        self.ambiguous = true;
        self.stream.newest.clear();
    }
}

fn vector(log: &Log, version: &EventVersion) -> Option<CompositeResourceVersion> {
    match version {
        EventVersion::Item(_) => None,
        EventVersion::Log(version) => Some(log.vector(*version).expect("a version just given out is known")),
        EventVersion::Vector(vector) => Some((**vector).clone()),
    }
}

/// What the head of a log holds for a selector.
fn expected(log: &Log, selector: Selector) -> BTreeMap<(ClusterName, String), Seen> {
    let objects =
        log.head().iter().flat_map(|(cluster, snapshot)| snapshot.iter().map(move |object| (cluster, object)));
    objects
        .filter(|(cluster, object)| selector.matches(cluster, object))
        .map(|(cluster, object)| {
            let seen = (object.resource_version().0, object.label("color") == Some("red"));
            ((cluster.clone(), object.key().as_str().to_owned()), seen)
        })
        .collect()
}
