//! A view of one resource over all clusters: one cacher for each cluster, the merged log to which the cachers append,
//! and the conditions for which readers wait.
//!
//! ```text
//! cacher c1 ─┐ Observer::update                      ┌─ list, get: a clone of the head's snapshots
//! cacher c2 ─┼───────────▶ RwLock<merge::Log> ───────┤
//! cacher c3 ─┘  (append, then wake)                  └─ watch: a cursor in the log
//! ```
//!
//! Each cacher's task appends to the log itself. So no queue between cacher and log can grow, and each update that a
//! cacher has published is already in the log. Readers lock the log for microseconds and never across an await.

mod bookmarks;
pub mod cache_state;
mod cache_state_tracker;
mod contents;
mod earlier;
mod encodings;
mod feed;
mod follow;
mod handed_out;
mod handover;
mod known;
mod last_use;
mod latest_requests;
mod leader;
mod member;
mod members;
mod namespace;
mod newest;
mod notification;
mod own_writes;
mod past;
mod quorum;
mod read_your_writes;
mod report;
mod step;
#[cfg(test)]
mod test_notifications;
#[cfg(any(test, feature = "testing"))]
mod testing;
mod uncached_reason;
mod wait;
mod warnings;
mod watch_groups;
mod watch_notifier;

pub use bookmarks::BookmarkForm as BookmarkShape;
pub use cache_state::{CacheState, CacheStates};
pub use contents::{Contents, ViewedResource};
pub use earlier::EarlierCacheStates;
pub use encodings::{EncodingKey, RowOptions};
pub use known::KNOWN_WITHIN;
pub use namespace::ContinuedWatch;
pub use notification::WakeFilter;
pub use read_your_writes::{Deletion, WriterSelector};
pub use uncached_reason::UncachedReason;
pub use wait::Unreached;
pub use watch_notifier::WatchRegistration;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, header};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;
use tributary_apimachinery::ClusterSelector;
use tributary_sharing::limits::Limits;

use cache_state_tracker::CacheStateTracker;
use handed_out::HandedOut;
use handover::Handovers;
use last_use::LastUse;
use member::ViewClusters;
use tributary_fleet::metrics::Metrics;
use tributary_fleet::policy::Policies;
use tributary_fleet::topology::Fleet;

/// Cache of one resource over all clusters, or of one namespace of the resource, with the tasks that keep the cache up
/// to date.
pub struct View {
    contents: Arc<Contents>,
    /// The view of all namespaces, if this is a view of one namespace. The view of all namespaces supplies the objects
    /// of the clusters that allow Tributary to read all namespaces.
    whole: Option<AllNamespacesView>,
    /// Record of the resourceVersions that this view of all namespaces, and the views of its single namespaces, have
    /// sent to clients.
    handovers: Handovers,
    /// Log position before which a watch cannot resume from the resourceVersion of a single object. A client that
    /// received an event from before this position may already have had more events than the event's resourceVersion
    /// describes.
    pub handed_out: HandedOut,
    /// Maximum size of the cached objects of one cluster, in bytes.
    collection_bytes: u64,
    policies: Arc<ArcSwap<Policies>>,
    cache_state_tracker: CacheStateTracker,
    members: Mutex<ViewClusters>,
    used: LastUse,
    watchers: AtomicUsize,
    /// Ensures that the cachers are started only once.
    begun: Once,
    ended: AtomicBool,
}

struct AllNamespacesView {
    /// The view of all namespaces. It stays in memory as long as the view of one namespace.
    view: Arc<View>,
    following: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Deref for View {
    type Target = Contents;

    fn deref(&self) -> &Contents {
        &self.contents
    }
}

impl View {
    /// Creates an empty view of a resource, or of one namespace of the resource. The view caches nothing until
    /// [`begin`](Self::begin).
    pub fn empty(
        resource: ViewedResource,
        fleet: Arc<Fleet>,
        policies: Arc<ArcSwap<Policies>>,
        metrics: Arc<Metrics>,
        limits: &Limits,
    ) -> Arc<Self> {
        Self::new(Contents::new(resource, fleet, metrics, limits), None, policies, limits)
    }

    /// Creates a view of one namespace that uses the view `whole` of all namespaces. The new view has a cacher for each
    /// cluster that forbids Tributary to read all namespaces. The objects of the other clusters come from `whole`. The
    /// new view caches nothing until [`begin`](Self::begin).
    pub(crate) fn namespace_view_of(whole: &Arc<Self>, namespace: &str, limits: &Limits) -> Arc<Self> {
        let (fleet, metrics) = (Arc::clone(&whole.fleet), Arc::clone(&whole.metrics));
        let (kind, decoder) = (whole.kind.clone(), whole.decoder.clone());
        let resource = ViewedResource { kind, namespace: Some(namespace.to_owned()), decoder };
        let contents = Contents::new(resource, fleet, metrics, limits);
        let of = Some(AllNamespacesView { view: Arc::clone(whole), following: Mutex::default() });
        let part = Self::new(contents, of, Arc::clone(&whole.policies), limits);
        part.register_namespace_view();
        part
    }

    /// Starts the cachers, unless they have been started. A concurrent call waits until the running call ends: to a
    /// reader, a view without cachers would look like a fleet without clusters. Must be called within a tokio runtime.
    pub fn begin(self: &Arc<Self>) {
        self.begun.call_once(|| {
            tracing::info!(resource = %self.kind.resource, namespace = self.namespace.as_deref(), "caching starts");
            let _of_members = self.fleet.enter();
            self.follow_whole();
            self.follow_fleet();
        });
    }

    fn new(
        contents: Contents,
        whole: Option<AllNamespacesView>,
        policies: Arc<ArcSwap<Policies>>,
        limits: &Limits,
    ) -> Arc<Self> {
        Arc::new(Self {
            contents: Arc::new(contents),
            whole,
            handovers: Handovers::default(),
            handed_out: HandedOut::default(),
            collection_bytes: limits.collection_bytes,
            policies,
            cache_state_tracker: CacheStateTracker::default(),
            members: Mutex::new(ViewClusters::default()),
            used: LastUse::now(),
            watchers: AtomicUsize::new(0),
            begun: Once::new(),
            ended: AtomicBool::new(false),
        })
    }

    /// Adds `Warning` headers to a response: the members' own warnings that the reader may see, and one for each
    /// missing or stale cluster.
    pub fn warn(&self, headers: &mut HeaderMap, cache_states: &CacheStates, of: &ClusterSelector) {
        self.warnings.add_of(of, headers);
        let texts = cache_state::warnings(&self.kind.resource, cache_states);
        headers.extend(
            texts
                .iter()
                .filter_map(|text| tributary_answers::warnings::warning_header(text))
                .map(|value| (header::WARNING, value)),
        );
    }

    /// Ends the watches of this view with a last bookmark, because a different view replaces this view.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Returns whether the watches of the view must end.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Removes log entries that are too old. The log also removes them with each new event, but a quiet resource has no
    /// events.
    pub fn trim(&self) {
        self.log.write().trim(self.age());
        self.past.trim();
    }

    /// Records a read. A view that is read stays in memory.
    pub fn touch(&self) {
        self.used.record_use();
    }

    /// Returns the time since the last read; zero while the view has a watch.
    pub fn idle(&self) -> Duration {
        if self.watchers.load(Ordering::Relaxed) > 0 { Duration::ZERO } else { self.used.elapsed() }
    }

    /// Registers a watch of this view until the returned guard is dropped.
    pub fn watching(self: &Arc<Self>) -> Watching {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        self.counters.watches.inc();
        Watching { view: Arc::clone(self) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.unregister_namespace_view();
        tracing::info!(resource = %self.kind.resource, namespace = self.namespace.as_deref(), "caching ends");
    }
}

/// Guard of a registered watch of a view. Dropping the guard removes the registration.
pub struct Watching {
    view: Arc<View>,
}

impl Watching {
    /// Returns the view that is watched.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.view.watchers.fetch_sub(1, Ordering::Relaxed);
        self.view.counters.watches.dec();
        self.view.touch();
    }
}
