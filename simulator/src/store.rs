//! The state of a simulated member: a revision counter, the written objects, and the watch window.
//!
//! Generated objects are not stored: an overlay contains the written objects, and marks the deleted ones. The state has
//! one lock, which is locked for microseconds and never across an await.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tributary_apimachinery::{ChangeType, Object, ObjectDecoder, Rendering, SelectableField};

use crate::SimulatorConfig;
use crate::catalog::{CATALOG, NAMESPACES, ResourceIndex};
use crate::generate::{self, Generator, layout::mix};
use crate::view::{Overlay, ResourceAtRevision};

#[derive(Clone)]
pub(crate) struct StoreEvent {
    pub(crate) revision: u64,
    pub(crate) resource: ResourceIndex,
    pub(crate) content: Content,
}

#[derive(Clone)]
pub(crate) enum Content {
    /// A change of an object. `object` is the state of the object after the change. For a deletion, `object` is the
    /// last state with the revision of the deletion.
    Change { change_type: ChangeType, object: Arc<Object>, previous: Option<Arc<Object>> },
    /// Raw text that a test injects into watches.
    Raw(Arc<str>),
}

/// An event in the recorded history of a member.
#[derive(Clone, Debug)]
pub enum HistoryEvent {
    /// An object was written or deleted.
    Changed {
        /// The store's revision after the change.
        revision: u64,
        /// The object's key (`namespace/name`, or `name` for cluster-scoped resources).
        key: String,
        /// The new state of the object; `None` after a deletion.
        object: Option<Arc<Object>>,
    },
    /// The member was restored to an older revision. Later revisions are assigned again.
    Restored {
        /// The revision before the restore.
        from: u64,
        /// The revision after the restore.
        revision: u64,
    },
    /// The member became a new cluster, with its generated objects only.
    Replaced {
        /// The revision of the earlier cluster.
        from: u64,
        /// The uid of the new cluster's namespace kube-system.
        uid: String,
    },
}

pub(crate) enum TransactionOutcome {
    /// The object is written with this text, whose `resourceVersion` is the revision of the transaction.
    Put(String),
    Delete,
    /// The object is not changed, and no revision is used.
    Unchanged,
}

pub(crate) struct MemberStore {
    generator: Arc<Generator>,
    decoders: Vec<ObjectDecoder>,
    window: usize,
    keep_history: bool,
    inner: Mutex<StoreState>,
    revision: watch::Sender<u64>,
}

struct StoreState {
    revision: u64,
    /// The minimum revision for a new watch. Older events have been removed.
    floor: u64,
    overlays: Vec<Overlay>,
    events: VecDeque<StoreEvent>,
    /// All recorded events with their resource (`None` for a restore). Empty unless
    /// [`SimulatorConfig::keep_history`](crate::SimulatorConfig::keep_history) is set.
    history: Vec<(Option<ResourceIndex>, HistoryEvent)>,
    incarnation: u64,
    /// A counter whose values are mixed into uids and suffixes.
    entropy: u64,
}

/// The namespaces that each new cluster has.
const SYSTEM_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl MemberStore {
    pub(crate) fn new(config: &SimulatorConfig) -> Self {
        let generator = Arc::new(Generator::new(config));
        let decoders = CATALOG
            .iter()
            .map(|resource| {
                let fields = resource.fields.iter().map(|name| SelectableField::dotted(name)).collect();
                ObjectDecoder::new(&resource.api_version(), resource.kind, fields)
            })
            .collect();
        let revision = generator.layout().last_revision().max(config.first_revision);
        let store = Self {
            decoders,
            window: config.watch_window.max(1),
            keep_history: config.keep_history,
            inner: Mutex::new(StoreState {
                revision,
                floor: revision,
                overlays: vec![Overlay::new(); CATALOG.len()],
                events: VecDeque::new(),
                history: Vec::new(),
                incarnation: 0,
                entropy: generator.layout().hash(CATALOG.len(), 0, 9),
            }),
            revision: watch::Sender::new(revision),
            generator,
        };
        for name in SYSTEM_NAMESPACES {
            store.put_namespace(name, config.epoch);
        }
        store.compact();
        store
    }

    fn put_namespace(&self, name: &str, created: i64) {
        let _ = self.transact(NAMESPACES, name, |_, revision| {
            let incarnation = 0;
            Ok::<_, std::convert::Infallible>(TransactionOutcome::Put(self.system_namespace(
                name,
                revision,
                incarnation,
                created,
            )))
        });
    }

    fn system_namespace(&self, name: &str, revision: u64, incarnation: u64, created: i64) -> String {
        let salt = name.bytes().fold(incarnation, |hash, byte| mix(hash ^ u64::from(byte)));
        let high = self.generator.layout().hash(NAMESPACES, 0, 11) ^ mix(salt);
        let uid = generate::uid(high, mix(high));
        format!(
            r#"{{"kind":"Namespace","apiVersion":"v1","metadata":{{"name":"{name}","uid":"{uid}","resourceVersion":"{revision}","creationTimestamp":"{}","labels":{{"kubernetes.io/metadata.name":"{name}"}}}},"spec":{{"finalizers":["kubernetes"]}},"status":{{"phase":"Active"}}}}"#,
            generate::rfc3339(created)
        )
    }

    pub(crate) fn generator(&self) -> &Arc<Generator> {
        &self.generator
    }

    pub(crate) fn decoder(&self, resource: ResourceIndex) -> &ObjectDecoder {
        &self.decoders[resource]
    }

    pub(crate) fn revision(&self) -> u64 {
        self.inner.lock().revision
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Returns a number that was not returned before, for uids and suffixes.
    pub(crate) fn entropy(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.entropy = inner.entropy.wrapping_add(1);
        mix(inner.entropy)
    }

    pub(crate) fn view(&self, resource: ResourceIndex) -> ResourceAtRevision {
        let inner = self.inner.lock();
        ResourceAtRevision::new(
            self.generator.clone(),
            self.decoders[resource].clone(),
            resource,
            inner.overlays[resource].clone(),
            inner.revision,
        )
    }

    /// Returns the state of a resource at `revision`, or `None` if the revision is before the watch window. For a
    /// future revision, returns the current state.
    pub(crate) fn view_at(&self, resource: ResourceIndex, revision: u64) -> Option<ResourceAtRevision> {
        let inner = self.inner.lock();
        let overlay = self.overlay_at(&inner, resource, revision)?;
        let revision = revision.min(inner.revision);
        Some(ResourceAtRevision::new(
            self.generator.clone(),
            self.decoders[resource].clone(),
            resource,
            overlay,
            revision,
        ))
    }

    /// Computes the overlay at `revision` by undoing the later events, newest first.
    fn overlay_at(&self, inner: &StoreState, resource: ResourceIndex, revision: u64) -> Option<Overlay> {
        if revision < inner.floor {
            return None;
        }
        let mut overlay = inner.overlays[resource].clone();
        for event in inner.events.iter().rev().take_while(|event| event.revision > revision) {
            if event.resource != resource {
                continue;
            }
            if let Content::Change { object, previous, .. } = &event.content {
                overlay.insert(object.key().as_str().into(), previous.clone());
            }
        }
        Some(overlay)
    }

    /// Returns the events of a resource after `revision`: at most `max`, plus all events with the last event's
    /// revision. Also returns the revision up to which the result is complete. Returns `None` if the watch window lacks
    /// some of these events.
    pub(crate) fn events_after(
        &self,
        resource: ResourceIndex,
        revision: u64,
        max: usize,
    ) -> Option<(Vec<StoreEvent>, u64)> {
        let inner = self.inner.lock();
        if revision < inner.floor {
            return None;
        }
        let from = inner.events.partition_point(|event| event.revision <= revision);
        let mut events = Vec::new();
        for event in inner.events.range(from..) {
            if event.resource == resource {
                // All events of one revision are returned together. If some were missing, a client that resumes its
                // watch at this revision would never receive them.
                if let Some(last) =
                    events.last().filter(|last: &&StoreEvent| events.len() >= max && last.revision < event.revision)
                {
                    let upto = last.revision;
                    return Some((events, upto));
                }
                events.push(event.clone());
            }
        }
        Some((events, inner.revision.max(revision)))
    }

    /// Changes an object with `change`, which receives the current object and the revision of the change. Returns the
    /// object after the transaction. For a deletion, the returned object is the last state with the revision of the
    /// deletion. Returns `None` if the object did not exist and was not written.
    pub(crate) fn transact<E>(
        &self,
        resource: ResourceIndex,
        key: &str,
        change: impl FnOnce(Option<&Object>, u64) -> Result<TransactionOutcome, E>,
    ) -> Result<Option<Arc<Object>>, E> {
        let mut inner = self.inner.lock();
        let view = ResourceAtRevision::new(
            self.generator.clone(),
            self.decoders[resource].clone(),
            resource,
            inner.overlays[resource].clone(),
            inner.revision,
        );
        let previous = view.get(key);
        let revision = inner.revision + 1;
        let (change_type, object) = match change(previous.as_deref(), revision)? {
            TransactionOutcome::Unchanged => return Ok(previous),
            TransactionOutcome::Put(text) => {
                let Ok(object) = self.decoders[resource].decode(text.as_bytes()) else { return Ok(previous) };
                let object = Arc::new(object);
                inner.overlays[resource].insert(key.into(), Some(object.clone()));
                (if previous.is_some() { ChangeType::Modified } else { ChangeType::Added }, object)
            }
            TransactionOutcome::Delete => {
                let Some(last) = &previous else { return Ok(None) };
                let object = self.with_revision(resource, last, revision);
                inner.overlays[resource].insert(key.into(), None);
                (ChangeType::Deleted, object)
            }
        };
        let content = Content::Change { change_type, object: object.clone(), previous };
        self.push(&mut inner, StoreEvent { revision, resource, content });
        Ok(Some(object))
    }

    /// Deletes objects in one transaction. The deletions have one revision and the order of their keys. Returns the
    /// revision, or `None` if none of the objects exists.
    pub(crate) fn delete_together(&self, resource: ResourceIndex, keys: &BTreeSet<String>) -> Option<u64> {
        let mut inner = self.inner.lock();
        let view = ResourceAtRevision::new(
            self.generator.clone(),
            self.decoders[resource].clone(),
            resource,
            inner.overlays[resource].clone(),
            inner.revision,
        );
        let revision = inner.revision + 1;
        let there: Vec<_> = keys.iter().filter_map(|key| Some((key, view.get(key)?))).collect();
        for (key, last) in &there {
            inner.overlays[resource].insert(key.as_str().into(), None);
            let object = self.with_revision(resource, last, revision);
            let content =
                Content::Change { change_type: ChangeType::Deleted, object, previous: Some(Arc::clone(last)) };
            self.append_event(&mut inner, StoreEvent { revision, resource, content });
        }
        if there.is_empty() {
            return None;
        }
        // Watches are notified only once, after all deletions of the transaction.
        self.revision.send_replace(revision);
        Some(revision)
    }

    /// Returns the object with another resourceVersion.
    fn with_revision(&self, resource: ResourceIndex, object: &Arc<Object>, revision: u64) -> Arc<Object> {
        let version = revision.to_string();
        let mut text = Vec::with_capacity(object.size());
        object.render(&Rendering { resource_version: Some(&version), annotation: None, list_item: false }, &mut text);
        // Decoding succeeds, because the text was decoded before with a different resourceVersion.
        self.decoders[resource].decode(&text).map_or_else(|_| object.clone(), Arc::new)
    }

    fn push(&self, inner: &mut StoreState, event: StoreEvent) {
        self.append_event(inner, event);
        self.revision.send_replace(inner.revision);
    }

    fn append_event(&self, inner: &mut StoreState, event: StoreEvent) {
        inner.revision = event.revision;
        if self.keep_history
            && let Content::Change { change_type, object, .. } = &event.content
        {
            let key = object.key().as_str().to_owned();
            let object = (*change_type != ChangeType::Deleted).then(|| object.clone());
            let revision = event.revision;
            inner.history.push((Some(event.resource), HistoryEvent::Changed { revision, key, object }));
        }
        inner.events.push_back(event);
        while inner.events.len() > self.window {
            if let Some(lost) = inner.events.pop_front() {
                inner.floor = lost.revision;
            }
        }
    }

    pub(crate) fn history(&self, resource: ResourceIndex, from: usize) -> Vec<HistoryEvent> {
        let inner = self.inner.lock();
        let own = inner.history.iter().filter(|(of, _)| of.is_none_or(|of| of == resource));
        own.skip(from).map(|(_, event)| event.clone()).collect()
    }

    pub(crate) fn compact(&self) {
        let mut inner = self.inner.lock();
        inner.events.clear();
        inner.floor = inner.revision;
    }

    /// Restores the state at `revision`. Returns false if the revision is outside the watch window.
    pub(crate) fn restore(&self, revision: u64) -> bool {
        let mut inner = self.inner.lock();
        if revision > inner.revision {
            return false;
        }
        let overlays: Option<Vec<_>> =
            (0..CATALOG.len()).map(|resource| self.overlay_at(&inner, resource, revision)).collect();
        let Some(overlays) = overlays else { return false };
        inner.overlays = overlays;
        inner.events.clear();
        let from = std::mem::replace(&mut inner.revision, revision);
        inner.floor = revision;
        if self.keep_history {
            inner.history.push((None, HistoryEvent::Restored { from, revision }));
        }
        self.revision.send_replace(revision);
        true
    }

    pub(crate) fn new_incarnation(&self) {
        let incarnation = {
            let mut inner = self.inner.lock();
            inner.incarnation += 1;
            inner.incarnation
        };
        for name in SYSTEM_NAMESPACES {
            let _ = self.transact(NAMESPACES, name, |object, revision| {
                let created = object.and_then(|o| o.creation_timestamp().parse::<jiff::Timestamp>().ok());
                let created = created.map_or(0, |time| time.as_second());
                let text = self.system_namespace(name, revision, incarnation, created);
                Ok::<_, std::convert::Infallible>(TransactionOutcome::Put(text))
            });
        }
    }

    /// Becomes a new cluster at about this revision: drops all written objects, and gives the system namespaces new
    /// uids.
    pub(crate) fn replace(&self, revision: u64) {
        let (from, place) = {
            let mut inner = self.inner.lock();
            for (resource, overlay) in inner.overlays.iter_mut().enumerate() {
                let is_system_namespace = |key: &str| resource == NAMESPACES && SYSTEM_NAMESPACES.contains(&key);
                *overlay = overlay
                    .iter()
                    .filter(|(key, _)| is_system_namespace(key))
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
            }
            let revision = revision.max(self.generator.layout().last_revision());
            (std::mem::replace(&mut inner.revision, revision), inner.history.len())
        };
        self.new_incarnation();
        self.compact();
        let uid = self.view(NAMESPACES).get("kube-system").map(|namespace| namespace.uid().to_owned());
        if let Some(uid) = uid.filter(|_| self.keep_history) {
            self.inner.lock().history.insert(place, (None, HistoryEvent::Replaced { from, uid }));
        }
    }

    /// Inserts raw text into the watch window. Returns false if the resource is unknown.
    pub(crate) fn inject(&self, resource: &str, frame: &str) -> bool {
        let Some(resource) = CATALOG.iter().position(|r| r.qualified() == resource) else { return false };
        let mut inner = self.inner.lock();
        let revision = inner.revision + 1;
        self.push(&mut inner, StoreEvent { revision, resource, content: Content::Raw(frame.into()) });
        true
    }
}
