//! The true histories of the members: every state of every object, and the states that a version may stand for.
//!
//! The history of a member is a sequence of *steps*, one for each change of an object and for each restore. An *era* is
//! the time between two restores. A revision stands for one step in each era, so after a restore it may stand for two
//! steps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tributary_simulator::compact;

/// A decoded composite version: cluster → component.
pub(crate) type Vector = BTreeMap<String, Component>;

/// A component of a composite version. It covers all changes up to the end of the revision or, with `part`, all earlier
/// revisions and the first `part` changes of this revision.
#[derive(Clone, Copy)]
pub(crate) struct Component {
    pub(crate) revision: u64,
    /// Number of covered changes of the revision; `None` for all of them.
    pub(crate) part: Option<usize>,
    /// The cluster of the component. Comparisons of components ignore this field.
    of: Of,
    /// Whether `of` may be the wrong cluster.
    pub(crate) is_doubtful: bool,
}

/// The cluster of a component, among the successive clusters that had one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// The cluster is unknown, because the version is an integer.
    Any,
    /// The first cluster with this name. Its versions have no mark.
    First,
    Marked(u32),
}

impl PartialEq for Component {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Component {}

impl From<u64> for Component {
    fn from(revision: u64) -> Self {
        Self { revision, part: None, of: Of::Any, is_doubtful: false }
    }
}

impl Ord for Component {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let place = |own: &Self| (own.revision, own.part.unwrap_or(usize::MAX));
        place(self).cmp(&place(other))
    }
}

impl PartialOrd for Component {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Component {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (text, of) = match text.split_once('@') {
            None => (text, Of::First),
            Some((text, mark)) => (text, Of::Marked(u32::from_str_radix(mark, 16).ok()?)),
        };
        let (revision, part) = text.split_once('-').map_or((text, None), |(revision, part)| (revision, Some(part)));
        let part = part.map(str::parse).transpose().ok()?;
        Some(Self { revision: revision.parse().ok()?, part, of, is_doubtful: false })
    }

    pub(crate) fn marked(self) -> String {
        match self.of {
            Of::Marked(mark) => format!("{self}@{mark:08x}"),
            Of::Any | Of::First => self.to_string(),
        }
    }

    /// Returns whether two versions of one cluster name have the same mark, so are from the same cluster.
    pub(crate) fn is_of_cluster_of(self, other: Self) -> bool {
        self.of == other.of
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            None => write!(f, "{}", self.revision),
            Some(part) => write!(f, "{}-{part}", self.revision),
        }
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.marked())
    }
}

/// The identity of one state of one object. Every write sets a unique value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) uid: String,
    pub(crate) value: String,
    pub(crate) color: String,
    pub(crate) service_type: String,
}

/// The selectors of a client, which determine its objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) namespace: Option<String>,
    pub(crate) color: Option<String>,
    pub(crate) service_type: Option<String>,
    pub(crate) name: Option<String>,
    /// The restriction to clusters by the label `tributary.dev/cluster`.
    pub(crate) clusters: Option<Clusters>,
}

#[derive(Clone, Debug)]
pub(crate) struct Clusters {
    /// `true` for the operator `in`, `false` for `notin`.
    pub(crate) among: bool,
    pub(crate) names: Vec<String>,
}

/// The states of an object, each with the step at which it began.
type States = Vec<(usize, Option<State>)>;

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    objects: BTreeMap<String, States>,
    /// The eras in order. Each era continues the numbers of the steps.
    eras: Vec<Era>,
    /// For each of the successive clusters that were the member: the uid of its namespace kube-system.
    uids: Vec<String>,
    next: usize,
    /// The highest revision at which a router relisted the member. The first list of each router is no relist.
    pub(crate) listed_anew: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Era {
    /// Index of the era's cluster in `History::uids`.
    cluster: usize,
    /// The first revision of the era. Versions up to this revision also belong to the previous era.
    base: u64,
    first: usize,
    steps: Vec<(u64, usize)>,
    /// The last revision of the era; `None` for the current era.
    end: Option<u64>,
}

/// The histories of all members, by cluster name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    pub(crate) clusters: BTreeMap<String, History>,
}

/// An error of the checks: a router has sent false data to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lie(pub(crate) String);

impl std::error::Error for Lie {}

impl fmt::Display for Lie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Selection {
    pub(crate) fn wants(&self, cluster: &str) -> bool {
        let is_named = |Clusters { among, names }: &Clusters| names.iter().any(|name| name == cluster) == *among;
        self.clusters.as_ref().is_none_or(is_named)
    }

    /// Returns whether the client selects an object in this state, if it selects the object's cluster.
    pub(crate) fn matches(&self, key: &str, state: &State) -> bool {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let is = |wanted: &Option<String>, own: &str| wanted.as_deref().is_none_or(|wanted| wanted == own);
        is(&self.namespace, namespace)
            && is(&self.color, &state.color)
            && is(&self.service_type, &state.service_type)
            && is(&self.name, name)
    }

    fn of<'a>(&self, key: &str, state: Option<&'a State>) -> Option<&'a State> {
        state.filter(|state| self.matches(key, state))
    }
}

impl History {
    /// Creates the history of a member without objects at this revision.
    pub(crate) fn new(base: u64, uid: &str) -> Self {
        let era = Era { base, ..Era::default() };
        Self { objects: BTreeMap::new(), eras: vec![era], uids: vec![uid.to_owned()], next: 1, listed_anew: None }
    }

    pub(crate) fn changed(&mut self, revision: u64, key: &str, state: Option<State>) {
        let step = self.step();
        self.objects.entry(key.to_owned()).or_default().push((step, state));
        if let Some(era) = self.eras.last_mut() {
            era.steps.push((revision, step));
        }
    }

    pub(crate) fn restored(&mut self, from: u64, revision: u64) {
        let at = self.step_of(revision, self.eras.len() - 1);
        let step = self.step();
        for states in self.objects.values_mut() {
            let then = state_at(states, at).cloned();
            if states.last().and_then(|(_, state)| state.as_ref()) != then.as_ref() {
                states.push((step, then));
            }
        }
        if let Some(era) = self.eras.last_mut() {
            era.end = Some(from);
        }
        let cluster = self.uids.len() - 1;
        self.eras.push(Era { cluster, base: revision, first: step, steps: Vec::new(), end: None });
    }

    /// Replaces the cluster by another cluster without objects. `from` is the last revision of the replaced cluster.
    pub(crate) fn replaced(&mut self, from: u64, uid: String) {
        let step = self.step();
        for states in self.objects.values_mut() {
            states.push((step, None));
        }
        if let Some(era) = self.eras.last_mut() {
            era.end = Some(from);
        }
        self.eras.push(Era { cluster: self.uids.len(), first: step, ..Era::default() });
        self.uids.push(uid);
    }

    /// Returns the number of replacements before the cluster of a version. Returns `None` if the version may belong to
    /// any cluster: a router sends revision 0 for a cluster that is about to leave, and the mark of an empty uid for a
    /// cluster that reports no uid.
    pub(crate) fn cluster_of(&self, Component { revision, of, is_doubtful, .. }: Component) -> Option<usize> {
        match of {
            _ if self.replacements() == 0 || revision == 0 || is_doubtful => None,
            Of::Any => None,
            Of::First => Some(0),
            Of::Marked(mark) if mark == compact::mark("") => None,
            // A mark that matches no uid belongs to a cluster that never existed.
            Of::Marked(mark) => {
                Some(self.uids.iter().position(|uid| compact::mark(uid) == mark).unwrap_or(self.uids.len()))
            }
        }
    }

    /// Returns the number of replacements before the cluster that had an object in this state.
    pub(crate) fn cluster_of_state(&self, key: &str, state: &State) -> Option<usize> {
        let step = self.step_in(key, state)?;
        self.eras.iter().rev().find(|era| era.first <= step).map(|era| era.cluster)
    }

    pub(crate) fn uid_of(&self, version: Component) -> Option<&String> {
        self.uids.get(self.cluster_of(version)?)
    }

    fn step(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    pub(crate) fn latest(&self) -> u64 {
        let era = self.eras.last();
        era.map_or(0, |era| era.steps.last().map_or(era.base, |(revision, _)| *revision))
    }

    /// Returns whether a change at exactly this revision put an object into this state.
    pub(crate) fn is_version_of(&self, key: &str, state: &State, version: Component) -> bool {
        let states = self.objects.get(key).into_iter().flatten();
        let mut began = states.filter(|(_, own)| own.as_ref() == Some(state)).map(|(step, _)| *step);
        let revision = version.revision;
        began.any(|step| self.eras_of(version).any(|(_, era)| era.steps.contains(&(revision, step))))
    }

    /// Returns the eras to which a version may belong.
    fn eras_of(&self, version: Component) -> impl Iterator<Item = (usize, &Era)> {
        let cluster = self.cluster_of(version);
        self.eras.iter().enumerate().filter(move |(_, era)| cluster.is_none_or(|cluster| cluster == era.cluster))
    }

    pub(crate) fn replacements(&self) -> usize {
        self.uids.len() - 1
    }

    pub(crate) fn restores(&self) -> usize {
        self.eras.len() - self.uids.len()
    }

    /// Returns whether a version is older than the last restore and was not undone.
    pub(crate) fn outlived(&self, revision: u64) -> bool {
        self.restores() > 0 && self.eras.last().is_some_and(|era| revision <= era.base)
    }

    /// Returns whether a restore has undone a version. A later change may then reuse the revision for another state.
    fn is_of_either_era(&self, revision: u64) -> bool {
        let Some((last, earlier)) = self.eras.split_last() else { return false };
        let mut earlier = earlier.iter().filter(|era| era.cluster == last.cluster);
        revision > last.base && earlier.any(|era| era.end.is_some_and(|end| revision <= end))
    }

    fn step_of(&self, revision: u64, era: usize) -> usize {
        let Era { base, first, steps, .. } = &self.eras[era];
        if era > 0 && revision < *base {
            return self.step_of(revision, era - 1);
        }
        steps[..steps.partition_point(|(own, _)| *own <= revision)].last().map_or(*first, |(_, step)| *step)
    }

    /// Returns the steps of one revision in an era, in order. A transaction has several steps.
    fn steps_at(&self, revision: u64, era: usize) -> Vec<usize> {
        let Era { base, steps, .. } = &self.eras[era];
        if era > 0 && revision < *base {
            return self.steps_at(revision, era - 1);
        }
        steps.iter().filter(|(own, _)| *own == revision).map(|(_, step)| *step).collect()
    }

    /// Returns the step that a version stands for in an era.
    fn step_of_version(&self, Component { revision, part, .. }: Component, era: usize) -> usize {
        let before = || self.step_of(revision.saturating_sub(1), era);
        match part {
            None => self.step_of(revision, era),
            Some(0) => before(),
            Some(part) => self.steps_at(revision, era).get(part - 1).copied().unwrap_or_else(before),
        }
    }

    /// Returns the steps of the history that a version may stand for, in order.
    fn steps_of(&self, version: Component) -> Vec<usize> {
        let eras = self.eras_of(version).filter(|(_, era)| era.end.is_none_or(|end| version.revision <= end));
        let mut steps: Vec<_> = eras.map(|(era, _)| self.step_of_version(version, era)).collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// Returns the part of a version whose changes a router does not send again to a client that resumes. If the
    /// version covers only a part of a revision, the router may repeat all changes of this part except the first.
    fn promised(version: Component) -> Component {
        Component { part: version.part.map(|part| part.min(1)), ..version }
    }

    pub(crate) fn is_shared(&self, revision: u64) -> bool {
        (0..self.eras.len()).any(|era| self.steps_at(revision, era).len() > 1)
    }

    fn is_deletion(&self, step: usize) -> bool {
        self.objects.values().flatten().any(|(own, state)| *own == step && state.is_none())
    }

    /// Returns whether a change of this revision is a deletion.
    pub(crate) fn deletes_at(&self, revision: u64) -> bool {
        (0..self.eras.len()).any(|era| self.steps_at(revision, era).into_iter().any(|step| self.is_deletion(step)))
    }

    /// Returns the last states of objects whose deletion is in the version's revision, but not as its first change. The
    /// result is empty if the version covers only a part of the revision, because routers may always repeat these
    /// deletions.
    pub(crate) fn deleted_behind_others(&self, version: Component) -> Vec<(&String, &State)> {
        if version.part.is_some() {
            return Vec::new();
        }
        let eras = self.eras_of(version);
        let steps: BTreeSet<_> =
            eras.flat_map(|(era, _)| self.steps_at(version.revision, era).into_iter().skip(1)).collect();
        let pairs = self.objects.iter().flat_map(|(key, states)| states.windows(2).map(move |pair| (key, pair)));
        let deleted = pairs.filter_map(|(key, pair)| match pair {
            [(_, Some(last)), (step, None)] if steps.contains(step) => Some((key, last)),
            _ => None,
        });
        deleted.collect()
    }

    pub(crate) fn shares_revisions(&self) -> bool {
        self.eras.iter().any(|era| era.steps.windows(2).any(|pair| pair[0].0 == pair[1].0))
    }

    /// Returns whether a version covers only a part of a revision with several changes.
    pub(crate) fn is_some_of_several(&self, version: Component) -> bool {
        version.part.is_some() && self.is_shared(version.revision)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        self.objects.keys()
    }

    /// Returns the selected objects in their current state.
    pub(crate) fn now(&self, selection: &Selection) -> BTreeMap<String, State> {
        let states = self.objects.iter().filter_map(|(key, states)| {
            let state = selection.of(key, states.last()?.1.as_ref())?;
            Some((key.clone(), state.clone()))
        });
        states.collect()
    }

    /// Returns whether `shown` is exactly an object's state at a version.
    pub(crate) fn is_at(
        &self,
        selection: &Selection,
        key: &str,
        shown: Option<&State>,
        version: impl Into<Component>,
    ) -> bool {
        let states = self.objects.get(key);
        let then = |step| selection.of(key, states.and_then(|states| state_at(states, step)));
        let version = version.into();
        let in_namespace = selection.namespace.iter().flat_map(|namespace| self.steps_in(namespace, version));
        self.steps_of(version).into_iter().chain(in_namespace).any(|step| then(step) == shown)
    }

    /// Returns the steps that a version in the middle of a revision may stand for in the view of one namespace. This
    /// view counts only changes in the namespace.
    fn steps_in(&self, namespace: &str, version: Component) -> Vec<usize> {
        let Some(at) = version.part.and_then(|part| part.checked_sub(1)) else { return Vec::new() };
        let of_it = self.objects.iter().filter(|(key, _)| key.split('/').next() == Some(namespace));
        let own: BTreeSet<usize> = of_it.flat_map(|(_, states)| states.iter().map(|(step, _)| *step)).collect();
        let steps = self.eras_of(version).map(|(era, _)| self.steps_at(version.revision, era));
        steps.filter_map(|steps| steps.into_iter().filter(|step| own.contains(step)).nth(at)).collect()
    }

    /// Returns whether a client that has the state `shown` of an object, and resumes from `version`, receives the
    /// current state. The client may already have received later changes, which the stream repeats if the version does
    /// not guarantee them. The stream never repeats a guaranteed change. After a relist, the stream may omit a change
    /// that the version covers, if it sends a later change.
    pub(crate) fn is_resumable(
        &self,
        selection: &Selection,
        key: &str,
        shown: Option<&State>,
        version: Component,
    ) -> bool {
        let Some(states) = self.objects.get(key) else { return shown.is_none() };
        let now = selection.of(key, states.last().and_then(|(_, state)| state.as_ref()));
        self.steps_of(Self::promised(version)).into_iter().any(|step| {
            let mut before = selection.of(key, state_at(states, step));
            let mut has = shown;
            for (_, state) in states.iter().filter(|(own, _)| *own > step) {
                let after = selection.of(key, state.as_ref());
                // The stream omits a change between two states that the client does not select.
                if before.is_some() || after.is_some() {
                    has = after;
                }
                before = after;
            }
            has == now
        })
    }

    /// Returns whether an object was in this state at a version or earlier.
    pub(crate) fn is_by(&self, key: &str, state: &State, version: Component) -> bool {
        let Some(began) = self
            .objects
            .get(key)
            .and_then(|states| states.iter().find(|(_, own)| own.as_ref() == Some(state)).map(|(step, _)| *step))
        else {
            return false;
        };
        self.steps_of(version).into_iter().any(|step| began <= step)
    }

    pub(crate) fn last_step(&self) -> usize {
        self.next - 1
    }

    /// Returns whether an object has existed without interruption since a step.
    pub(crate) fn has_had_since(&self, key: &str, step: usize) -> bool {
        self.since(key, step).is_some_and(|mut states| states.all(|state| state.is_some()))
    }

    /// Returns whether an object has existed without interruption since a version, for each step that the version may
    /// stand for.
    pub(crate) fn has_had_since_version(&self, key: &str, version: Component) -> bool {
        self.steps_of(version).into_iter().all(|step| self.has_had_since(key, step))
    }

    pub(crate) fn had_since(&self, key: &str, step: usize) -> bool {
        self.since(key, step).is_some_and(|mut states| states.any(|state| state.is_some()))
    }

    /// Returns whether an object existed at a version or later.
    pub(crate) fn had_since_version(&self, key: &str, version: Component) -> bool {
        self.steps_of(version).into_iter().any(|step| self.had_since(key, step))
    }

    /// Returns an object's state at a step and its later states, or `None` if the object never existed.
    fn since(&self, key: &str, step: usize) -> Option<impl Iterator<Item = Option<&State>>> {
        let states = self.objects.get(key)?;
        let after = states.iter().filter(move |(own, _)| *own > step).map(|(_, state)| state.as_ref());
        Some(std::iter::once(state_at(states, step)).chain(after))
    }

    pub(crate) fn state(&self, key: &str) -> Option<&State> {
        self.objects.get(key)?.last()?.1.as_ref()
    }

    /// Returns the last step that put an object into this state.
    pub(crate) fn step_in(&self, key: &str, state: &State) -> Option<usize> {
        let states = self.objects.get(key)?.iter().rev();
        states.filter(|(_, own)| own.as_ref() == Some(state)).map(|(step, _)| *step).next()
    }
}

fn state_at(states: &States, step: usize) -> Option<&State> {
    states[..states.partition_point(|(own, _)| *own <= step)].last()?.1.as_ref()
}

impl Truth {
    /// Returns whether a restore of a cluster has undone the cluster's component in a composite version. A later change
    /// may then reuse the revision for another state.
    pub(crate) fn is_of_either_era(&self, vector: &Vector) -> bool {
        let mut components = vector.iter();
        components.any(|(cluster, component)| {
            self.history(cluster).is_ok_and(|history| history.is_of_either_era(component.revision))
        })
    }

    /// Checks that the objects of a list or of initial events are exactly the state at a composite version.
    pub(crate) fn is_state(
        &self,
        selection: &Selection,
        objects: &BTreeMap<(String, String), State>,
        vector: &Vector,
    ) -> Result<(), Lie> {
        if let Some(((cluster, key), _)) = objects.iter().find(|((cluster, _), _)| !vector.contains_key(cluster)) {
            return Err(Lie(format!("{cluster} {key} is shown, but the version {vector:?} has no such cluster")));
        }
        for (cluster, revision) in vector {
            self.is_cluster_state(selection, objects, cluster, *revision)?;
        }
        Ok(())
    }

    /// Checks that these objects are exactly the state at a composite version, without the objects up to `after` in the
    /// order of cluster name and key.
    pub(crate) fn is_state_after(
        &self,
        selection: &Selection,
        objects: &BTreeMap<(String, String), State>,
        vector: &Vector,
        after: &(String, String),
    ) -> Result<(), Lie> {
        if let Some((place, _)) = objects.iter().find(|(place, _)| *place <= after) {
            return Err(Lie(format!("{place:?} is shown after {after:?}")));
        }
        for (cluster, revision) in vector.iter().filter(|(cluster, _)| **cluster >= after.0) {
            self.are_at(selection, objects, cluster, *revision, |key| (cluster, key) > (&after.0, &after.1))?;
        }
        let unknown = objects.keys().find(|(cluster, _)| !vector.contains_key(cluster));
        unknown.map_or(Ok(()), |place| Err(Lie(format!("{place:?} is shown, but {vector:?} has no such cluster"))))
    }

    /// Checks the objects of one cluster in a collection against the state at a version.
    pub(crate) fn is_cluster_state(
        &self,
        selection: &Selection,
        objects: &BTreeMap<(String, String), State>,
        cluster: &str,
        revision: Component,
    ) -> Result<(), Lie> {
        self.are_at(selection, objects, cluster, revision, |_| true)
    }

    fn are_at(
        &self,
        selection: &Selection,
        objects: &BTreeMap<(String, String), State>,
        cluster: &str,
        revision: Component,
        looked_at: impl Fn(&String) -> bool,
    ) -> Result<(), Lie> {
        let history = self.history(cluster)?;
        let mut own = objects.iter().filter(|((of, _), _)| of == cluster).map(|((_, key), _)| key);
        if !selection.wants(cluster) {
            return own.next().map_or(Ok(()), |key| Err(Lie(format!("{cluster} {key} is not what was selected"))));
        }
        for key in history.keys().chain(own).filter(|key| looked_at(key)) {
            let shown = objects.get(&(cluster.to_owned(), key.clone()));
            if !history.is_at(selection, key, shown, revision) {
                return Err(Lie(format!("{cluster} {key} at {revision} is shown as {shown:?}; {}", history.of(key))));
            }
        }
        Ok(())
    }

    /// Checks that a version of one cluster covers no change that the client lacks.
    pub(crate) fn is_covered(
        &self,
        selection: &Selection,
        objects: &BTreeMap<(String, String), State>,
        cluster: &str,
        revision: Component,
    ) -> Result<(), Lie> {
        let history = self.history(cluster)?;
        if !selection.wants(cluster) {
            return self.is_cluster_state(selection, objects, cluster, revision);
        }
        for key in history.keys() {
            let shown = objects.get(&(cluster.to_owned(), key.clone()));
            if !history.is_resumable(selection, key, shown, revision) {
                let states = history.of(key);
                return Err(Lie(format!("the version covers {cluster} {revision}, but {key} is {shown:?}; {states}")));
            }
        }
        Ok(())
    }

    /// Returns whether a cluster ever had a selected object with this key.
    pub(crate) fn ever_had(&self, selection: &Selection, cluster: &str, key: &str) -> bool {
        let states = self.clusters.get(cluster).and_then(|history| history.objects.get(key));
        selection.wants(cluster)
            && states.into_iter().flatten().any(|(_, state)| selection.of(key, state.as_ref()).is_some())
    }

    /// Sets `is_doubtful` in the components of clusters that were replaced since the request began. `since` contains
    /// the number of replacements of each cluster before the request. A watch, or a list that waits, may combine the
    /// marks and objects of the earlier and the new cluster, so such a component identifies neither cluster.
    pub(crate) fn doubts(&self, since: &BTreeMap<String, usize>, vector: &mut Vector) {
        for (name, component) in vector {
            let replacements = self.history(name).map_or(0, History::replacements);
            component.is_doubtful = since.get(name).copied().unwrap_or_default() < replacements;
        }
    }

    pub(crate) fn history(&self, cluster: &str) -> Result<&History, Lie> {
        self.clusters.get(cluster).ok_or_else(|| Lie(format!("there is no cluster {cluster:?}")))
    }
}

impl History {
    /// Formats the states of an object, for messages.
    pub(crate) fn of(&self, key: &str) -> String {
        let revision = |step: usize| {
            let mut all = self.eras.iter().flat_map(|era| &era.steps);
            all.find(|(_, own)| *own == step).map_or("restored".to_owned(), |(revision, _)| revision.to_string())
        };
        let states = self.objects.get(key).into_iter().flatten();
        let texts = states.map(|(step, state)| {
            format!("{}: {}", revision(*step), state.as_ref().map_or("gone".to_owned(), |state| format!("{state:?}")))
        });
        format!("its states: [{}]", texts.collect::<Vec<_>>().join("; "))
    }
}
