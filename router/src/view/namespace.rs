//! A view of one namespace, beside the view of all: for where a member forbids to read all.
//!
//! ```text
//!                    ┌─ Feed ─▶ log of all namespaces
//! cacher c1 (all) ───┤
//!                    └─ of the namespace ─▶ Feed ─┐
//! cacher c2 (all): forbidden                      ├─▶ log of the namespace
//! cacher c2 (namespace) ──────────────────▶ Feed ─┘
//! ```
//!
//! Only in the members that forbid it the namespace has a cacher of its own. The others' objects come from the cachers that hold all
//! of theirs, step by step, and are the same in memory. To readers the log of the namespace is one like any other.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tributary_apimachinery::{Change, ChangeType, ClusterName, CollectionVersion, Scope, Snapshot};
use tributary_cacher::{Cacher, Reason, Update};

use super::View;
use super::feed::Feed;
use super::quorum::Questions;

/// What a view of one namespace has of the view of all.
pub(super) struct Whole {
    /// The view of all namespaces. It is held as long as this one is.
    view: Arc<View>,
    /// Follows how its clusters stand.
    following: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Whole {
    pub(super) fn new(view: &Arc<View>) -> Self {
        Self { view: Arc::clone(view), following: Mutex::default() }
    }
}

/// What holds all of a cluster's objects, and feeds this view with those of its namespace.
#[derive(Clone)]
pub(super) struct Leader {
    pub(super) cacher: Arc<Cacher>,
    pub(super) questions: Arc<Questions>,
    pub(super) feed: Arc<Feed>,
    /// Since when what it holds may be old; now where it is not.
    pub(super) stale_since: Instant,
}

/// Where a view has a cluster's objects from.
pub(super) enum Source {
    /// A cacher of its own.
    Own,
    /// The view of all namespaces.
    Leader(Leader),
    /// The view of all namespaces, which does not know the cluster yet.
    NotYet,
}

/// The views of one namespace that are fed with a cluster's objects. Locked during each step of the cluster, so that who begins to
/// follow gets either a step or the state behind it.
#[derive(Default)]
pub(super) struct Followers {
    /// Whether there was a first complete state from the cacher that feeds them.
    synced: bool,
    feeds: Vec<(Arc<str>, Weak<Feed>)>,
}

impl Followers {
    /// Takes note that there is a complete state, and says whether anybody is to be told of it.
    pub(super) fn note_step(&mut self) -> bool {
        self.synced = true;
        self.feeds.retain(|(_, feed)| feed.strong_count() > 0);
        !self.feeds.is_empty()
    }

    /// Tells each what a step means for its namespace. `before` is how far all namespaces were before it.
    pub(super) fn tell(&self, before: CollectionVersion, step: &Update) {
        for (namespace, feed) in &self.feeds {
            if let Some(feed) = feed.upgrade() {
                feed.follow(namespace, before, step);
            }
        }
    }

    /// Those that follow.
    pub(super) fn feeds(&self) -> impl Iterator<Item = Arc<Feed>> {
        self.feeds.iter().filter_map(|(_, feed)| feed.upgrade())
    }

    /// Lets a feed follow. Gives it the state that there is: before the first one of the cacher that is what another cacher left, and for
    /// those alone that hold nothing yet. The others hold the same.
    pub(super) fn add(&mut self, namespace: &Arc<str>, feed: &Arc<Feed>, state: Option<Snapshot>) {
        if let Some(snapshot) = state.filter(|_| self.synced || !feed.holds_some()) {
            feed.follow(namespace, snapshot.resource_version(), &Update::Synced { snapshot });
        }
        self.feeds.push((Arc::clone(namespace), Arc::downgrade(feed)));
    }
}

impl View {
    /// Where this view is to have a cluster's objects from. `has_own` says that it has them from a cacher of its own by now: that is
    /// kept until the view of all namespaces is as far, though the member may be out of reach meanwhile.
    pub(super) fn source(&self, cluster: &ClusterName, has_own: bool) -> Source {
        let Some(whole) = &self.whole else { return Source::Own };
        let Some(leader) = whole.view.leader(cluster) else { return Source::NotYet };
        // Whether it forbade so from the beginning or forbids it by now.
        if leader.cacher.state().reason() == Some(&Reason::Forbidden) {
            return Source::Own;
        }
        let all = || leader.cacher.snapshot().map(|all| all.resource_version());
        // Of a revision of which a part is known here, all namespaces' may be another one.
        let own = || self.version_of(cluster).map(CollectionVersion::completed);
        if has_own && all() < own() { Source::Own } else { Source::Leader(leader) }
    }

    /// Begins with what the view of all namespaces still holds of a cluster that forbids to read all by now, until the namespace's own
    /// list is there, and says since when that may be old, if it is anything.
    pub(super) fn begin_with_held(self: &Arc<Self>, cluster: &ClusterName) -> Option<Instant> {
        let leader = self.whole()?.leader(cluster)?;
        let namespace = self.namespace.as_ref()?;
        let feed = Feed::new(self, cluster.clone(), false, true);
        leader.feed.lead(&namespace.as_str().into(), &feed);
        let log = self.log.write();
        feed.end();
        log.snapshot(cluster).map(|_| leader.stale_since)
    }

    /// Follows how the clusters of the view of all namespaces stand, until this view is dropped.
    pub(super) fn follow_whole(self: &Arc<Self>) {
        let Some(whole) = &self.whole else { return };
        let (view, mut changes) = (Arc::downgrade(self), whole.view.board.changes());
        let following = tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                let Some(view) = view.upgrade() else { break };
                view.follow_fleet();
            }
        });
        *whole.following.lock() = Some(AbortOnDropHandle::new(following));
    }

    /// The view of all namespaces, where this one is fed by it.
    pub(super) fn whole(&self) -> Option<&Arc<Self>> {
        self.whole.as_ref().map(|whole| &whole.view)
    }

    /// Whether this is the view of a namespace beside that view of all.
    pub fn is_part_of(&self, whole: &Arc<Self>) -> bool {
        self.whole.as_ref().is_some_and(|own| Arc::ptr_eq(&own.view, whole))
    }

    /// Whether this is the view of a namespace beside a view of all.
    pub fn is_part(&self) -> bool {
        self.whole.is_some()
    }
}

/// What a step of a cluster means for one namespace: none for nothing that is to be told at once.
///
/// `before` is how far all namespaces were before it, `held` the namespace's state before, and `empty` one without objects. How far the
/// cluster is is told with the next change of the namespace, with the member's bookmarks, and to who asks: in each namespace a mark for
/// every change of all would fill the memory.
pub(super) fn part(
    step: &Update,
    before: CollectionVersion,
    namespace: &str,
    held: &Snapshot,
    empty: Snapshot,
) -> Vec<Update> {
    let after = |whole: &Snapshot| {
        let mut part = empty;
        for object in whole.range(&Scope { namespace: Some(namespace), ..Scope::default() }, None) {
            part.insert(object.clone());
        }
        part.set_resource_version(whole.resource_version());
        part
    };
    vec![match step {
        Update::Synced { snapshot } => Update::Synced { snapshot: after(snapshot) },
        Update::Relisted { after: whole, .. } => Update::Relisted { before: held.clone(), after: after(whole) },
        Update::Reset { after: whole, .. } => Update::Reset { before: held.clone(), after: after(whole) },
        Update::Progress { snapshot: whole } => {
            let mut snapshot = held.clone();
            snapshot.set_resource_version(whole.resource_version());
            Update::Progress { snapshot }
        }
        Update::Changes { changes, snapshot: whole } => {
            return own_changes(changes, before, whole.resource_version(), namespace, held);
        }
    }]
}

/// The namespace's own of some changes, which lead from one version of all namespaces to another.
///
/// Where deletions of other namespaces share the revision of an own one, those that came before it count with it, as in the log of all:
/// so many mean the same to both, and to other replicas.
fn own_changes(
    changes: &[Change],
    before: CollectionVersion,
    after: CollectionVersion,
    namespace: &str,
    held: &Snapshot,
) -> Vec<Update> {
    let (mut steps, mut own, mut snapshot, mut known) = (Vec::new(), Vec::new(), held.clone(), before);
    for change in changes {
        let all = known;
        known = all.after(change);
        if change.object.namespace() != namespace {
            continue;
        }
        if all.is_part() && all.revision() == change.resource_version() && all > snapshot.resource_version() {
            if !own.is_empty() {
                steps.push(Update::Changes { changes: std::mem::take(&mut own), snapshot: snapshot.clone() });
            }
            snapshot.set_resource_version(all);
            steps.push(Update::Progress { snapshot: snapshot.clone() });
        }
        match change.change_type {
            ChangeType::Deleted => drop(snapshot.remove(change.object.key().as_str())),
            ChangeType::Added | ChangeType::Modified => drop(snapshot.insert(change.object.clone())),
        }
        snapshot.set_resource_version(snapshot.resource_version().after(change));
        own.push(change.clone());
    }
    if !own.is_empty() {
        snapshot.set_resource_version(after);
        steps.push(Update::Changes { changes: own, snapshot });
    }
    steps
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::{Object, ObjectDecoder, ResourceVersion};

    use super::*;

    /// An object from `namespace/name version`.
    fn object(text: &str) -> Arc<Object> {
        let (key, version) = text.split_once(' ').unwrap();
        let (namespace, name) = key.split_once('/').unwrap();
        let json = format!(
            r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"{key}","resourceVersion":"{version}"}}}}"#
        );
        Arc::new(ObjectDecoder::new("v1", "Pod", [].into()).decode(json.as_bytes()).unwrap())
    }

    fn snapshot(version: u64, objects: &[&str]) -> Snapshot {
        let mut snapshot: Snapshot = objects.iter().map(|text| object(text)).collect();
        snapshot.set_resource_version(ResourceVersion(version));
        snapshot
    }

    fn shown(snapshot: &Snapshot) -> String {
        let objects = snapshot.iter().map(|object| format!("{}@{}", object.key().as_str(), object.resource_version()));
        format!("{}: {}", snapshot.resource_version(), objects.collect::<Vec<_>>().join(" "))
    }

    fn parts_of(step: &Update, before: &str, held: &Snapshot) -> Vec<Update> {
        part(step, CollectionVersion::parse(before).unwrap(), "n", held, Snapshot::default())
    }

    /// The one step that it makes, if any.
    fn part_of(step: &Update, held: &Snapshot) -> Option<Update> {
        let mut steps = parts_of(step, "5", held);
        assert!(steps.len() < 2, "{steps:?}");
        steps.pop()
    }

    #[test]
    fn a_state_is_shared_object_by_object() {
        let whole = snapshot(9, &["m/x 1", "n/a 2", "n/b 3", "n-b/a 4", "o/x 5"]);
        let held = snapshot(5, &["n/a 2"]);
        for step in [
            Update::Synced { snapshot: whole.clone() },
            Update::Relisted { before: Snapshot::default(), after: whole.clone() },
            Update::Reset { before: Snapshot::default(), after: whole.clone() },
        ] {
            let own = part_of(&step, &held).unwrap();
            assert_eq!(std::mem::discriminant(&own), std::mem::discriminant(&step));
            assert_eq!(shown(own.snapshot()), "9: n/a@2 n/b@3");
            assert!(Arc::ptr_eq(own.snapshot().get("n/a").unwrap(), whole.get("n/a").unwrap()), "not held twice");
        }
        let version = whole.resource_version();
        let empty = part(&Update::Synced { snapshot: whole }, version, "nobody", &held, Snapshot::default());
        assert_eq!(shown(empty[0].snapshot()), "9: ");
    }

    #[test]
    fn of_changes_the_namespaces_own_are_told_in_their_order() {
        let held = snapshot(5, &["n/a 2", "n/b 3"]);
        let change = |change_type, text: &str| {
            let object = object(text);
            let previous = held.get(object.key().as_str()).cloned();
            Change { change_type, object, previous }
        };
        let changes = vec![
            change(ChangeType::Added, "m/x 6"),
            change(ChangeType::Deleted, "n/a 7"),
            change(ChangeType::Modified, "n/b 8"),
            change(ChangeType::Added, "n/c 9"),
            change(ChangeType::Deleted, "o/x 10"),
        ];
        let step = Update::Changes { changes, snapshot: snapshot(11, &[]) };
        let Some(Update::Changes { changes, snapshot: after }) = part_of(&step, &held) else { panic!("no changes") };
        let told: Vec<_> = changes.iter().map(|change| change.object.key().as_str()).collect();
        assert_eq!(told, ["n/a", "n/b", "n/c"]);
        assert_eq!(shown(&after), "11: n/b@8 n/c@9");
        let elsewhere = vec![change(ChangeType::Added, "m/y 12")];
        assert!(part_of(&Update::Changes { changes: elsewhere, snapshot: snapshot(12, &[]) }, &held).is_none());
        let progress = part_of(&Update::Progress { snapshot: snapshot(12, &["m/y 12"]) }, &after).unwrap();
        assert_eq!(shown(progress.snapshot()), "12: n/b@8 n/c@9");
    }

    #[test]
    fn deletions_of_other_namespaces_at_the_same_revision_are_counted() {
        let held = snapshot(5, &["n/a 2", "n/b 3"]);
        let deleted = |text: &str| Change { change_type: ChangeType::Deleted, object: object(text), previous: None };
        let steps = |before: &str, after: &str, texts: &[&str]| -> Vec<String> {
            let mut whole = Snapshot::default();
            whole.set_resource_version(CollectionVersion::parse(after).unwrap());
            let step = Update::Changes { changes: texts.iter().map(|text| deleted(text)).collect(), snapshot: whole };
            parts_of(&step, before, &held).iter().map(|step| shown(step.snapshot())).collect()
        };
        assert_eq!(steps("5", "7-1", &["m/x 7"]), [""; 0]);
        assert_eq!(steps("7-1", "7-2", &["n/a 7"]), ["7-1: n/a@2 n/b@3", "7-2: n/b@3"]);
        assert_eq!(steps("5", "7-2", &["n/a 7", "n/b 7"]), ["7-2: "]);
        let between = steps("6-3", "8-1", &["n/a 7", "m/x 7", "m/y 7", "n/b 7", "m/z 8"]);
        assert_eq!(between, ["7-1: n/b@3", "7-3: n/b@3", "8-1: "]);
    }
}
