//! Transfer of updates from the four RBAC cachers of a cluster to the compiled rights.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tributary_apimachinery::{Change, ChangeType, ClusterName, Object, Snapshot};
use tributary_authorization::{RbacChange, RbacKind, RbacObject};
use tributary_cacher::{Update, UpdateObserver};

use super::compiled::CompiledRights;

/// Maximum number of log lines about unreadable objects of a cluster.
const LOGGED_MAX: u64 = 10;

/// Receives the updates of all four RBAC cachers of one cluster.
pub(super) struct MirrorFeed {
    compiled: Arc<CompiledRights>,
    cluster: ClusterName,
    progress: Mutex<Progress>,
    skipped: AtomicU64,
}

enum Progress {
    /// At least one of the four collections has not been read. The feed stores the others, because rights from a part
    /// of the collections would be wrong.
    Reading(Box<[Option<Snapshot>; RbacKind::ALL.len()]>),
    /// All collections have been read. Each update is applied to the compiled rights immediately.
    Following,
    /// A newer feed replaces this feed, or the cluster has left the fleet.
    Ended,
}

pub(super) struct KindFeed {
    feed: Weak<MirrorFeed>,
    kind: RbacKind,
}

impl MirrorFeed {
    pub(super) fn new(compiled: &Arc<CompiledRights>, cluster: ClusterName) -> Arc<Self> {
        let progress = Mutex::new(Progress::Reading(Box::default()));
        Arc::new(Self { compiled: Arc::clone(compiled), cluster, progress, skipped: AtomicU64::new(0) })
    }

    pub(super) fn for_kind(self: &Arc<Self>, kind: RbacKind) -> Arc<KindFeed> {
        Arc::new(KindFeed { feed: Arc::downgrade(self), kind })
    }

    pub(super) fn is_following(&self) -> bool {
        matches!(*self.progress.lock(), Progress::Following)
    }

    pub(super) fn end(&self) {
        *self.progress.lock() = Progress::Ended;
    }

    fn apply_update(&self, kind: RbacKind, update: Update) {
        let mut progress = self.progress.lock();
        match &mut *progress {
            Progress::Ended => {}
            Progress::Following => self.follow(kind, update),
            Progress::Reading(read) => {
                for (_, state) in RbacKind::ALL.into_iter().zip(&mut **read).filter(|(own, _)| *own == kind) {
                    read_on(state, &update);
                }
                if read.iter().all(Option::is_some) {
                    let kinds = RbacKind::ALL.into_iter().zip(read.iter().flatten());
                    let objects = kinds.flat_map(|(kind, all)| all.iter().map(move |object| (kind, object)));
                    let objects = objects.filter_map(|(kind, object)| self.read(kind, object)).collect();
                    self.compiled.replace(&self.cluster, objects);
                    *progress = Progress::Following;
                }
            }
        }
    }

    fn follow(&self, kind: RbacKind, update: Update) {
        match update {
            Update::Progress { .. } => {}
            Update::Changes { changes, .. } => {
                let changes = changes.iter().map(|change| self.changed(kind, change)).collect();
                self.compiled.apply(&self.cluster, changes);
            }
            Update::Synced { snapshot: all }
            | Update::Relisted { after: all, .. }
            | Update::Reset { after: all, .. } => {
                let objects = all.iter().filter_map(|object| self.read(kind, object)).collect();
                self.compiled.replace_kind(&self.cluster, kind, objects);
            }
        }
    }

    fn changed(&self, kind: RbacKind, change: &Change) -> RbacChange {
        match change.change_type {
            ChangeType::Deleted => deletion(kind, &change.object),
            ChangeType::Added | ChangeType::Modified => self.put(kind, &change.object),
        }
    }

    fn put(&self, kind: RbacKind, object: &Object) -> RbacChange {
        self.read(kind, object).map_or_else(|| deletion(kind, object), RbacChange::Put)
    }

    /// Parses an RBAC object. Counts and skips an object that cannot be parsed, so this object grants nothing.
    fn read(&self, kind: RbacKind, object: &Object) -> Option<RbacObject> {
        match RbacObject::parse(kind, object.json()) {
            Ok(read) => Some(read),
            Err(error) => {
                if self.skipped.fetch_add(1, Ordering::Relaxed) < LOGGED_MAX {
                    let (namespace, name) = (object.namespace(), object.name());
                    tracing::warn!(cluster = %self.cluster, %kind, namespace, name, %error,
                        "an RBAC object of the cluster cannot be read, and is ignored");
                }
                None
            }
        }
    }
}

/// Applies an update to the snapshot of a collection before the compiled rights use it. The feed stores the snapshots,
/// because the cachers of roles and bindings store no objects.
fn read_on(state: &mut Option<Snapshot>, update: &Update) {
    match (state, update) {
        (Some(state), Update::Changes { changes, .. }) => {
            for change in changes {
                match change.change_type {
                    ChangeType::Deleted => drop(state.remove(change.object.key().as_str())),
                    ChangeType::Added | ChangeType::Modified => drop(state.insert(Arc::clone(&change.object))),
                }
            }
        }
        // Changes before the first complete state are skipped, because the complete state contains them.
        (_, Update::Progress { .. }) | (None, Update::Changes { .. }) => {}
        (
            state,
            Update::Synced { snapshot: all } | Update::Relisted { after: all, .. } | Update::Reset { after: all, .. },
        ) => {
            *state = Some(all.clone());
        }
    }
}

fn deletion(kind: RbacKind, object: &Object) -> RbacChange {
    RbacChange::Deleted { kind, namespace: object.namespace().to_owned(), name: object.name().to_owned() }
}

impl UpdateObserver for KindFeed {
    fn update(&self, update: Update) {
        if let Some(feed) = self.feed.upgrade() {
            feed.apply_update(self.kind, update);
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::UserInfo;
    use tributary_apimachinery::{ObjectDecoder, ResourceVersion};

    use super::*;

    /// A collection of objects: `name` is a role that allows lists of pods, `name>role` is a binding of `ann`, and
    /// `!name` is an unreadable object.
    fn state(kind: RbacKind, version: u64, objects: &[&str]) -> Snapshot {
        let decoder = ObjectDecoder::new("rbac.authorization.k8s.io/v1", kind.as_str(), [].into());
        let mut snapshot = Snapshot::default();
        for (text, version) in objects.iter().zip(1..) {
            let (name, rest) = match (text.strip_prefix('!'), text.split_once('>')) {
                (Some(name), _) => (name, r#""rules":1"#.to_owned()),
                (_, Some((name, role))) => (
                    name,
                    format!(
                        r#""roleRef":{{"kind":"ClusterRole","name":"{role}"}},"subjects":[{{"kind":"User","name":"ann"}}]"#
                    ),
                ),
                _ => (*text, r#""rules":[{"verbs":["list"],"apiGroups":[""],"resources":["pods"]}]"#.to_owned()),
            };
            let namespace = if kind.is_namespaced() { r#""namespace":"n","# } else { "" };
            let metadata = format!(r#"{{{namespace}"name":"{name}","uid":"{name}","resourceVersion":"{version}"}}"#);
            let text = format!(r#"{{"metadata":{metadata},{rest}}}"#);
            snapshot.insert(Arc::new(decoder.decode(text.as_bytes()).unwrap()));
        }
        snapshot.set_resource_version(ResourceVersion(version));
        snapshot
    }

    struct Fixture {
        compiled: Arc<CompiledRights>,
        feed: Arc<MirrorFeed>,
    }

    impl Fixture {
        fn new() -> Self {
            let compiled = Arc::new(CompiledRights::default());
            let feed = MirrorFeed::new(&compiled, ClusterName::new("a").unwrap());
            Self { compiled, feed }
        }

        fn synced(&self, kind: RbacKind, objects: &[&str]) {
            self.feed.for_kind(kind).update(Update::Synced { snapshot: state(kind, 7, objects) });
        }

        /// Namespaces in which ann may list pods: `everywhere`, `n`, or `nowhere`.
        fn ann(&self) -> &'static str {
            let user = &UserInfo::with_groups("ann", &[]);
            let rights = self.compiled.now().rights(&ClusterName::new("a").unwrap(), user, "list", "", "pods");
            match (rights.lists("other"), rights.lists("n")) {
                (true, _) => "everywhere",
                (false, true) => "n",
                (false, false) => "nowhere",
            }
        }
    }

    #[test]
    fn compiled_rights_allow_nothing_until_all_rbac_collections_are_read() {
        let rights = Fixture::new();
        let steps: [(RbacKind, &[&str], &str); 4] = [
            (RbacKind::ClusterRoleBinding, &["readers>reader"], "nowhere"),
            (RbacKind::ClusterRole, &["reader"], "nowhere"),
            (RbacKind::RoleBinding, &[], "nowhere"),
            (RbacKind::Role, &[], "everywhere"),
        ];
        for (kind, objects, expected) in steps {
            assert!(!rights.feed.is_following());
            rights.synced(kind, objects);
            assert_eq!(rights.ann(), expected, "{kind}");
        }
        assert!(rights.feed.is_following());
    }

    /// Snapshots from the RBAC cachers contain no objects, so the feed has to store the objects.
    #[test]
    fn rbac_change_during_the_first_read_keeps_other_bindings() {
        let rights = Fixture::new();
        rights.synced(RbacKind::ClusterRole, &["reader"]);
        rights.synced(RbacKind::ClusterRoleBinding, &["one>reader", "readers>reader"]);
        let (kind, objects) =
            (RbacKind::ClusterRoleBinding, state(RbacKind::ClusterRoleBinding, 8, &["other>none", "one>none"]));
        let change = |change_type, name: &str| Change {
            change_type,
            object: Arc::clone(objects.get(name).unwrap()),
            previous: None,
        };
        let changes = vec![change(ChangeType::Added, "other"), change(ChangeType::Deleted, "one")];
        rights.feed.for_kind(kind).update(Update::Changes { changes, snapshot: Snapshot::default() });
        rights.feed.for_kind(kind).update(Update::Progress { snapshot: Snapshot::default() });
        rights.synced(RbacKind::RoleBinding, &[]);
        rights.synced(RbacKind::Role, &[]);
        assert_eq!(rights.ann(), "everywhere", "by the binding that did not change");
        assert_eq!(rights.feed.skipped.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn rbac_feed_applies_each_kind_of_update() {
        let rights = Fixture::new();
        let mut changes = rights.compiled.changes();
        for kind in RbacKind::ALL {
            rights.synced(kind, if kind == RbacKind::ClusterRole { &["reader"] } else { &[] });
        }
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        let kind = RbacKind::RoleBinding;
        let (none, one, other) = (state(kind, 8, &[]), state(kind, 9, &["b>reader"]), state(kind, 10, &["!b"]));
        let tell = |update| rights.feed.for_kind(kind).update(update);
        let change = |change_type, of: &Snapshot| Change {
            change_type,
            object: Arc::clone(of.get("n/b").unwrap()),
            previous: None,
        };
        tell(Update::Progress { snapshot: none.clone() });
        assert!(!changes.has_changed().unwrap(), "nothing has changed");
        tell(Update::Changes { changes: vec![change(ChangeType::Added, &one)], snapshot: one.clone() });
        assert_eq!(rights.ann(), "n");
        assert!(changes.has_changed().unwrap());
        tell(Update::Changes { changes: vec![change(ChangeType::Deleted, &one)], snapshot: none.clone() });
        assert_eq!(rights.ann(), "nowhere");
        tell(Update::Relisted { before: none.clone(), after: one.clone() });
        assert_eq!(rights.ann(), "n");
        tell(Update::Relisted { before: none.clone(), after: none.clone() });
        assert_eq!(
            rights.ann(),
            "nowhere",
            "a list is all there is, whatever its cacher still knows of the one before"
        );
        tell(Update::Relisted { before: none.clone(), after: one.clone() });
        tell(Update::Changes { changes: vec![change(ChangeType::Modified, &other)], snapshot: other });
        assert_eq!(rights.ann(), "nowhere", "what cannot be read allows nothing");
        tell(Update::Reset { before: none.clone(), after: one });
        assert_eq!(rights.ann(), "n");
        tell(Update::Reset { before: none.clone(), after: none });
        assert_eq!(rights.ann(), "nowhere");
    }

    #[test]
    fn ended_rbac_feed_changes_no_rights() {
        let rights = Fixture::new();
        for kind in RbacKind::ALL {
            rights.synced(kind, if kind == RbacKind::ClusterRole { &["reader"] } else { &[] });
        }
        rights.feed.end();
        rights.feed.for_kind(RbacKind::ClusterRoleBinding).update(Update::Relisted {
            before: Snapshot::default(),
            after: state(RbacKind::ClusterRoleBinding, 9, &["readers>reader"]),
        });
        assert_eq!(rights.ann(), "nowhere");
    }
}
