//! What a client of a watch has, and whether what it is told can be true. No I/O:
//! fed with events, right ones or wrong ones.

use std::collections::{BTreeMap, BTreeSet};

use crate::truth::{Component, History, Lie, Selection, State, Truth, Vector};
use crate::world::are_one_member;

/// One event of a watch, decoded.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// ADDED, MODIFIED or DELETED.
    Object { change: Change, cluster: String, key: String, state: State, version: Version },
    /// BOOKMARK; `initial_end` is the one that ends the initial events.
    Bookmark { vector: Vector, initial_end: bool },
}

/// What an object carries as its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// A composite resourceVersion.
    Vector(Vector),
    /// An integer, which names a cluster and its revision.
    Item(String, u64),
}

/// The integer of an event.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) cluster: String,
    pub(crate) revision: u64,
    /// The object's.
    key: String,
    /// Whether it was told again, behind the DELETED of another cluster's object.
    again: bool,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
}

/// What is known beforehand about the run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expectations {
    /// Nothing happens that makes a cacher list anew: then every version is exact, and nothing ever repeats.
    pub(crate) calm: bool,
    /// Clusters whose component may go down, because they are removed or restored.
    pub(crate) may_go_back: BTreeSet<String>,
}

/// The state of one client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Follower {
    pub(crate) selection: Selection,
    /// What a client has that keys by cluster and name.
    pub(crate) objects: BTreeMap<(String, String), State>,
    /// What a client has that keys by name alone: each name's cluster.
    pub(crate) names: BTreeMap<String, String>,
    /// Where it would resume; `None` before there is a state.
    pub(crate) version: Option<Vector>,
    /// The initial events of the stream are under way.
    initial: bool,
    /// A DELETED whose name another cluster still has: its ADDED has to come next.
    owed: Option<String>,
    /// Names whose object of another cluster was owed when the stream was cut: it comes with the repetition.
    owed_later: BTreeSet<String>,
    /// Clusters of which this stream may tell something that the client has already.
    may_repeat: BTreeSet<String>,
    /// Deletions that the client's version covered when this stream began and that this stream may tell once more, by
    /// cluster and key: another change of that revision came before them.
    may_be_deleted_again: BTreeSet<(String, String)>,
    /// Clusters that were listed anew while the client was at an earlier version.
    listed_anew: BTreeSet<String>,
    /// The integer of the last event, if nothing came since that says where all clusters are: what a client that takes
    /// its version from events would resume from.
    pub(crate) item: Option<Item>,
    /// The cluster of a DELETED that may carry the version before it: whoever has more than its version says of others
    /// does not know whether one of them had the name at this place.
    perhaps_owed: Option<String>,
}

impl Version {
    /// The revision of a single object, as lists and initial events show it.
    pub(crate) fn revision_of_item(&self, cluster: &str) -> Option<u64> {
        match self {
            Self::Vector(vector) => {
                let own = vector.get(cluster).filter(|own| own.part.is_none() && vector.len() == 1);
                own.map(|own| own.revision)
            }
            Self::Item(of, revision) => (of == cluster).then_some(*revision),
        }
    }
}

/// Checks that an event tells of no object more than its version says: whoever is cut behind it might go on where that
/// change was never seen alone, and keep the object for ever. A deletion may come early.
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
    /// A client that listed.
    pub(crate) fn listed(selection: Selection, objects: BTreeMap<(String, String), State>, vector: Vector) -> Self {
        let names = objects.keys().map(|(cluster, key)| (key.clone(), cluster.clone())).collect();
        Self { selection, objects, names, version: Some(vector), ..Self::default() }
    }

    /// A client whose watch begins with every object as it is.
    pub(crate) fn watching_from_nothing(selection: Selection) -> Self {
        Self { selection, initial: true, ..Self::default() }
    }

    /// A stream from the client's version begins, after another was cut. Where the client has more than its version
    /// says, some of it is told again.
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
                // Of several changes that share a revision all are told again, and in a namespace one
                // that stands alone there, too.
                Some(version) if history.is_some_of_several(*version) => false,
                Some(version) if version.part.is_some() && self.selection.namespace.is_some() => false,
                Some(version) => truth.is_cluster_state(&self.selection, &self.objects, cluster, *version).is_ok(),
                None => !self.objects.keys().any(|(own, _)| own == cluster),
            };
            // Of a version that may stand for two states nobody knows which of them is meant.
            if !exact || history.restores() > 0 {
                self.may_repeat.insert(cluster.clone());
            }
        }
    }

    /// A stream from the integer of the last event begins. It goes on at that event's place, where the client is.
    pub(crate) fn resumed_after_item(&mut self) {
        self.owed_later.extend(self.owed.take());
    }

    /// Where the client would go on: after the integer that came last, or after a vector.
    /// `None` before there is a state.
    pub(crate) fn place(&self) -> Option<Vector> {
        match &self.item {
            Some(Item { cluster, revision, .. }) => {
                self.version.is_some().then(|| [(cluster.clone(), (*revision).into())].into())
            }
            None => self.version.clone(),
        }
    }

    /// Whether the client has more of a cluster than its version says, and a restore undid that and kept the version:
    /// no router can tell it from one that has nothing more.
    pub(crate) fn is_undone(&self, truth: &Truth) -> bool {
        let mut components = self.version.iter().flatten();
        components.any(|(cluster, revision)| {
            let outlived = truth.history(cluster).is_ok_and(|history| history.outlived(revision.revision));
            outlived && truth.is_cluster_state(&self.selection, &self.objects, cluster, *revision).is_err()
        })
    }

    /// Whether another event may carry the last one's integer: one that shares its revision, or its object told again
    /// since, behind the DELETED of another cluster's. Nobody knows then which of them is meant.
    pub(crate) fn is_perhaps_another(&self, truth: &Truth) -> bool {
        let Some(Item { cluster, key, again, revision }) = &self.item else { return false };
        if truth.history(cluster).is_ok_and(|history| history.is_shared(*revision)) {
            return true;
        }
        let mut others = truth.clusters.keys().filter(|other| !are_one_member(other, cluster));
        *again || others.any(|other| truth.ever_had(&self.selection, other, key))
    }

    /// Whether the client has what there is, under all names.
    pub(crate) fn is_complete(&self) -> bool {
        !self.initial && self.owed.is_none() && self.owed_later.is_empty() && self.version.is_some()
    }

    /// Takes in an event, unless it cannot be true.
    pub(crate) fn observe(&mut self, truth: &Truth, expected: &Expectations, event: &Event) -> Result<(), Lie> {
        match event {
            Event::Bookmark { vector, initial_end } => self.bookmark(truth, expected, vector, *initial_end),
            Event::Object { change, cluster, key, state, version } if self.initial => {
                self.initial_object(truth, *change, cluster, key, state, version)
            }
            Event::Object { change, cluster, key, state, version } => {
                let again = self.owed.is_some();
                self.object(truth, expected, *change, (cluster, key), state)?;
                match version {
                    Version::Vector(vector) => {
                        is_covered(truth, (*change, cluster, key, state), vector)?;
                        self.takes_version(truth, expected, vector)?;
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
        change: Change,
        cluster: &str,
        key: &str,
        state: &State,
        version: &Version,
    ) -> Result<(), Lie> {
        if change != Change::Added {
            return Err(Lie(format!("{change:?} {cluster} {key} among the initial events")));
        }
        let revision = version.revision_of_item(cluster);
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
        self.takes_version(truth, expected, vector)
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
                // The last of the name is gone: nothing is to come in its place.
                self.owed_later.remove(key);
            }
            // Whoever has more of a cluster than its version says is told some of it again, and at this place of that
            // the other cluster's object need not have been there: its turn comes. Or one was there that it has seen
            // go. Or it has a whole revision of which the log that is read had a part, and never heard the rest: what
            // is gone by now is not told again, because the rest may have deleted it.
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

    /// Whether this deletion may be one that the client's version covers. A router that had heard only the first
    /// deletions of that revision when it listed the cluster anew finds the others gone, and cannot tell them from what
    /// was deleted later, which the client lacks: it tells all of them, in each stream once.
    fn is_deleted_again(&self, history: &History, place: &(String, String), state: &State) -> bool {
        let Some(has) = self.version.as_ref().and_then(|version| version.get(&place.0)) else { return false };
        self.may_be_deleted_again.contains(place)
            && history.listed_anew.is_some_and(|listed| *has < listed.into())
            && history.deleted_behind_others(*has).contains(&(&place.1, state))
    }

    /// Another cluster's object of a name, behind a DELETED.
    fn again(&mut self, change: Change, owed: &str, place: (String, String), state: &State) -> Result<(), Lie> {
        let (cluster, key) = &place;
        if change != Change::Added || key != owed {
            return Err(Lie(format!(
                "after DELETED {owed} another cluster's was to be told, not {change:?} {place:?}"
            )));
        }
        // Where the client has more than its version says, the object may be one that it has seen go.
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

    /// Checks the integer of an event: an object's own, or one at which it was no longer so.
    fn is_version(
        &self,
        truth: &Truth,
        expected: &Expectations,
        (change, cluster, key, state): (Change, &str, &str, &State),
        (of, revision): (&str, u64),
    ) -> Result<(), Lie> {
        let history = truth.history(cluster)?;
        let is_so = match change {
            Change::Added | Change::Modified => history.is_version_of(key, state, revision),
            // One that a list anew found gone has the version before it, and of a cluster that leaves nothing has gone.
            // Even where all is calm: of a deletion nothing but a list may say that it was all of its revision.
            Change::Deleted if !expected.calm || history.deletes_at(revision) => true,
            Change::Deleted => !history.is_at(&Selection::default(), key, Some(state), revision),
        };
        if of == cluster && is_so {
            return Ok(());
        }
        let states = history.of(key);
        Err(Lie(format!("{change:?} {cluster} {key} {state:?} has the version {revision} of {of}; {states}")))
    }

    /// Checks a version that the stream gave, and takes it as the place to resume from.
    fn takes_version(&mut self, truth: &Truth, expected: &Expectations, vector: &Vector) -> Result<(), Lie> {
        let before = self.version.take().unwrap_or_default();
        for (cluster, revision) in vector {
            let went_back = before.get(cluster).is_some_and(|before| before > revision);
            if went_back && !expected.may_go_back.contains(cluster) {
                return Err(Lie(format!("the component of {cluster} went back: {before:?}, then {vector:?}")));
            }
            // A DELETED that another cluster's ADDED is to follow carries the version before it, and who was cut there
            // has more than that version says.
            let is_before_it = self.owed.is_some() || self.perhaps_owed.as_ref() == Some(cluster);
            let is_exact = expected.calm && !is_before_it && !self.listed_anew.contains(cluster);
            if is_exact && !self.may_repeat.contains(cluster) {
                let exact = truth.is_cluster_state(&self.selection, &self.objects, cluster, *revision);
                // Nothing need have happened for that: where no bookmark says that a part was all of its revision, a
                // list does. What an object was between the client's version and the list is not told.
                let listed = truth.history(cluster)?.listed_anew;
                let may_be_listed = |had: &Component| listed.is_some_and(|listed| *had < listed.into());
                let is_listed_anew = before.get(cluster).is_some_and(may_be_listed);
                match exact {
                    // What was deleted since is told with the part.
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

    /// Whether a client that keys by name has a name exactly if some cluster has it.
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
