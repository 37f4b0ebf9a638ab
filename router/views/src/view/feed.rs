//! The feed of the merged log from one cacher.

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
use super::news::News;
use super::step;

/// The observer of one cacher, which writes to the log of its view. It is ended before its cluster leaves the log, so
/// that a late update cannot bring the cluster back.
pub(super) struct Feed {
    view: Weak<Contents>,
    cluster: ClusterName,
    /// Whether the cluster in the log is the same one, fed by another cacher before.
    goes_on: bool,
    /// Whether another cluster had the name before.
    is_successor: bool,
    live: AtomicBool,
    /// The views of one namespace that this feed also updates. Locked before the log.
    followers: Mutex<Followers>,
}

/// The views of one namespace that a cluster's feed also updates. They are locked during each update of the cluster, so
/// that a new follower gets either an update or the state that contains it.
#[derive(Default)]
pub(super) struct Followers {
    /// Whether the cacher has delivered a first complete state.
    synced: bool,
    feeds: Vec<(Arc<str>, Weak<Feed>)>,
}

impl Followers {
    /// Records that the cacher has a complete state. Returns whether the feed has followers.
    pub(super) fn note_step(&mut self) -> bool {
        self.synced = true;
        self.feeds.retain(|(_, feed)| feed.strong_count() > 0);
        !self.feeds.is_empty()
    }

    /// Sends each follower its part of an update. `before` is the version of all namespaces before the update.
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

    /// Adds a follower and gives it the current state. Before the first complete state of this cacher, the current
    /// state comes from an earlier cacher; then only followers without objects of the cluster get it, because the
    /// others have it already.
    pub(super) fn add(&mut self, namespace: &Arc<str>, feed: &Arc<Feed>, state: Option<Snapshot>) {
        if let Some(snapshot) = state.filter(|_| self.synced || !feed.holds_some()) {
            feed.follow(namespace, snapshot.resource_version(), &Update::Synced { snapshot });
        }
        self.feeds.push((Arc::clone(namespace), Arc::downgrade(feed)));
    }
}

impl Feed {
    pub(super) fn new(contents: &Arc<Contents>, cluster: &Cluster, goes_on: bool) -> Arc<Self> {
        let (is_successor, cluster) = (cluster.incarnation().is_successor(), cluster.name().clone());
        let (view, followers, live) = (Arc::downgrade(contents), Mutex::default(), AtomicBool::new(true));
        Arc::new(Self { view, cluster, goes_on, is_successor, live, followers })
    }

    /// Adds a view of one namespace as a follower: it gets the current state and all further updates.
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

    /// Applies the part of an update of all namespaces that concerns one namespace. `before` is the version before the
    /// update.
    pub(super) fn follow(&self, namespace: &str, before: CollectionVersion, step: &Update) {
        let Some(view) = self.view.upgrade() else { return };
        let held = view.log().snapshot(&self.cluster).cloned().unwrap_or_default();
        for own in step::part(step, before, namespace, &held, Snapshot::indexed(view.decoder.fields())) {
            self.update(own);
        }
    }

    /// Whether the view has any state of the cluster.
    pub(super) fn holds_some(&self) -> bool {
        self.view.upgrade().is_some_and(|view| view.log().snapshot(&self.cluster).is_some())
    }

    /// Tells a follower the current version of the cluster, even if nothing in its namespace has changed.
    pub(super) fn tell_progress(&self, namespace: &str, follower: &Feed) {
        // All earlier updates have been sent.
        let _followers = self.followers.lock();
        let state = self.view.upgrade().and_then(|view| view.log().snapshot(&self.cluster).cloned());
        if let Some(snapshot) = state {
            follower.follow(namespace, snapshot.resource_version(), &Update::Progress { snapshot });
        }
    }

    /// Stops all further updates. Call it while the log is locked for writing.
    pub(super) fn end(&self) {
        self.live.store(false, Ordering::Relaxed);
    }
}

/// Handles revisions of a cluster that went back.
fn reset(view: &Contents, log: &mut Log, name: &ClusterName, after: Snapshot, now: Duration) {
    view.fences.forget(name);
    if let Some(cluster) = view.fleet.cluster(name) {
        cluster.note_reset();
    }
    log.reset(name, after, now);
}

impl UpdateObserver for Feed {
    fn update(&self, update: Update) {
        let Some(view) = self.view.upgrade() else { return };
        let mut followers = self.followers.lock();
        let step = followers.note_step().then(|| (view.version_of(&self.cluster), update.clone()));
        let step = step.map(|(before, step)| (before.unwrap_or_default(), as_followed(before.is_some(), step)));
        match (self.append_step(&view, update), step) {
            (Taken::No, _) | (_, None) => {}
            (Taken::Step, Some((before, step))) => followers.send_step(before, &step),
            // A reset may only be visible in other namespaces.
            (Taken::Reset, Some((before, step))) => {
                let after = step.snapshot().clone();
                followers.send_step(before, &Update::Reset { before: Snapshot::default(), after });
            }
        }
    }

    fn warnings(&self, warnings: &[HeaderValue]) {
        let Some(view) = self.view.upgrade() else { return };
        let followers = self.followers.lock();
        // As in `end`: the lock on the log prevents late calls after the end.
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

/// Converts an update for followers. The first state of a cacher that inherited objects is a relist for them, because
/// they have those objects already.
fn as_followed(is_known: bool, step: Update) -> Update {
    match step {
        Update::Synced { snapshot } if is_known => Update::Relisted { before: Snapshot::default(), after: snapshot },
        step => step,
    }
}

/// The result of appending an update.
enum Taken {
    /// The feed has ended.
    No,
    /// The update is in the log.
    Step,
    /// The update is in the log, and the revisions of the cluster went back.
    Reset,
}

impl Feed {
    /// Appends an update to the log.
    fn append_step(&self, view: &Contents, update: Update) -> Taken {
        let now = view.age();
        let mut log = view.log.write();
        if !self.live.load(Ordering::Relaxed) {
            return Taken::No;
        }
        // A thousand members report progress each minute. Thousands of watchers must not wake for it.
        if let Update::Progress { snapshot } = &update {
            log.progress(&self.cluster, snapshot.resource_version(), now);
            return Taken::Step;
        }
        if !matches!(update, Update::Changes { .. } | Update::Progress { .. }) {
            view.past.forget();
        }
        let news = match &update {
            Update::Changes { changes, .. } if log.snapshot(&self.cluster).is_some() => {
                News::from_changes(&self.cluster, changes, &log)
            }
            _ => News::Anything,
        };
        let mut taken = Taken::Step;
        match update {
            // A new cacher for a known cluster, whose configuration changed.
            Update::Synced { snapshot } if self.goes_on => {
                match log.snapshot(&self.cluster).is_some_and(|before| snapshot.undoes(before)) {
                    true => {
                        taken = Taken::Reset;
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
        view.head.advance(news);
        taken
    }
}
