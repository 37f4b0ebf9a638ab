//! One resource over all clusters, held in memory: a cacher per cluster, the merged log that they feed,
//! and what readers wait for.
//!
//! ```text
//! cacher c1 ─┐ Observer::update                      ┌─ list, get: a clone of the head's snapshots
//! cacher c2 ─┼───────────▶ RwLock<merge::Log> ───────┤
//! cacher c3 ─┘  (append, then wake)                  └─ watch: a cursor in the log
//! ```
//!
//! A cacher's task appends to the log itself: there is no queue between them, so nothing can pile up there, and what
//! the cacher publishes is in the log already. Readers hold the log's lock for microseconds and never across an await.

mod board;
mod bookmarks;
mod contents;
mod crowds;
mod earlier;
mod encodings;
mod feed;
mod fences;
mod follow;
mod handed_out;
mod handover;
mod head;
mod known;
mod last_use;
mod leader;
mod member;
mod members;
mod namespace;
mod newest;
mod news;
mod obstacle;
mod own_writes;
mod past;
mod questions;
mod quorum;
mod report;
pub mod standing;
mod step;
#[cfg(test)]
mod test_news;
#[cfg(any(test, feature = "testing"))]
mod testing;
mod wait;
mod warnings;

pub use bookmarks::BookmarkForm as BookmarkShape;
pub use contents::Contents;
pub use earlier::EarlierStandings;
pub use encodings::{EncodingKey, RowOptions};
pub use fences::{Deletion, WrittenBy};
pub use head::HeadWaiter;
pub use known::KNOWN_WITHIN;
pub use namespace::ServedAsHeld;
pub use news::Interest;
pub use obstacle::CollectionObstacle;
pub use standing::{Standing, Standings};
pub use wait::Unreached;

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, header};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;
use tributary_apimachinery::{ClusterSelector, ObjectDecoder};
use tributary_sharing::limits::Limits;

use board::Board;
use handed_out::HandedOut;
use handover::Handovers;
use last_use::LastUse;
use member::ViewClusters;
use tributary_fleet::discovery::ResourceKind;
use tributary_fleet::metrics::Metrics;
use tributary_fleet::policy::Policies;
use tributary_fleet::topology::Fleet;

/// One resource over all clusters, or one namespace of it: what it contains, and whatever keeps that as
/// its clusters are.
pub struct View {
    contents: Arc<Contents>,
    /// Where the objects of clusters come from that let all namespaces be read, if this is one
    /// namespace beside a view of all.
    whole: Option<AllNamespacesView>,
    /// What such views and this one told by turns, if this is a view of all.
    handovers: Handovers,
    /// What numbers of single objects say less than their clients have.
    pub handed_out: HandedOut,
    /// What the objects of one cluster may occupy, in bytes.
    collection_bytes: u64,
    /// Which of its clusters are held.
    policies: Arc<ArcSwap<Policies>>,
    /// How its clusters stand.
    board: Board,
    members: Mutex<ViewClusters>,
    used: LastUse,
    watchers: AtomicUsize,
    /// Whether it has begun to hold anything.
    begun: Once,
    ended: AtomicBool,
}

/// What a view of one namespace has of the view of all.
struct AllNamespacesView {
    /// The view of all namespaces. It is held as long as this one is.
    view: Arc<View>,
    /// Follows how its clusters stand.
    following: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// A view is read as what it contains.
impl Deref for View {
    type Target = Contents;

    fn deref(&self) -> &Contents {
        &self.contents
    }
}

impl View {
    /// A view of a resource, or of one namespace of it, that holds nothing until it [begins](Self::begin).
    pub fn empty(
        kind: ResourceKind,
        namespace: Option<String>,
        decoder: ObjectDecoder,
        fleet: Arc<Fleet>,
        policies: Arc<ArcSwap<Policies>>,
        metrics: Arc<Metrics>,
        limits: &Limits,
    ) -> Arc<Self> {
        Self::new(Contents::new(kind, namespace, decoder, fleet, metrics, limits), None, policies, limits)
    }

    /// A view of one namespace beside the view of all: with a cacher for each cluster that forbids to read all. The
    /// other clusters' objects are those of the view of all. It holds nothing until it [begins](Self::begin).
    pub(crate) fn part_of(whole: &Arc<Self>, namespace: &str, limits: &Limits) -> Arc<Self> {
        let (fleet, metrics) = (Arc::clone(&whole.fleet), Arc::clone(&whole.metrics));
        let (kind, decoder) = (whole.kind.clone(), whole.decoder.clone());
        let contents = Contents::new(kind, Some(namespace.to_owned()), decoder, fleet, metrics, limits);
        let of = Some(AllNamespacesView { view: Arc::clone(whole), following: Mutex::default() });
        let part = Self::new(contents, of, Arc::clone(&whole.policies), limits);
        part.takes_part();
        part
    }

    /// Begins to hold what each cluster has, unless it has begun. Whoever comes while another begins waits for that: to
    /// a reader a view without clusters is one of a fleet without any. Must be called within a tokio runtime.
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
            board: Board::default(),
            members: Mutex::new(ViewClusters::default()),
            used: LastUse::now(),
            watchers: AtomicUsize::new(0),
            begun: Once::new(),
            ended: AtomicBool::new(false),
        })
    }

    /// Adds what members warn of whom the reader may know of, and a `Warning` for each cluster that is missing or
    /// stale.
    pub fn warn(&self, headers: &mut HeaderMap, standings: &Standings, of: &ClusterSelector) {
        self.warnings.add_of(of, headers);
        let texts = standing::warnings(&self.kind.resource, standings);
        headers.extend(
            texts
                .iter()
                .filter_map(|text| tributary_answers::warnings::warning_header(text))
                .map(|value| (header::WARNING, value)),
        );
    }

    /// Ends the watches of this view with a last bookmark: another one takes its place.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Whether its watches are to end.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Forgets history that is too old. Events do so too, but in a quiet resource none come.
    pub fn trim(&self) {
        self.log.write().trim(self.age());
        self.past.trim();
    }

    /// Notes that somebody reads, so that the view is kept.
    pub fn touch(&self) {
        self.used.note_use();
    }

    /// How long nobody has read or watched.
    pub fn idle(&self) -> Duration {
        if self.watchers.load(Ordering::Relaxed) > 0 { Duration::ZERO } else { self.used.elapsed() }
    }

    /// Counts a watcher until the guard is dropped.
    pub fn watching(self: &Arc<Self>) -> Watching {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        self.counters.watches.inc();
        Watching { view: Arc::clone(self) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.takes_part_no_longer();
        tracing::info!(resource = %self.kind.resource, namespace = self.namespace.as_deref(), "caching ends");
    }
}

/// A watcher that is counted.
pub struct Watching {
    view: Arc<View>,
}

impl Watching {
    /// The view that is watched.
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
