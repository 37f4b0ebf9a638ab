//! Feeds the merged log from one cacher.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::HeaderValue;
use tributary_apimachinery::{ClusterName, Snapshot};
use tributary_cacher::{Observer, Update};
use tributary_merge::Log;

use super::View;

/// What one cacher tells its view. Ended before the cluster leaves the log, so that a late call cannot bring it back.
pub(super) struct Feed {
    view: Weak<View>,
    cluster: ClusterName,
    /// Whether the cluster in the log is known to be this one, seen through another cacher before.
    goes_on: bool,
    live: AtomicBool,
}

impl Feed {
    pub(super) fn new(view: &Arc<View>, cluster: ClusterName, goes_on: bool) -> Arc<Self> {
        Arc::new(Self { view: Arc::downgrade(view), cluster, goes_on, live: AtomicBool::new(true) })
    }

    /// Lets no further update through. Call with the log locked for writing.
    pub(super) fn end(&self) {
        self.live.store(false, Ordering::Relaxed);
    }
}

/// A cluster's revisions went back.
fn reset(view: &View, log: &mut Log, name: &ClusterName, after: Snapshot, now: Duration) {
    view.fences.forget(name);
    if let Some(cluster) = view.fleet.cluster(name) {
        cluster.note_reset();
    }
    log.reset(name, after, now);
}

impl Observer for Feed {
    fn update(&self, update: Update) {
        let Some(view) = self.view.upgrade() else { return };
        let now = view.started.elapsed();
        let mut log = view.log.write();
        if !self.live.load(Ordering::Relaxed) {
            return;
        }
        // A thousand members tell of progress each minute; to thousands of watchers that is no event.
        if let Update::Progress { snapshot } = &update {
            return log.progress(&self.cluster, snapshot.resource_version(), now);
        }
        let objects = update.snapshot().len();
        if !matches!(update, Update::Changes { .. } | Update::Progress { .. }) {
            view.past.forget();
        }
        match update {
            // A new cacher for a cluster that is known already, because its configuration changed.
            Update::Synced { snapshot } if self.goes_on => {
                match log.snapshot(&self.cluster).is_some_and(|before| snapshot.undoes(before)) {
                    true => reset(&view, &mut log, &self.cluster, snapshot, now),
                    false => log.relist(&self.cluster, snapshot, now),
                }
            }
            // The same, but it may be another incarnation.
            Update::Synced { snapshot } if log.snapshot(&self.cluster).is_some() => {
                log.reset(&self.cluster, snapshot, now)
            }
            Update::Synced { snapshot } => log.join(&self.cluster, snapshot, now),
            Update::Changes { changes, snapshot } => log.append(&self.cluster, changes, snapshot, now),
            Update::Relisted { after, .. } => log.relist(&self.cluster, after, now),
            Update::Reset { after, .. } => reset(&view, &mut log, &self.cluster, after, now),
            Update::Progress { .. } => {}
        }
        drop(log);
        view.head.advance();
        view.metrics
            .cached_objects
            .get_or_create(&view.cacher_labels(&self.cluster))
            .set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    fn warnings(&self, warnings: &[HeaderValue]) {
        let Some(view) = self.view.upgrade() else { return };
        // As in `end`: with the log locked, a late call cannot come after it.
        let _log = view.log.read();
        if self.live.load(Ordering::Relaxed) {
            view.warnings.set(&self.cluster, warnings);
        }
    }
}
