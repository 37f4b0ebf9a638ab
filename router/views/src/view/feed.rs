//! Feeds the merged log from one cacher.

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

/// What one cacher tells its view. Ended before the cluster leaves the log, so that a late call cannot bring it back.
pub(super) struct Feed {
    view: Weak<Contents>,
    cluster: ClusterName,
    /// Whether the cluster in the log is known to be this one, seen through another cacher before.
    goes_on: bool,
    /// Whether another cluster had the name before.
    is_successor: bool,
    live: AtomicBool,
    /// The views of one namespace that are fed from here. Locked before the log.
    followers: Mutex<Followers>,
}

/// The views of one namespace that are fed with a cluster's objects. Locked during each step of the cluster, so that
/// who begins to follow gets either a step or the state behind it.
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
    pub(super) fn send_step(&self, before: CollectionVersion, step: &Update) {
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

    /// Lets a feed follow. Gives it the state that there is: before the first one of the cacher that is what another
    /// cacher left, and for those alone that hold nothing yet. The others hold the same.
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

    /// Feeds a view of one namespace from now on, with the state that there is and each step from there.
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

    /// Takes a step of all namespaces, which were at a version before it, as the feed of one.
    pub(super) fn follow(&self, namespace: &str, before: CollectionVersion, step: &Update) {
        let Some(view) = self.view.upgrade() else { return };
        let held = view.log().snapshot(&self.cluster).cloned().unwrap_or_default();
        for own in step::part(step, before, namespace, &held, Snapshot::indexed(view.decoder.fields())) {
            self.update(own);
        }
    }

    /// Whether its view holds something of the cluster.
    pub(super) fn holds_some(&self) -> bool {
        self.view.upgrade().is_some_and(|view| view.log().snapshot(&self.cluster).is_some())
    }

    /// Tells a view that is fed from here how far the cluster is, though nothing of its namespace has changed.
    pub(super) fn tell_progress(&self, namespace: &str, follower: &Feed) {
        // Whatever came before has been told.
        let _followers = self.followers.lock();
        let state = self.view.upgrade().and_then(|view| view.log().snapshot(&self.cluster).cloned());
        if let Some(snapshot) = state {
            follower.follow(namespace, snapshot.resource_version(), &Update::Progress { snapshot });
        }
    }

    /// Lets no further update through. Call with the log locked for writing.
    pub(super) fn end(&self) {
        self.live.store(false, Ordering::Relaxed);
    }
}

/// A cluster's revisions went back.
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
            // That revisions went back may show in other namespaces alone.
            (Taken::Reset, Some((before, step))) => {
                let after = step.snapshot().clone();
                followers.send_step(before, &Update::Reset { before: Snapshot::default(), after });
            }
        }
    }

    fn warnings(&self, warnings: &[HeaderValue]) {
        let Some(view) = self.view.upgrade() else { return };
        let followers = self.followers.lock();
        // As in `end`: with the log locked, a late call cannot come after it.
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

/// A step for those who follow. The first state of a cacher that began with what another one left is none to them:
/// they had that, too.
fn as_followed(is_known: bool, step: Update) -> Update {
    match step {
        Update::Synced { snapshot } if is_known => Update::Relisted { before: Snapshot::default(), after: snapshot },
        step => step,
    }
}

/// What became of a step.
enum Taken {
    /// The feed has ended.
    No,
    /// The log has it.
    Step,
    /// The log has it, and revisions went back with it.
    Reset,
}

impl Feed {
    /// Puts a step into the log.
    fn append_step(&self, view: &Contents, update: Update) -> Taken {
        let now = view.age();
        let mut log = view.log.write();
        if !self.live.load(Ordering::Relaxed) {
            return Taken::No;
        }
        // A thousand members tell of progress each minute; to thousands of watchers that is no event.
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
            // A new cacher for a cluster that is known already, because its configuration changed.
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
