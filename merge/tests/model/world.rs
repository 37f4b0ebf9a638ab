//! Simulated clusters, and replicas. The log of each replica reads the clusters' changes at its own speed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tributary_apimachinery::{
    Change, ChangeType, ClusterName, Object, ObjectDecoder, ResourceVersion, Scope, Snapshot,
};
use tributary_merge::{Log, LogConfig, ObjectFilter};

pub(crate) const CLUSTERS: usize = 3;
pub(crate) const REPLICAS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selector {
    Everything,
    Red,
    /// Each object in namespace `n0`.
    Namespace,
    /// Red objects of the first two clusters.
    RedOfTwo,
}

impl ObjectFilter for Selector {
    fn matches(&self, cluster: &ClusterName, object: &Object) -> bool {
        let red = || object.label("color") == Some("red");
        match self {
            Self::Everything => true,
            Self::Red => red(),
            Self::Namespace => object.namespace() == "n0",
            Self::RedOfTwo => red() && cluster.as_str() != "c2",
        }
    }

    fn scope(&self) -> Scope<'_> {
        Scope { namespace: (*self == Self::Namespace).then_some("n0"), ..Scope::default() }
    }
}

pub(crate) fn cluster(index: usize) -> ClusterName {
    ClusterName::new(&format!("c{index}")).unwrap()
}

pub(crate) fn object(key: &str, version: u64, uid: u64, red: bool) -> Arc<Object> {
    let (namespace, name) = key.split_once('/').unwrap();
    let color = if red { "red" } else { "blue" };
    let text = format!(
        r#"{{"metadata":{{"namespace":"{namespace}","name":"{name}","uid":"{uid}","resourceVersion":"{version}","labels":{{"color":"{color}"}}}}}}"#
    );
    Arc::new(ObjectDecoder::new("v1", "Pod", [].into()).decode(text.as_bytes()).unwrap())
}

#[derive(Default)]
pub(crate) struct Member {
    pub(crate) revision: u64,
    objects: BTreeMap<String, Arc<Object>>,
    history: Vec<Change>,
    /// The revision and the objects after each change. A restore takes an earlier state from here.
    backups: Vec<(u64, BTreeMap<String, Arc<Object>>)>,
    uid: u64,
}

impl Member {
    pub(crate) fn write(&mut self, key: &str, red: bool) {
        self.revision += 1;
        let previous = self.objects.get(key).cloned();
        let uid = previous.as_ref().map_or_else(|| self.next_uid(), |object| object.uid().parse().unwrap());
        let object = object(key, self.revision, uid, red);
        self.objects.insert(key.to_owned(), object.clone());
        let change_type = if previous.is_some() { ChangeType::Modified } else { ChangeType::Added };
        self.record(Change { change_type, object, previous });
    }

    pub(crate) fn delete(&mut self, key: &str) {
        let Some(last) = self.objects.remove(key) else { return };
        self.revision += 1;
        let red = last.label("color") == Some("red");
        let object = object(key, self.revision, last.uid().parse().unwrap(), red);
        self.record(Change { change_type: ChangeType::Deleted, object, previous: Some(last) });
    }

    /// Deletes several objects in one transaction: in the order of their keys, all at the same revision.
    pub(crate) fn expire(&mut self, keys: &[&str]) {
        let deleted: Vec<_> = keys.iter().filter_map(|key| Some((*key, self.objects.remove(*key)?))).collect();
        if deleted.is_empty() {
            return;
        }
        self.revision += 1;
        for (key, last) in deleted {
            let red = last.label("color") == Some("red");
            let object = object(key, self.revision, last.uid().parse().unwrap(), red);
            self.history.push(Change { change_type: ChangeType::Deleted, object, previous: Some(last) });
        }
        self.backups.push((self.revision, self.objects.clone()));
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut snapshot: Snapshot = self.objects.values().cloned().collect();
        snapshot.set_resource_version(ResourceVersion(self.revision));
        snapshot
    }

    fn restore(&mut self, age: usize) -> Option<u64> {
        let keep = self.backups.len().checked_sub(age + 1)?;
        let (revision, objects) = self.backups[keep].clone();
        self.backups.truncate(keep + 1);
        self.history.retain(|change| change.resource_version().0 <= revision);
        (self.revision, self.objects) = (revision, objects);
        Some(revision)
    }

    fn record(&mut self, change: Change) {
        self.history.push(change);
        self.backups.push((self.revision, self.objects.clone()));
    }

    fn next_uid(&mut self) -> u64 {
        self.uid += 1;
        self.uid
    }
}

/// The namespaces that the log of a replica contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holding {
    /// All namespaces, from a watch of all namespaces.
    All,
    /// Namespace `n0`, extracted from a watch of all namespaces.
    PartOfAll,
    /// Namespace `n0`, from a watch of this namespace.
    Namespace,
}

/// A Tributary process: its log, and the number of changes that the process has read from each cluster.
pub(crate) struct Replica {
    pub(crate) log: Log,
    holding: Holding,
    feeds: Vec<Feed>,
}

fn is_own(object: &Object) -> bool {
    Selector::Namespace.matches(&cluster(0), object)
}

impl Replica {
    fn new(config: &LogConfig, holding: Holding) -> Self {
        Self { log: new_log(config, holding), holding, feeds: (0..CLUSTERS).map(|_| Feed::default()).collect() }
    }

    /// Returns the objects of a cluster that are in the namespaces of the log.
    fn part(&self, whole: &Snapshot) -> Snapshot {
        if self.holding == Holding::All {
            return whole.clone();
        }
        let mut part: Snapshot = whole.iter().filter(|object| is_own(object)).cloned().collect();
        part.set_resource_version(whole.resource_version());
        part
    }
}

fn new_log(config: &LogConfig, holding: Holding) -> Log {
    match holding {
        Holding::All => Log::new(config.clone()),
        Holding::PartOfAll | Holding::Namespace => Log::for_namespace(config.clone()),
    }
}

#[derive(Default)]
struct Feed {
    /// The number of the cluster's changes that the replica has read.
    fed: usize,
    snapshot: Snapshot,
}

pub(crate) struct World {
    pub(crate) members: Vec<Member>,
    pub(crate) joined: Vec<bool>,
    pub(crate) replicas: Vec<Replica>,
    pub(crate) now: Duration,
}

impl World {
    pub(crate) fn new(config: &LogConfig, holding: [Holding; REPLICAS]) -> Self {
        let members = (0..CLUSTERS).map(|_| Member { revision: 10, ..Member::default() }).collect();
        let replicas = holding.into_iter().map(|holding| Replica::new(config, holding)).collect();
        let mut world = Self { members, joined: vec![false; CLUSTERS], replicas, now: Duration::ZERO };
        world.join(0);
        world.join(1);
        world
    }

    /// Appends up to `count` new changes to a replica's log. With `bookmark`, the cluster's bookmark follows the last
    /// change.
    pub(crate) fn feed(&mut self, replica: usize, index: usize, count: usize, bookmark: bool) {
        if !self.joined[index] {
            return;
        }
        let (member, replica) = (&self.members[index], &mut self.replicas[replica]);
        let feed = &mut replica.feeds[index];
        let end = member.history.len().min(feed.fed + count);
        let mut changes = member.history[feed.fed..end].to_vec();
        feed.fed = end;
        if replica.holding == Holding::Namespace {
            changes.retain(|change| is_own(&change.object));
        }
        // For each change, the version of the whole cluster (all namespaces) before the change.
        let mut before = Vec::new();
        for change in &changes {
            before.push(feed.snapshot.resource_version());
            match change.change_type {
                ChangeType::Deleted => drop(feed.snapshot.remove(change.object.key().as_str())),
                _ => drop(feed.snapshot.insert(change.object.clone())),
            }
            feed.snapshot.set_resource_version(feed.snapshot.resource_version().with_change(change));
        }
        if bookmark && end == member.history.len() {
            feed.snapshot.set_resource_version(ResourceVersion(member.revision));
        }
        let (name, whole) = (cluster(index), feed.snapshot.clone());
        if replica.holding != Holding::PartOfAll {
            return replica.log.append(&name, changes, whole, self.now);
        }
        let own = changes.into_iter().zip(before).filter(|(change, _)| is_own(&change.object));
        for (change, before) in own {
            if change.change_type == ChangeType::Deleted {
                replica.log.progress(&name, before, self.now);
            }
            let mut state = replica.log.snapshot(&name).cloned().unwrap_or_default();
            match change.change_type {
                ChangeType::Deleted => drop(state.remove(change.object.key().as_str())),
                _ => drop(state.insert(change.object.clone())),
            }
            state.set_resource_version(state.resource_version().with_change(&change));
            replica.log.append(&name, vec![change], state, self.now);
        }
        // The log learns the versions of changes in other namespaces only from the cluster's bookmarks.
        if bookmark {
            replica.log.progress(&name, whole.resource_version(), self.now);
        }
    }

    /// Restarts a replica with an empty log of the same namespaces. If the log's namespace is extracted from a watch of
    /// all namespaces, the new log may start in the middle of a revision.
    pub(crate) fn restart(&mut self, replica: usize, config: &LogConfig) {
        let holding = self.replicas[replica].holding;
        self.replicas[replica].log = new_log(config, holding);
        for index in 0..CLUSTERS {
            if !self.joined[index] {
                continue;
            }
            let state = match holding {
                Holding::PartOfAll => self.replicas[replica].part(&self.replicas[replica].feeds[index].snapshot),
                Holding::All | Holding::Namespace => self.catch_up(replica, index),
            };
            self.replicas[replica].log.join(&cluster(index), state, self.now);
        }
    }

    pub(crate) fn feed_all(&mut self) {
        for replica in 0..REPLICAS {
            for index in 0..CLUSTERS {
                self.feed(replica, index, usize::MAX >> 1, true);
            }
        }
    }

    pub(crate) fn relist(&mut self, replica: usize, index: usize) {
        if self.joined[index] {
            let snapshot = self.catch_up(replica, index);
            self.replicas[replica].log.relist(&cluster(index), snapshot, self.now);
        }
    }

    pub(crate) fn join(&mut self, index: usize) {
        if !std::mem::replace(&mut self.joined[index], true) {
            for replica in 0..REPLICAS {
                let snapshot = self.catch_up(replica, index);
                self.replicas[replica].log.join(&cluster(index), snapshot, self.now);
            }
        }
    }

    /// Removes a cluster from each replica. Increases the cluster's revision, because the revision of a real etcd also
    /// increases while the cluster is absent.
    pub(crate) fn leave(&mut self, index: usize) {
        if std::mem::replace(&mut self.joined[index], false) {
            self.members[index].revision += 1;
            for replica in &mut self.replicas {
                replica.log.leave(&cluster(index), self.now);
            }
        }
    }

    /// Restores a cluster from a backup, and appends a reset to the log of each replica. Returns the revision of the
    /// backup.
    pub(crate) fn restore(&mut self, index: usize, age: usize) -> Option<u64> {
        let revision = self.members[index].restore(age)?;
        for replica in 0..REPLICAS {
            if self.joined[index] {
                let snapshot = self.catch_up(replica, index);
                self.replicas[replica].log.reset(&cluster(index), snapshot, self.now);
            }
        }
        Some(revision)
    }

    pub(crate) fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        for replica in &mut self.replicas {
            replica.log.trim(self.now);
        }
    }

    fn catch_up(&mut self, replica: usize, index: usize) -> Snapshot {
        let fed = self.members[index].history.len();
        let (replica, mut snapshot) = (&mut self.replicas[replica], self.members[index].snapshot());
        let part = replica.part(&snapshot);
        if replica.holding == Holding::Namespace {
            snapshot = part.clone();
        }
        replica.feeds[index] = Feed { fed, snapshot };
        part
    }
}
