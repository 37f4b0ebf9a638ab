//! One resource over all clusters, held in memory: a cacher per cluster, the merged log that they feed, and what readers
//! wait for.
//!
//! ```text
//! cacher c1 ─┐ Observer::update                      ┌─ list, get: a clone of the head's snapshots
//! cacher c2 ─┼───────────▶ RwLock<merge::Log> ───────┤
//! cacher c3 ─┘  (append, then wake)                  └─ watch: a cursor in the log
//! ```
//!
//! A cacher's task appends to the log itself: there is no queue between them, so nothing can pile up there, and what the
//! cacher publishes is in the log already. Readers hold the log's lock for microseconds and never across an await.

mod board;
mod bookmarks;
mod earlier;
mod encodings;
mod feed;
mod fences;
mod handed_out;
mod handover;
mod head;
mod members;
mod namespace;
mod past;
mod quorum;
pub mod standing;
mod wait;
mod warnings;

pub use bookmarks::{Bookmarks, Shape as BookmarkShape};
pub use earlier::EarlierStandings;
pub use encodings::{Encodings, Key as EncodingKey, Row};
pub use fences::{Deletion, Fences};
pub use head::Waiting;
pub use standing::{Standing, Standings};
pub use wait::{KNOWN_WITHIN, Unreached};
pub use warnings::Warnings;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, header};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use tokio::time::Instant;
use tributary_apimachinery::{ClusterName, CollectionVersion, ObjectDecoder, Snapshot};
use tributary_merge::Log;

use crate::flow::long_answers::Peer;
use crate::limits::Limits;
use crate::metrics::{Metrics, ResourceLabels, WatchCounters};
use crate::policy::Policies;
use crate::response::ResourceKind;
use crate::topology::{ClusterMark, Fleet};
use board::Board;
use feed::Feed;
use handed_out::HandedOut;
use handover::Handovers;
use head::Head;
use members::Members;
use namespace::Whole;
use past::PastStates;

/// One resource over all clusters, or one namespace of it.
pub struct View {
    /// What the resource is.
    pub kind: ResourceKind,
    /// The one namespace that is held, or `None` for all.
    pub namespace: Option<String>,
    /// Where the objects of clusters come from that let all namespaces be read, if this is one namespace beside a view of all.
    whole: Option<Whole>,
    /// What such views and this one told by turns, if this is a view of all.
    handovers: Handovers,
    /// Makes its objects; knows its selectable fields.
    pub decoder: ObjectDecoder,
    /// Encoded events that watchers share.
    pub encodings: Encodings,
    /// The bookmark that watchers share.
    pub bookmarks: Bookmarks,
    /// What reads wait for after writes.
    pub fences: Fences,
    /// What members warn of in every answer.
    pub warnings: Warnings,
    /// What the objects of one cluster may occupy, in bytes.
    collection_bytes: u64,
    fleet: Arc<Fleet>,
    /// Which of its clusters are held.
    policies: Arc<ArcSwap<Policies>>,
    metrics: Arc<Metrics>,
    /// This resource's own counters, looked up once: a watch counts each turn.
    pub counters: WatchCounters,
    log: RwLock<Log>,
    /// What numbers of single objects say less than their clients have.
    pub handed_out: HandedOut,
    past: PastStates,
    head: Head,
    /// How its clusters stand.
    board: Board,
    members: Mutex<Members>,
    started: Instant,
    used: Mutex<Instant>,
    watchers: AtomicUsize,
    /// Whether it has begun to hold anything.
    begun: Once,
    ended: AtomicBool,
}

impl View {
    /// A view of a resource, or of one namespace of it, that holds nothing until it [begins](Self::begin).
    pub fn of(
        kind: ResourceKind,
        namespace: Option<String>,
        decoder: ObjectDecoder,
        fleet: Arc<Fleet>,
        policies: Arc<ArcSwap<Policies>>,
        metrics: Arc<Metrics>,
        limits: &Limits,
    ) -> Arc<Self> {
        Self::new(kind, namespace, None, decoder, fleet, policies, metrics, limits)
    }

    /// A view of one namespace beside the view of all: with a cacher for each cluster that forbids to read all. The other clusters'
    /// objects are those of the view of all. It holds nothing until it [begins](Self::begin).
    pub fn part_of(whole: &Arc<Self>, namespace: &str, limits: &Limits) -> Arc<Self> {
        let (fleet, policies) = (Arc::clone(&whole.fleet), Arc::clone(&whole.policies));
        let (kind, decoder, metrics) = (whole.kind.clone(), whole.decoder.clone(), Arc::clone(&whole.metrics));
        let part_of = Some(Whole::new(whole));
        let part = Self::new(kind, Some(namespace.to_owned()), part_of, decoder, fleet, policies, metrics, limits);
        part.takes_part();
        part
    }

    /// Begins to hold what each cluster has, unless it has begun. Whoever comes while another begins waits for that: to a reader a view
    /// without clusters is one of a fleet without any. Must be called within a tokio runtime.
    pub fn begin(self: &Arc<Self>) {
        self.begun.call_once(|| {
            tracing::info!(resource = %self.kind.resource, namespace = self.namespace.as_deref(), "caching starts");
            let _of_members = self.fleet.enter();
            self.follow_whole();
            self.follow_fleet();
        });
    }

    #[expect(clippy::too_many_arguments, reason = "each is a part of the view")]
    fn new(
        kind: ResourceKind,
        namespace: Option<String>,
        whole: Option<Whole>,
        decoder: ObjectDecoder,
        fleet: Arc<Fleet>,
        policies: Arc<ArcSwap<Policies>>,
        metrics: Arc<Metrics>,
        limits: &Limits,
    ) -> Arc<Self> {
        let labels = ResourceLabels::of(&kind.resource);
        let log = if namespace.is_some() { Log::of_namespace(limits.log()) } else { Log::new(limits.log()) };
        Arc::new(Self {
            kind,
            namespace,
            whole,
            handovers: Handovers::default(),
            decoder,
            encodings: Encodings::new(limits.encodings_bytes),
            bookmarks: Bookmarks::default(),
            fences: Fences::default(),
            warnings: Warnings::default(),
            collection_bytes: limits.collection_bytes,
            fleet,
            policies,
            counters: metrics.watch_counters(&labels),
            metrics,
            log: RwLock::new(log),
            handed_out: HandedOut::default(),
            past: PastStates::default(),
            head: Head::default(),
            board: Board::default(),
            members: Mutex::new(Members::default()),
            started: Instant::now(),
            used: Mutex::new(Instant::now()),
            watchers: AtomicUsize::new(0),
            begun: Once::new(),
            ended: AtomicBool::new(false),
        })
    }

    /// Adds what members warn of, and a `Warning` for each cluster that is missing or stale.
    pub(crate) fn warn(&self, headers: &mut HeaderMap, standings: &Standings) {
        self.warnings.add_to(headers);
        let texts = standing::warnings(&self.kind.resource, standings);
        headers.extend(
            texts.iter().filter_map(|text| standing::warning_header(text)).map(|value| (header::WARNING, value)),
        );
    }

    /// The merged log. Hold it briefly, and never across an await.
    pub fn log(&self) -> RwLockReadGuard<'_, Log> {
        self.log.read()
    }

    /// A cluster's version in the log; `None` until it is known.
    pub fn version_of(&self, cluster: &ClusterName) -> Option<CollectionVersion> {
        self.log.read().snapshot(cluster).map(Snapshot::resource_version)
    }

    /// Tells when the log has grown by an event, to a watcher that this connection brought. Members' progress wakes nobody: it is
    /// told in bookmarks, and who writes one looks.
    pub fn wait(&self, peer: Option<Peer>) -> Waiting {
        self.head.wait(peer)
    }

    /// What marks a cluster's objects, prepared for splicing. A cluster that just left still has some to be deleted.
    pub fn mark(&self, cluster: &ClusterName) -> Arc<ClusterMark> {
        self.fleet.mark(cluster)
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

    /// Wakes all watchers though nothing has happened: they have to look at something else.
    pub fn wake(&self) {
        self.head.advance();
    }

    /// Forgets history that is too old. Events do so too, but in a quiet resource none come.
    pub fn trim(&self) {
        let history_bytes = {
            let mut log = self.log.write();
            log.trim(self.started.elapsed());
            log.history_bytes()
        };
        self.past.trim();
        // The metrics have no namespaces: what the view of all holds is told.
        if self.whole.is_none() {
            self.counters.held.set(history_bytes, self.encodings.bytes());
        }
    }

    /// Notes that somebody reads, so that the view is kept.
    pub fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    /// How long there has been this view.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// How long nobody has read or watched.
    pub fn idle(&self) -> Duration {
        if self.watchers.load(Ordering::Relaxed) > 0 { Duration::ZERO } else { self.used.lock().elapsed() }
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
