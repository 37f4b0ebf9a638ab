//! The state of a client that watches, and the checks of each event against the members' histories. The module does no
//! I/O, so that tests can pass correct and corrupted events.

use std::collections::{BTreeMap, BTreeSet};

use crate::truth::{Component, History, Lie, Selection, State, Truth, Vector};
use crate::world::are_one_member;

#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// An ADDED, MODIFIED or DELETED event.
    Object { change: Change, cluster: String, key: String, state: State, version: Version },
    /// A BOOKMARK event. `initial_end` is true for the bookmark at the end of the initial events.
    Bookmark { vector: Vector, initial_end: bool },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Vector(Vector),
    /// An integer resourceVersion, decoded into a cluster and its revision.
    Item(String, u64),
}

/// The integer resourceVersion of an event, with the object that it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) cluster: String,
    pub(crate) revision: u64,
    key: String,
    /// Whether the event sent the object again, because another cluster's object with the same name was deleted.
    again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// Properties of a run that the checks rely on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expectations {
    /// Whether no fault of the run makes a cacher relist. Then every version is exact, and no event is repeated.
    pub(crate) calm: bool,
    /// The clusters whose component may decrease, because the run removes or restores them.
    pub(crate) may_go_back: BTreeSet<String>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Follower {
    pub(crate) selection: Selection,
    /// The objects by cluster and key, for a client that distinguishes the objects of different clusters.
    pub(crate) objects: BTreeMap<(String, String), State>,
    /// The cluster that has the object of each name, for a client that identifies objects only by name.
    pub(crate) names: BTreeMap<String, String>,
    /// The version to resume from; `None` before the first list or the end of the initial events.
    pub(crate) version: Option<Vector>,
    /// Whether the stream is still sending its initial events.
    initial: bool,
    /// The key of a deleted object, if another cluster has an object with the same name. The next event must be the
    /// ADDED event of the other cluster's object.
    owed: Option<String>,
    /// Keys from `owed` whose ADDED event was missing when the stream was cut. After the client resumes, the stream
    /// must send these events.
    owed_later: BTreeSet<String>,
    /// The clusters whose changes the stream may repeat.
    may_repeat: BTreeSet<String>,
    /// Deletions, by cluster and key, that the stream may repeat although the client's version covers them. Each is a
    /// later deletion of a revision with several changes.
    may_be_deleted_again: BTreeSet<(String, String)>,
    /// The clusters that a router relisted after the client's version. The stream may omit states of these clusters.
    listed_anew: BTreeSet<String>,
    /// The integer resourceVersion of the last event; `None` after a composite version. A client that takes its version
    /// from events would resume from the integer.
    pub(crate) item: Option<Item>,
    /// The cluster of the last DELETED event, if the event's version may precede the deletion. A router sends such a
    /// version while it does not know whether another cluster has an object with the same name.
    perhaps_owed: Option<String>,
}

impl Version {
    /// Returns the revision in the resourceVersion of a listed object of `cluster`. `None` if the resourceVersion is of
    /// another cluster, of several clusters, or of only a part of a revision.
    pub(crate) fn of_item(&self, cluster: &str) -> Option<Component> {
        match self {
            Self::Vector(vector) => vector.get(cluster).filter(|own| own.part.is_none() && vector.len() == 1).copied(),
            Self::Item(of, revision) => (of == cluster).then_some((*revision).into()),
        }
    }
}

/// Checks that the version of an event covers the event's object. If it did not, a client that loses the stream after
/// the event could resume after a later deletion, and keep the object forever. Only a DELETED event may have an earlier
/// version.
fn is_covered(
    truth: &Truth,
    (change, cluster, key, state): (Change, &str, &str, &State),
    vector: &Vector,
) -> Result<(), Lie> {
    let history = truth.history(cluster)?;
    let is_covered = vector.get(cluster).is_some_and(|revision| history.is_by(key, state, *revision));
    if change == Change::Deleted || is_covered {
        return Ok(());
    }
    let states = history.of(key);
    Err(Lie(format!("{change:?} {cluster} {key}: {state:?} is newer than its version {vector:?}; {states}")))
}

impl Follower {
    /// Creates a client with the result of its first list.
    pub(crate) fn listed(selection: Selection, objects: BTreeMap<(String, String), State>, vector: Vector) -> Self {
        let names = objects.keys().map(|(cluster, key)| (key.clone(), cluster.clone())).collect();
        Self { selection, objects, names, version: Some(vector), ..Self::default() }
    }

    /// Creates a client whose watch begins with initial events of all objects.
    pub(crate) fn watching_from_nothing(selection: Selection) -> Self {
        Self { selection, initial: true, ..Self::default() }
    }

    /// Begins a stream from the client's version after a cut. If the client has received changes that its version does
    /// not cover, the stream repeats these changes.
    pub(crate) fn resumed(&mut self, truth: &Truth) {
        self.initial = false;
        self.item = None;
        self.owed_later.extend(self.owed.take());
        self.may_repeat.clear();
        self.listed_anew.clear();
        self.may_be_deleted_again.clear();
        let version = self.version.clone().unwrap_or_default();
        for (cluster, history) in &truth.clusters {
            let covered = version.get(cluster).into_iter().flat_map(|version| history.deleted_behind_others(*version));
            self.may_be_deleted_again.extend(covered.map(|(key, _)| (cluster.clone(), key.clone())));
            let exact = match version.get(cluster) {
                // From a version in the middle of a revision, the stream repeats the revision's changes. In the view of
                // one namespace, it may also repeat the revision's only change.
                Some(version) if history.is_some_of_several(*version) => false,
                Some(version) if version.part.is_some() && self.selection.namespace.is_some() => false,
                Some(version) => truth.is_cluster_state(&self.selection, &self.objects, cluster, *version).is_ok(),
                None => !self.objects.keys().any(|(own, _)| own == cluster),
            };
            // After a restore, a version may stand for two states, so the stream may repeat changes.
            if !exact || history.restores() > 0 {
                self.may_repeat.insert(cluster.clone());
            }
        }
    }

    /// Begins a stream from the integer resourceVersion of the last event, which covers exactly the client's state.
    pub(crate) fn resumed_after_item(&mut self) {
        self.owed_later.extend(self.owed.take());
    }

    /// Returns the version to resume from: the integer or composite version of the last event. `None` before the first
    /// list or the end of the initial events.
    pub(crate) fn place(&self) -> Option<Vector> {
        match &self.item {
            Some(Item { cluster, revision, .. }) => {
                self.version.is_some().then(|| [(cluster.clone(), (*revision).into())].into())
            }
            None => self.version.clone(),
        }
    }

    /// Returns whether the client has received changes that a restore has undone, and that the client's version does
    /// not cover. The restore has not undone the version itself. No router can distinguish this client from a client
    /// with exactly the state of its version.
    pub(crate) fn is_undone(&self, truth: &Truth) -> bool {
        let mut components = self.version.iter().flatten();
        components.any(|(cluster, revision)| {
            let outlived = truth.history(cluster).is_ok_and(|history| history.outlived(revision.revision));
            outlived && truth.is_cluster_state(&self.selection, &self.objects, cluster, *revision).is_err()
        })
    }

    /// Returns whether a component of the client's version may be marked with the wrong cluster. No router can then
    /// decide which cluster the component means.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.version.iter().flatten().any(|(_, component)| component.is_doubtful)
    }

    /// Returns whether another event may have the same integer resourceVersion as the last event: another change of the
    /// revision, or the same object sent again after another cluster's DELETED event. The integer is then ambiguous.
    pub(crate) fn is_perhaps_another(&self, truth: &Truth) -> bool {
        let Some(Item { cluster, key, again, revision }) = &self.item else { return false };
        if truth.history(cluster).is_ok_and(|history| history.is_shared(*revision)) {
            return true;
        }
        let mut others = truth.clusters.keys().filter(|other| !are_one_member(other, cluster));
        *again || others.any(|other| truth.ever_had(&self.selection, other, key))
    }

    /// Returns whether the client has received all initial events, and all ADDED events that must follow the deletion
    /// of another cluster's object.
    pub(crate) fn is_complete(&self) -> bool {
        !self.initial && self.owed.is_none() && self.owed_later.is_empty() && self.version.is_some()
    }

    /// Applies an event. Returns an error if the event contradicts the members' histories.
    pub(crate) fn observe(&mut self, truth: &Truth, expected: &Expectations, event: &Event) -> Result<(), Lie> {
        match event {
            Event::Bookmark { vector, initial_end } => self.bookmark(truth, expected, vector, *initial_end),
            Event::Object { change, cluster, key, state, version } if self.initial => {
                if *change != Change::Added {
                    return Err(Lie(format!("{change:?} {cluster} {key} among the initial events")));
                }
                self.initial_object(truth, cluster, key, state, version)
            }
            Event::Object { change, cluster, key, state, version } => {
                let again = self.owed.is_some();
                self.object(truth, expected, *change, (cluster, key), state)?;
                match version {
                    Version::Vector(vector) => {
                        is_covered(truth, (*change, cluster, key, state), vector)?;
                        let deleted = (*change == Change::Deleted).then_some(&**cluster);
                        self.takes_version(truth, expected, vector, deleted)?;
                    }
                    Version::Item(of, revision) => {
                        self.is_version(truth, expected, (*change, cluster, key, state), (of, *revision))?;
                        let (cluster, revision, key) = (of.clone(), *revision, key.clone());
                        self.item = Some(Item { cluster, revision, key, again });
                    }
                }
                self.names_are_complete(key)
            }
        }
    }

    fn initial_object(
        &mut self,
        truth: &Truth,
        cluster: &str,
        key: &str,
        state: &State,
        version: &Version,
    ) -> Result<(), Lie> {
        let revision = version.of_item(cluster);
        let revision = revision.ok_or_else(|| Lie(format!("{cluster} {key} has {version:?}: not the item form")))?;
        if !truth.history(cluster)?.is_at(&self.selection, key, Some(state), revision) {
            return Err(Lie(format!("{cluster} {key} was never {state:?} at {revision}")));
        }
        if let Some(last) = self.objects.keys().next_back()
            && (last.0.as_str(), last.1.as_str()) >= (cluster, key)
        {
            return Err(Lie(format!("initial events are out of order: {cluster} {key} after {last:?}")));
        }
        self.put(cluster, key, state);
        Ok(())
    }

    fn bookmark(
        &mut self,
        truth: &Truth,
        expected: &Expectations,
        vector: &Vector,
        initial_end: bool,
    ) -> Result<(), Lie> {
        self.perhaps_owed = None;
        if initial_end != self.initial {
            return Err(Lie(format!("a bookmark with initial-events-end={initial_end} at the wrong time")));
        }
        self.item = None;
        if let Some(key) = &self.owed {
            return Err(Lie(format!("a bookmark before {key} of another cluster was told again")));
        }
        if initial_end {
            self.initial = false;
            truth.is_state(&self.selection, &self.objects, vector)?;
            self.version = Some(vector.clone());
            return Ok(());
        }
        self.takes_version(truth, expected, vector, None)
    }

    fn object(
        &mut self,
        truth: &Truth,
        expected: &Expectations,
        change: Change,
        (cluster, key): (&str, &str),
        state: &State,
    ) -> Result<(), Lie> {
        let history = truth.history(cluster)?;
        self.perhaps_owed = None;
        if !self.selection.wants(cluster) || !self.selection.matches(key, state) {
            return Err(Lie(format!("{change:?} {cluster} {key}: {state:?} is not what was selected")));
        }
        let step = history.step_in(key, state);
        let step = step.ok_or_else(|| Lie(format!("{cluster} {key} was never {state:?}; {}", history.of(key))))?;
        let place = (cluster.to_owned(), key.to_owned());
        let held = self.objects.get(&place);
        if let Some(owed) = self.owed.take() {
            return self.again(change, &owed, place, state);
        }
        let is_deleted_again =
            change == Change::Deleted && held.is_none() && self.is_deleted_again(history, &place, state);
        let repeats = self.may_repeat.contains(cluster) || is_deleted_again;
        match (change, held) {
            (Change::Added, Some(_)) if !repeats && !self.owed_later.contains(key) => {
                return Err(Lie(format!("ADDED {cluster} {key}, which the client has")));
            }
            (Change::Modified | Change::Deleted, None) if !repeats && !self.owed_later.contains(key) => {
                return Err(Lie(format!("{change:?} {cluster} {key}, which the client has not")));
            }
            (Change::Deleted, Some(held)) if !repeats && held != state => {
                return Err(Lie(format!("DELETED {cluster} {key} as {state:?}, which the client has as {held:?}")));
            }
            (Change::Added | Change::Modified, Some(held)) if !repeats && !expected.may_go_back.contains(cluster) => {
                let before = history.step_in(key, held).unwrap_or_default();
                if before > step || (before == step && !self.owed_later.contains(key)) {
                    return Err(Lie(format!("{cluster} {key} does not go forward: {held:?}, then {state:?}")));
                }
            }
            _ => {}
        }
        if change == Change::Deleted {
            self.objects.remove(&place);
            self.may_be_deleted_again.remove(&place);
            self.names.remove(key);
            let others = || self.objects.keys().filter(|(_, other)| other == key);
            if others().next().is_none() {
                // The last object with this name is gone, so no ADDED event of another cluster's object follows.
                self.owed_later.remove(key);
            }
            // Three cases excuse a missing ADDED event for the other cluster's object:
            // - The client has received changes that its version does not cover, so the stream repeats them. At this
            //   point of the stream, the other cluster's object may not exist.
            // - The other cluster's object was deleted, and the client has already received the deletion.
            // - The client's version covers a whole revision, of which the router's log contains only a part. The log
            //   omits objects that no longer exist, because the missing changes of the revision may have deleted them.
            let may_be_deleted = |other: &String| {
                let has = self.version.as_ref().and_then(|version| version.get(other));
                let has_shared =
                    |own: &History| has.is_some_and(|has| has.part.is_none() && own.deletes_at(has.revision));
                let is_gone = |own: &History| {
                    own.now(&self.selection).get(key) != self.objects.get(&(other.clone(), key.to_owned()))
                };
                truth.history(other).is_ok_and(|own| has_shared(own) && is_gone(own))
            };
            let is_doubtful = |other: &String| self.may_repeat.contains(other) || may_be_deleted(other);
            let certain = others().any(|(other, _)| !is_doubtful(other));
            if !certain && others().next().is_some() {
                self.owed_later.insert(key.to_owned());
            }
            let mut repeated = self.may_repeat.iter().filter(|other| *other != cluster);
            let perhaps = repeated.any(|other| truth.ever_had(&self.selection, other, key))
                || others().any(|(other, _)| may_be_deleted(other));
            self.perhaps_owed = (!certain && perhaps).then(|| cluster.to_owned());
            self.owed = certain.then(|| key.to_owned());
        } else {
            self.put(cluster, key, state);
        }
        Ok(())
    }

    /// Returns whether the router may send this deletion although the client's version covers it. If a router received
    /// only the first deletions of a revision before it relisted the cluster, it cannot distinguish the remaining
    /// deletions from later ones. So the router sends all of them, once in each stream.
    fn is_deleted_again(&self, history: &History, place: &(String, String), state: &State) -> bool {
        let Some(has) = self.version.as_ref().and_then(|version| version.get(&place.0)) else { return false };
        self.may_be_deleted_again.contains(place)
            && history.listed_anew.is_some_and(|listed| *has < listed.into())
            && history.deleted_behind_others(*has).contains(&(&place.1, state))
    }

    /// Applies the event after a DELETED event: the ADDED event of another cluster's object with the same name.
    fn again(&mut self, change: Change, owed: &str, place: (String, String), state: &State) -> Result<(), Lie> {
        let (cluster, key) = &place;
        if change != Change::Added || key != owed {
            return Err(Lie(format!(
                "after DELETED {owed} another cluster's was to be told, not {change:?} {place:?}"
            )));
        }
        // If the client's version does not cover the deletion of this object, the client may have received the deletion
        // and lack the object.
        let held = self.objects.get(&place);
        if held != Some(state) && !self.may_repeat.contains(cluster) {
            return Err(Lie(format!("{cluster} {key} is told again as {state:?}; the client has it as {held:?}")));
        }
        self.put(cluster, key, state);
        Ok(())
    }

    fn put(&mut self, cluster: &str, key: &str, state: &State) {
        self.objects.insert((cluster.to_owned(), key.to_owned()), state.clone());
        self.names.insert(key.to_owned(), cluster.to_owned());
        self.owed_later.remove(key);
    }

    /// Checks the integer resourceVersion of an event. The resourceVersion must be the object's own revision or, for a
    /// deletion, a revision at which the object no longer had this state.
    fn is_version(
        &self,
        truth: &Truth,
        expected: &Expectations,
        (change, cluster, key, state): (Change, &str, &str, &State),
        (of, revision): (&str, u64),
    ) -> Result<(), Lie> {
        let history = truth.history(cluster)?;
        let is_so = match change {
            Change::Added | Change::Modified => history.is_version_of(key, state, revision.into()),
            // A deletion that a relist discovers has the version before the relist. The removal of a cluster sends
            // DELETED events for objects that were not deleted. Both happen in runs without faults, too, because
            // sometimes only a relist shows that a revision is complete.
            Change::Deleted if !expected.calm || history.deletes_at(revision) => true,
            Change::Deleted => !history.is_at(&Selection::default(), key, Some(state), revision),
        };
        if of == cluster && is_so {
            return Ok(());
        }
        let states = history.of(key);
        Err(Lie(format!("{change:?} {cluster} {key} {state:?} has the version {revision} of {of}; {states}")))
    }

    /// Checks a version from the stream. The client resumes from this version later. `deleted` is the cluster of the
    /// event if the event is DELETED.
    fn takes_version(
        &mut self,
        truth: &Truth,
        expected: &Expectations,
        vector: &Vector,
        deleted: Option<&str>,
    ) -> Result<(), Lie> {
        let before = self.version.take().unwrap_or_default();
        for (cluster, revision) in vector {
            let went_back = before.get(cluster).is_some_and(|before| before > revision);
            // A DELETED event that another cluster's ADDED event must follow has the version before the deletion, even
            // if the client has already passed this version.
            let is_before_added = deleted == Some(cluster.as_str())
                && (self.owed.is_some() || self.perhaps_owed.as_ref() == Some(cluster));
            if went_back && !is_before_added && !expected.may_go_back.contains(cluster) {
                return Err(Lie(format!("the component of {cluster} went back: {before:?}, then {vector:?}")));
            }
            // A DELETED event before another cluster's ADDED event has a version that does not cover the deletion. A
            // client that is cut off between the two events has received more than its version covers.
            let is_before_it = self.owed.is_some() || self.perhaps_owed.as_ref() == Some(cluster);
            let is_exact = expected.calm && !is_before_it && !self.listed_anew.contains(cluster);
            if is_exact && !self.may_repeat.contains(cluster) {
                let exact = truth.is_cluster_state(&self.selection, &self.objects, cluster, *revision);
                // A relist needs no fault: if no bookmark shows that a revision is complete, the router relists. The
                // stream then omits states between the client's version and the relist.
                let listed = truth.history(cluster)?.listed_anew;
                let may_be_listed = |had: &Component| listed.is_some_and(|listed| *had < listed.into());
                let is_listed_anew = before.get(cluster).is_some_and(may_be_listed);
                match exact {
                    // The version covers only a part of a revision. The stream sends later deletions of the revision
                    // together with this part, so the client's objects may differ from the version.
                    Err(_) if revision.part.is_some() || is_listed_anew => {
                        self.listed_anew.insert(cluster.clone());
                    }
                    exact => exact?,
                }
            }
            if !is_exact || self.may_repeat.contains(cluster) || self.listed_anew.contains(cluster) {
                truth.is_covered(&self.selection, &self.objects, cluster, *revision)?;
            }
        }
        if let Some((cluster, key)) = self.objects.keys().find(|(cluster, _)| !vector.contains_key(cluster)) {
            return Err(Lie(format!("{vector:?} has no {cluster}, of which the client still has {key}")));
        }
        let lost = before.keys().find(|cluster| !vector.contains_key(*cluster));
        let lost = lost.filter(|lost| self.selection.wants(lost));
        if let Some(lost) = lost.filter(|lost| !expected.may_go_back.contains(*lost)) {
            return Err(Lie(format!("{vector:?} has lost {lost}")));
        }
        self.version = Some(vector.clone());
        Ok(())
    }

    /// Checks a client that identifies objects only by name: it has a name exactly if some cluster has an object with
    /// this name.
    fn names_are_complete(&self, key: &str) -> Result<(), Lie> {
        if self.owed.is_some() || self.owed_later.contains(key) {
            return Ok(());
        }
        let has = self.objects.keys().any(|(_, own)| own == key);
        if has == self.names.contains_key(key) {
            Ok(())
        } else {
            Err(Lie(format!("a client that keys by name {} {key}", if has { "lost" } else { "keeps" })))
        }
    }
}
