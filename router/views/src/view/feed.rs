//! Transfer of updates from one cacher to the merged log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use tributary_apimachinery::{ClusterName, CollectionVersion, Snapshot};
use tributary_cacher::{Update, UpdateObserver};
use tributary_fleet::topology::Cluster;
use tributary_merge::Log;

use super::contents::Contents;
use super::notification::LogNotification;
use super::step;

/// Observer of one cacher, which appends the cacher's updates to the log of a view. The feed is ended before its
/// cluster leaves the log, so that a late update cannot add the cluster again.
pub(super) struct Feed {
    view: Weak<Contents>,
    cluster: ClusterName,
    /// Whether the log already contains objects that an earlier cacher read from the same cluster.
    continues: bool,
    /// Whether the cluster's name belonged to a different cluster before.
    is_successor: bool,
    live: AtomicBool,
    /// Views of one namespace to whose logs this feed also sends updates. Locked before the log.
    followers: Mutex<Followers>,
}

/// Views of one namespace to which a cluster's feed also sends updates. Locked during each update of the cluster, so
/// that a new follower gets either the update or a state that contains the update.
#[derive(Default)]
pub(super) struct Followers {
    synced: bool,
    feeds: Vec<(Arc<str>, Weak<Feed>)>,
}

impl Followers {
    /// Records that the cacher has a complete state. Returns whether the feed has followers.
    pub(super) fn record_step(&mut self) -> bool {
        self.synced = true;
        self.feeds.retain(|(_, feed)| feed.strong_count() > 0);
        !self.feeds.is_empty()
    }

    /// Sends each follower its namespace's part of an update. `before` is the cluster's version in the view of all
    /// namespaces before the update.
    pub(super) fn send_step(&self, before: CollectionVersion, step: &Update) {
        for (namespace, feed) in &self.feeds {
            if let Some(feed) = feed.upgrade() {
                feed.follow(namespace, before, step);
            }
        }
    }

    pub(super) fn feeds(&self) -> impl Iterator<Item = Arc<Feed>> {
        self.feeds.iter().filter_map(|(_, feed)| feed.upgrade())
    }

    /// Adds a follower and sends it the current state. Before the first complete state of this cacher, the current
    /// state is that of an earlier cacher. A follower that already has objects of the cluster does not need the earlier
    /// cacher's state.
    pub(super) fn add(&mut self, namespace: &Arc<str>, feed: &Arc<Feed>, state: Option<Snapshot>) {
        if let Some(snapshot) = state.filter(|_| self.synced || !feed.holds_some()) {
            feed.follow(namespace, snapshot.resource_version(), &Update::Synced { snapshot });
        }
        self.feeds.push((Arc::clone(namespace), Arc::downgrade(feed)));
    }
}

impl Feed {
    pub(super) fn new(contents: &Arc<Contents>, cluster: &Cluster, continues: bool) -> Arc<Self> {
        let (is_successor, cluster) = (cluster.incarnation().is_successor(), cluster.name().clone());
        let (view, followers, live) = (Arc::downgrade(contents), Mutex::default(), AtomicBool::new(true));
        Arc::new(Self { view, cluster, continues, is_successor, live, followers })
    }

    /// Adds a view of one namespace as a follower. The follower gets the current state and all later updates.
    pub(super) fn lead(&self, namespace: &Arc<str>, follower: &Arc<Feed>) {
        let mut followers = self.followers.lock();
        let Some(view) = self.view.upgrade() else { return };
        let state = view.log().snapshot(&self.cluster).cloned();
        followers.add(namespace, follower, state);
        let warnings = view.warnings.warnings_of(&self.cluster);
        if !warnings.is_empty() {
            follower.warnings(&warnings);
        }
    }

    /// Applies the part of an update that belongs to this namespace. `before` is the cluster's version in the view of
    /// all namespaces before the update.
    pub(super) fn follow(&self, namespace: &str, before: CollectionVersion, step: &Update) {
        let Some(view) = self.view.upgrade() else { return };
        let snapshot = view.log().snapshot(&self.cluster).cloned().unwrap_or_default();
        for own in step::part(step, before, namespace, &snapshot, Snapshot::indexed(view.decoder.fields())) {
            self.update(own);
        }
    }

    pub(super) fn holds_some(&self) -> bool {
        self.view.upgrade().is_some_and(|view| view.log().snapshot(&self.cluster).is_some())
    }

    /// Sends a follower the current version of the cluster, even if no object in the follower's namespace has changed.
    pub(super) fn send_progress(&self, namespace: &str, follower: &Feed) {
        // The lock ensures that all earlier updates have been sent.
        let _followers = self.followers.lock();
        let state = self.view.upgrade().and_then(|view| view.log().snapshot(&self.cluster).cloned());
        if let Some(snapshot) = state {
            follower.follow(namespace, snapshot.resource_version(), &Update::Progress { snapshot });
        }
    }

    /// Ends the feed: the log gets no later update from it. Call this function while the log is locked for writing.
    pub(super) fn end(&self) {
        self.live.store(false, Ordering::Relaxed);
    }
}

/// Applies a state of a cluster whose revisions have decreased, for example after an etcd restore.
fn reset(view: &Contents, log: &mut Log, name: &ClusterName, after: Snapshot, now: Duration) {
    view.read_your_writes.forget(name);
    if let Some(cluster) = view.fleet.cluster(name) {
        cluster.record_reset();
    }
    log.reset(name, after, now);
}

impl UpdateObserver for Feed {
    fn update(&self, update: Update) {
        let Some(view) = self.view.upgrade() else { return };
        let mut followers = self.followers.lock();
        let step = followers.record_step().then(|| (view.version_of(&self.cluster), update.clone()));
        let step = step.map(|(before, step)| (before.unwrap_or_default(), as_followed(before.is_some(), step)));
        match (self.append_step(&view, update), step) {
            (Appended::No, _) | (_, None) => {}
            (Appended::Step, Some((before, step))) => followers.send_step(before, &step),
            // Followers get an explicit reset, because the decreased revisions may not be visible in their own
            // namespaces.
            (Appended::Reset, Some((before, step))) => {
                let after = step.snapshot().clone();
                followers.send_step(before, &Update::Reset { before: Snapshot::default(), after });
            }
        }
    }

    fn warnings(&self, warnings: &[HeaderValue]) {
        let Some(view) = self.view.upgrade() else { return };
        let followers = self.followers.lock();
        // The lock of the log prevents an update after `end`, which is called under the same lock.
        let log = view.log.read();
        if self.live.load(Ordering::Relaxed) {
            view.warnings.set(&self.cluster, warnings);
        }
        drop(log);
        for feed in followers.feeds() {
            feed.warnings(warnings);
        }
    }
}

/// Converts an update for followers. After a new cacher replaces an earlier one, followers already have the cluster's
/// objects. They then receive the new cacher's first state as a relist.
fn as_followed(is_known: bool, step: Update) -> Update {
    match step {
        Update::Synced { snapshot } if is_known => Update::Relisted { before: Snapshot::default(), after: snapshot },
        step => step,
    }
}

enum Appended {
    No,
    Step,
    /// The update is in the log, and it decreased the revisions of the cluster.
    Reset,
}

impl Feed {
    fn append_step(&self, view: &Contents, update: Update) -> Appended {
        let now = view.age();
        let mut log = view.log.write();
        if !self.live.load(Ordering::Relaxed) {
            return Appended::No;
        }
        // A thousand members report progress each minute, and the reports must not wake thousands of watches.
        if let Update::Progress { snapshot } = &update {
            log.progress(&self.cluster, snapshot.resource_version(), now);
            return Appended::Step;
        }
        if !matches!(update, Update::Changes { .. } | Update::Progress { .. }) {
            view.past.forget();
        }
        let notification = match &update {
            Update::Changes { changes, .. } if log.snapshot(&self.cluster).is_some() => {
                LogNotification::from_changes(&self.cluster, changes, &log)
            }
            _ => LogNotification::Anything,
        };
        let mut appended = Appended::Step;
        match update {
            // This cacher replaces the cacher of the same cluster after a change of its configuration. The log already
            // contains the cluster.
            Update::Synced { snapshot } if self.continues => {
                match log.snapshot(&self.cluster).is_some_and(|before| snapshot.undoes(before)) {
                    true => {
                        appended = Appended::Reset;
                        reset(view, &mut log, &self.cluster, snapshot, now);
                    }
                    false => log.relist(&self.cluster, snapshot, now),
                }
            }
            Update::Synced { snapshot } if self.is_successor => log.join_successor(&self.cluster, snapshot, now),
            Update::Synced { snapshot } => log.join(&self.cluster, snapshot, now),
            Update::Changes { changes, snapshot } => log.append(&self.cluster, changes, snapshot, now),
            Update::Relisted { after, .. } => log.relist(&self.cluster, after, now),
            Update::Reset { after, .. } => reset(view, &mut log, &self.cluster, after, now),
            Update::Progress { .. } => {}
        }
        drop(log);
        view.watch_notifier.advance(notification);
        appended
    }
}
