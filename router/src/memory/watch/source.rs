//! What a stream is read from: a place in a view's log, up to where another view goes on with it.

use std::any::Any;
use std::hash::Hasher;
use std::sync::Arc;

use tributary_apimachinery::{Change, ClusterName, Filter};
use tributary_merge::{
    BatchOutcome, CompositeResourceVersion, EventVersion, Log, ObjectFilter, Progress, WatchEvent, Watcher, concerns,
};
use tributary_proxy::Peer;
use tributary_views::view::{HeadWaiter, Interest, ServedAsHeld, View, Watching};

use crate::selection::Selection;

/// How many events one turn takes from the log. 32 of 7 KB are a quarter of a megabyte for a watcher that is behind,
/// and the log is held for some microseconds.
pub(super) const EVENTS_PER_TURN: usize = 32;

/// What it may cost to ask a filter of a change on behalf of a watcher ([`ObjectFilter::cost`]). A selector that is
/// longer is asked by the watcher, in its own turn.
const ASKING_COST_MAX: usize = 8 * Filter::LOOK_COST;

/// A watch is woken for what it may tell.
impl Interest for Selection {
    fn is_in(&self, cluster: &ClusterName, change: &Change) -> bool {
        self.cost(&change.object) > ASKING_COST_MAX || concerns(self, cluster, change)
    }

    fn is_that_of(&self, other: &dyn Interest) -> bool {
        (other as &dyn Any).downcast_ref::<Self>().is_some_and(|other| self.is_made_of(other))
    }

    fn hash_into(&self, hasher: &mut dyn Hasher) {
        self.hash_what_it_is_made_of(hasher);
    }
}

/// A place in a view's log.
pub(super) struct LogPosition {
    watching: Watching,
    watcher: Watcher<Arc<Selection>>,
    head: HeadWaiter,
    until: Until,
    /// Of one that is followed [until what is held is given up](Until::GivenUp): says so to the views of the namespace.
    _as_held: Option<ServedAsHeld>,
    /// How often clusters had come to forbid what is watched when it was last asked whether another view goes on with
    /// it.
    times_forbidden: usize,
}

/// Up to when a view is followed, where a view of one namespace may take its place.
enum Until {
    /// To the end: no view of one namespace tells what is watched, or this is that view.
    End,
    /// Until a cluster forbids to read all.
    Forbidden,
    /// Until what is held of a cluster that forbids to read all is dropped. It forbade that already when the watch
    /// began, but there was no room for a view of the namespace.
    GivenUp,
}

impl LogPosition {
    /// A watcher's place, read over this connection. `is_forbidden`: a cluster forbade to read all when the watch
    /// began.
    pub(super) fn new(
        view: &Arc<View>,
        peer: Option<Peer>,
        watcher: Watcher<Arc<Selection>>,
        is_forbidden: bool,
    ) -> Self {
        let namespace = watcher.filter().scope().namespace.filter(|_| view.namespace.is_none());
        let (until, as_held) = match namespace {
            None => (Until::End, None),
            Some(_) if !is_forbidden => (Until::Forbidden, None),
            Some(namespace) => (Until::GivenUp, Some(view.serving_as_held(namespace))),
        };
        let (watching, head) = (view.watching(), view.wait(peer));
        Self { watching, watcher, head, until, _as_held: as_held, times_forbidden: view.times_forbidden() }
    }

    /// The view that is followed.
    pub(super) fn view(&self) -> &Arc<View> {
        self.watching.view()
    }

    /// Whether another view goes on with this: all of it, or that of the one namespace which is watched.
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

    /// Takes all that there is now as seen. Call before taking.
    pub(super) fn look(&mut self) {
        self.head.look();
    }

    /// Ends once there is something new since the last look. Cancelling is safe.
    pub(super) async fn advanced(&self) {
        self.head.advanced().await;
    }

    /// Takes a turn's worth of events from the log, and has them prepared while it is at hand.
    pub(super) fn take_events(
        &mut self,
        events: &mut Vec<WatchEvent>,
        prepare: impl FnOnce(&Log, &[WatchEvent]),
    ) -> Progress {
        events.clear();
        let view = self.watching.view();
        let log = view.log();
        // A look under the lock: what is told is noted where another view takes over. That this one has ended may be
        // news to who has waited for a turn.
        if view.is_ended() || view.times_forbidden() != self.times_forbidden {
            return Progress::More;
        }
        self.watcher.skip_to(self.head.passed());
        let BatchOutcome { progress, private_before } = self.watcher.next(&log, EVENTS_PER_TURN, events);
        view.handed_out.add_turn(private_before);
        if self.watcher.depends_only_on_filter() {
            self.head.only_for(self.watcher.position(), || Arc::<Selection>::clone(self.watcher.filter()));
        }
        prepare(&log, events);
        progress
    }

    /// Whether nothing has happened since the last turn. What has is taken and not to be told, so nothing is handed
    /// out: only for a stream that ends.
    pub(super) fn is_at_end(&mut self) -> bool {
        let mut events = Vec::new();
        let log = self.watching.view().log();
        self.watcher.skip_to(self.head.passed());
        let progress = self.watcher.next(&log, EVENTS_PER_TURN, &mut events).progress;
        matches!(progress, Progress::CaughtUp) && events.is_empty()
    }

    /// The version of what has been told.
    pub(super) fn vector(&mut self) -> Option<Arc<CompositeResourceVersion>> {
        let view = self.watching.view();
        let log = view.log();
        self.watcher.skip_to(self.head.passed());
        match self.watcher.bookmark(&log)? {
            // Bookmarks and ends of initial events are never of this form.
            EventVersion::Item(_) => None,
            EventVersion::Log(version) => view.bookmarks.vector(&log, version),
            EventVersion::Vector(version) => Some(version),
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::{FieldSelector, LabelSelector, ResourceVersion};

    use super::*;
    use tributary_sharing::limits::Limits;

    fn filter(view: &View, namespace: Option<&str>) -> Arc<Selection> {
        let (labels, fields) = (LabelSelector::default(), FieldSelector::default());
        let (resource, selectable) = (&view.kind.resource, view.decoder.fields());
        let filter = Filter::compile(namespace, None, &labels, &fields, resource, selectable, true).unwrap();
        Arc::new(Selection::new(filter, None))
    }

    /// More happens in other namespaces than the log keeps, and nobody wakes it for that.
    #[tokio::test]
    async fn what_passes_a_watcher_by_need_not_be_kept_for_it() {
        let limits = Limits { history_bytes: 10_000, ..Limits::default() };
        let (view, cluster) = (View::within_for_tests(&limits), ClusterName::new("a").unwrap());
        view.join_for_tests(&cluster, ResourceVersion(7));
        let watcher = Watcher::now(&view.log(), filter(&view, Some("shop")));
        let mut source = LogPosition::new(&view, None, watcher, false);
        let mut events = Vec::new();
        source.take_events(&mut events, |_, _| {});
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
        assert!(matches!(source.take_events(&mut events, |_, _| {}), Progress::CaughtUp));
        assert_eq!(events.len(), 1);
    }

    /// A watcher may have waited for its turn meanwhile.
    #[tokio::test]
    async fn what_comes_once_a_view_is_ended_is_not_taken() {
        let view = View::for_tests();
        let watcher = Watcher::now(&view.log(), filter(&view, None));
        let mut source = LogPosition::new(&view, None, watcher, false);
        let mut take = || {
            let mut events = Vec::new();
            source.take_events(&mut events, |_, _| {});
            events.len()
        };
        view.join_for_tests(&ClusterName::new("a").unwrap(), ResourceVersion(7));
        assert_eq!(take(), 1);
        view.join_for_tests(&ClusterName::new("b").unwrap(), ResourceVersion(8));
        view.end();
        assert_eq!(take(), 0);
    }
}
