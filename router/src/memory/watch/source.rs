//! Source of a watch's events: a position in the log of a cached view, until another view replaces it.

use std::any::Any;
use std::hash::Hasher;
use std::net::SocketAddr;
use std::sync::Arc;

use tributary_apimachinery::{Change, ClusterName, Filter};
use tributary_merge::{
    BatchOutcome, CompositeResourceVersion, EventVersion, Log, ObjectFilter, Progress, WatchEvent, Watcher, concerns,
};
use tributary_views::view::{ContinuedWatch, View, WakeFilter, WatchRegistration, Watching};

use crate::selection::Selection;

/// Maximum number of events that a watch takes from the log at a time. With 32 events of 7 KB, a watch that is behind
/// needs a quarter of a megabyte, and locks the log for some microseconds.
pub(super) const EVENTS_PER_TURN: usize = 32;

/// Maximum cost ([`ObjectFilter::cost`]) up to which a watch's filter is matched while the log is locked for a change.
/// A watch with a costlier filter is always woken, and matches the change in its own task.
const ASKING_COST_MAX: usize = 8 * Filter::COST_PER_OBJECT;

/// Wakes a watch only for changes that the watch may show.
impl WakeFilter for Selection {
    fn is_in(&self, cluster: &ClusterName, change: &Change) -> bool {
        self.cost(&change.object) > ASKING_COST_MAX || concerns(self, cluster, change)
    }

    fn is_equal_to(&self, other: &dyn WakeFilter) -> bool {
        (other as &dyn Any).downcast_ref::<Self>().is_some_and(|other| self.is_same_selection(other))
    }

    fn hash_into(&self, hasher: &mut dyn Hasher) {
        self.hash_compared_parts(hasher);
    }
}

/// Position of a watch in the log of a cached view.
pub(super) struct LogPosition {
    watching: Watching,
    watcher: Watcher<Arc<Selection>>,
    head: WatchRegistration,
    until: Until,
    /// Set for [`Until::GivenUp`]. While this value exists, the view of all namespaces stays responsible for the
    /// objects of the namespace.
    _continued_watch: Option<ContinuedWatch>,
    /// Number of times that a cluster had forbidden reading all namespaces, when the watch last checked for a
    /// replacement of the view.
    times_forbidden: usize,
}

/// Time until which a watch uses the cached view of all namespaces, before a view of one namespace may replace it.
enum Until {
    /// Until the watch ends: no other view shows the watched objects.
    End,
    /// A cluster forbids reading all namespaces.
    Forbidden,
    /// Until memory drops the objects of a cluster that forbids reading all namespaces. The cluster forbade the read
    /// before the watch began, but the limit allowed no view of the namespace.
    GivenUp,
}

impl LogPosition {
    /// Creates the position of a watch on this connection. `is_forbidden`: a cluster forbade reading all namespaces
    /// when the watch began.
    pub(super) fn new(
        view: &Arc<View>,
        peer: Option<SocketAddr>,
        watcher: Watcher<Arc<Selection>>,
        is_forbidden: bool,
    ) -> Self {
        let namespace = watcher.filter().scope().namespace.filter(|_| view.namespace.is_none());
        let (until, continued_watch) = match namespace {
            None => (Until::End, None),
            Some(_) if !is_forbidden => (Until::Forbidden, None),
            Some(namespace) => (Until::GivenUp, Some(view.continue_watch(namespace))),
        };
        let (watching, head) = (view.watching(), view.wait(peer));
        Self {
            watching,
            watcher,
            head,
            until,
            _continued_watch: continued_watch,
            times_forbidden: view.times_forbidden(),
        }
    }

    pub(super) fn view(&self) -> &Arc<View> {
        self.watching.view()
    }

    /// Returns whether a different cached view has replaced this view, for all watches or for watches of this
    /// namespace.
    pub(super) fn is_taken_over(&mut self) -> bool {
        self.times_forbidden = self.view().times_forbidden();
        let (view, clusters) = (self.view(), &self.watcher.filter().clusters);
        view.is_ended()
            || match self.until {
                Until::End => false,
                Until::Forbidden => view.is_forbidden(clusters),
                Until::GivenUp => view.is_given_up(clusters),
            }
    }

    /// Marks all present events as seen. Must be called before events are taken.
    pub(super) fn look(&mut self) {
        self.head.look();
    }

    /// Resolves once the log has new entries since the last [`look`](Self::look). Cancellation is safe.
    pub(super) async fn advanced(&self) {
        self.head.advanced().await;
    }

    /// Takes one batch of events from the log. Calls `prepare` while the log is locked, with the position before the
    /// batch; `None` while the versions of events depend on the client's version.
    pub(super) fn take_events(
        &mut self,
        events: &mut Vec<WatchEvent>,
        prepare: impl FnOnce(&Log, Option<u64>, &[WatchEvent]),
    ) -> Progress {
        events.clear();
        let view = self.watching.view();
        let log = view.log();
        // Checked under the log's lock, because a replacement of the view counts the events that watches have sent.
        // While this watch waited for the lock, its view may have ended.
        if view.is_ended() || view.times_forbidden() != self.times_forbidden {
            return Progress::More;
        }
        self.watcher.skip_to(self.head.passed());
        let from = self.watcher.depends_only_on_filter().then(|| self.watcher.position());
        let BatchOutcome { progress, private_before } = self.watcher.next(&log, EVENTS_PER_TURN, events);
        view.handed_out.record_batch(private_before);
        if self.watcher.depends_only_on_filter() {
            self.head.set_wake_filter(self.watcher.position(), || Arc::<Selection>::clone(self.watcher.filter()));
        }
        prepare(&log, from, events);
        progress
    }

    /// Returns whether the log has no new events. Discards new events without recording them as sent, so only a stream
    /// that ends may call this function.
    pub(super) fn is_at_end(&mut self) -> bool {
        let mut events = Vec::new();
        let log = self.watching.view().log();
        self.watcher.skip_to(self.head.passed());
        let progress = self.watcher.next(&log, EVENTS_PER_TURN, &mut events).progress;
        matches!(progress, Progress::CaughtUp) && events.is_empty()
    }

    pub(super) fn vector(&mut self) -> Option<Arc<CompositeResourceVersion>> {
        let view = self.watching.view();
        let log = view.log();
        self.watcher.skip_to(self.head.passed());
        match self.watcher.bookmark(&log)? {
            // Bookmarks and ends of initial events never carry the version of a single object.
            EventVersion::Item(_) => None,
            EventVersion::Log(version) => view.bookmarks.vector(&log, version),
            EventVersion::Vector(version) => Some(version),
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::{FieldSelector, LabelSelector, ResourceVersion, SelectableResource};

    use super::*;
    use tributary_sharing::limits::Limits;

    fn filter(view: &View, namespace: Option<&str>) -> Arc<Selection> {
        let (labels, fields) = (LabelSelector::default(), FieldSelector::default());
        let (resource, selectable) = (&view.kind.resource, view.decoder.fields());
        let pods = SelectableResource { resource, fields: selectable, namespaced: true };
        let filter = Filter::compile(namespace, None, &labels, &fields, pods).unwrap();
        Arc::new(Selection::new(filter, None))
    }

    /// The log loses changes of other namespaces, and these changes do not wake the watch.
    #[tokio::test]
    async fn watcher_of_a_namespace_survives_log_loss_of_other_namespaces() {
        let limits = Limits { history_bytes: 10_000, ..Limits::default() };
        let (view, cluster) = (View::within_for_tests(&limits), ClusterName::new("a").unwrap());
        view.join_for_tests(&cluster, ResourceVersion(7));
        let watcher = Watcher::now(&view.log(), filter(&view, Some("shop")));
        let mut source = LogPosition::new(&view, None, watcher, false);
        let mut events = Vec::new();
        source.take_events(&mut events, |_, _, _| {});
        source.look();
        for version in 8..1008 {
            view.change_for_tests(&cluster, "mill", ResourceVersion(version));
        }
        assert!(view.log().history_bytes() < 1000 * 100, "most of it is forgotten");
        view.change_for_tests(&cluster, "shop", ResourceVersion(1008));
        let version = source.vector().unwrap();
        assert_eq!(
            version.iter().map(|(_, component)| component.revision()).collect::<Vec<_>>(),
            [ResourceVersion(1007)]
        );
        assert!(matches!(source.take_events(&mut events, |_, _, _| {}), Progress::CaughtUp));
        assert_eq!(events.len(), 1);
    }

    #[tokio::test]
    async fn watch_reads_no_changes_after_its_cached_view_has_ended() {
        let view = View::for_tests();
        let watcher = Watcher::now(&view.log(), filter(&view, None));
        let mut source = LogPosition::new(&view, None, watcher, false);
        let mut take = || {
            let mut events = Vec::new();
            source.take_events(&mut events, |_, _, _| {});
            events.len()
        };
        view.join_for_tests(&ClusterName::new("a").unwrap(), ResourceVersion(7));
        assert_eq!(take(), 1);
        view.join_for_tests(&ClusterName::new("b").unwrap(), ResourceVersion(8));
        view.end();
        assert_eq!(take(), 0);
    }
}
