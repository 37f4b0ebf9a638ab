//! HTTP/2 connections of a pool for one kind of request: searches for a free stream, and opens the next connection.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use hyper::client::conn::http2::SendRequest;
use parking_lot::Mutex;
use tokio::runtime;
use tokio::time::{Duration, Instant};
use tributary_apimachinery::body::Body;

use crate::error::ForwardError;
use crate::pool::stream_counts::StreamCounts;
use crate::pool::watch_connection::WatchSender;

/// Time after the start of a connection attempt that failed, during which requests use existing connections and start
/// no new attempt. Without this pause, every request would start an attempt, and each failure would make the cluster
/// unreachable although existing connections work. 30 s: the longest pause between two attempts for an unreachable
/// endpoint.
pub(crate) const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(30);

/// Number of streams per connection above which requests spread over several connections. 8: one core encrypts and
/// frames eight streams without delay. With fewer streams, one connection suffices.
const SPREAD_FROM: usize = 8;

/// An HTTP/2 connection. The connection closes after its removal from the pool, when its last request ends.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) id: u64,
    pub(crate) version: u64,
    /// The runtime that opened the connection and drives it.
    pub(crate) runtime: runtime::Id,
    pub(crate) sender: RequestSender,
    pub(crate) counts: Arc<StreamCounts>,
}

#[derive(Debug)]
pub(crate) enum RequestSender {
    Usual(SendRequest<Body>),
    Watches(WatchSender),
}

impl RequestSender {
    fn is_closed(&self) -> bool {
        match self {
            Self::Usual(sender) => sender.is_closed(),
            Self::Watches(sender) => sender.is_closed(),
        }
    }
}

/// A reserved stream of a connection. Counted until dropped.
pub(crate) struct StreamPermit {
    slot: Arc<Slot>,
}

impl StreamPermit {
    pub(crate) fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }
}

impl fmt::Debug for StreamPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamPermit(connection {})", self.slot.id)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.slot.counts.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Slot {
    /// Reserves a stream on this connection, if fewer than `share` percent of its allowed streams are in use.
    pub(crate) fn reserve(self: &Arc<Self>, share: usize) -> Option<StreamPermit> {
        let allowed = self.allowed();
        let limit = if share >= 100 { allowed } else { (allowed.saturating_mul(share) / 100).max(allowed.min(1)) };
        self.reserve_below(limit)
    }

    fn reserve_below(self: &Arc<Self>, limit: usize) -> Option<StreamPermit> {
        let reserved =
            self.counts.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < limit).then_some(n + 1));
        reserved.ok()?;
        self.counts.used.store(true, Ordering::Relaxed);
        Some(StreamPermit { slot: self.clone() })
    }

    pub(crate) fn streams(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }

    fn allowed(&self) -> usize {
        self.counts.allowed.load(Ordering::Relaxed)
    }

    pub(crate) fn is_usable(&self, version: u64) -> bool {
        self.version == version && !self.sender.is_closed()
    }

    fn has_many_resets(&self) -> bool {
        self.counts.have_many_resets()
    }

    /// Returns whether too many streams of this connection were reset, and no stream is open.
    fn is_exhausted(&self) -> bool {
        self.has_many_resets() && self.streams() == 0
    }
}

pub(crate) type SharedDial = Shared<BoxFuture<'static, Result<(), ForwardError>>>;

/// HTTP/2 connections of an endpoint for one kind of request.
#[derive(Default)]
pub(crate) struct Connections {
    slots: ArcSwap<Vec<Arc<Slot>>>,
    /// Current connection attempt, which all waiting requests share.
    dial: Mutex<Option<Dial>>,
}

/// A connection attempt, with its start time and the version of its credentials.
#[derive(Clone)]
pub(crate) struct Dial {
    pub(crate) begun: Instant,
    version: u64,
    pub(crate) ended: SharedDial,
}

impl Dial {
    /// Returns the result of a connection attempt; `None` while it runs. Polls the attempt, because perhaps no request
    /// waits for it.
    pub(crate) fn outcome(&self) -> Option<Result<(), ForwardError>> {
        self.ended.clone().now_or_never()
    }
}

pub(crate) enum Pick {
    Free(StreamPermit),
    /// A free stream, although a new connection should be opened for later requests. Reasons: few streams are free,
    /// another runtime drives the connection, or too many of its streams were reset.
    FreeButGrow(StreamPermit),
    Full,
}

impl Connections {
    pub(crate) fn pick(&self, version: u64, here: runtime::Id) -> Pick {
        let slots = self.slots.load();
        let fresh = || fresh(&slots, version);
        let ours = || fresh().filter(|slot| slot.runtime == here);
        if let Some(permit) = ours().find_map(|slot| slot.reserve(80)) {
            return Pick::Free(permit);
        }
        let roomy = fresh().find_map(|slot| slot.reserve(80));
        let any = || ours().chain(fresh()).find_map(|slot| slot.reserve(100));
        roomy.or_else(any).or_else(|| reserve_fewest_resets(&slots, version)).map_or(Pick::Full, Pick::FreeButGrow)
    }

    /// Like [`pick`](Self::pick), but streams spread over `over` connections before the first connection is full. One
    /// core encrypts and frames all streams of a connection, and a lost packet delays all of its streams. If each
    /// connection has more than [`SPREAD_FROM`] streams, the connection with the fewest streams is used.
    pub(crate) fn pick_spread(&self, version: u64, here: runtime::Id, over: usize) -> Pick {
        if over <= 1 {
            return self.pick(version, here);
        }
        let slots = self.slots.load();
        let fresh = || fresh(&slots, version);
        let ours = || fresh().filter(|slot| slot.runtime == here);
        let quiet = ours().find(|slot| slot.streams() < SPREAD_FROM.min(slot.allowed()));
        if let Some(permit) = quiet.and_then(|slot| slot.reserve(80)) {
            return Pick::Free(permit);
        }
        let is_spread = fresh().count() >= over;
        match ours().min_by_key(|slot| slot.streams()).and_then(|slot| slot.reserve(80)) {
            Some(permit) if is_spread => Pick::Free(permit),
            Some(permit) => Pick::FreeButGrow(permit),
            None => self.pick(version, here),
        }
    }

    /// Reserves a stream on the first connection with a free stream. Connections fill one after the other, which keeps
    /// their number small. Returns [`Pick::NearlyFull`] if a new connection should be opened for later requests.
    pub(crate) fn pick_first(&self, version: u64) -> Pick {
        let slots = self.slots.load();
        match fresh(&slots, version)
            .find_map(|slot| slot.reserve(100))
            .or_else(|| reserve_fewest_resets(&slots, version))
        {
            Some(permit) if self.has_spare(version) => Pick::Free(permit),
            Some(permit) => Pick::FreeButGrow(permit),
            None => Pick::Full,
        }
    }

    /// Returns whether enough streams are free, so that no new connection is needed yet: over all connections, at least
    /// a fifth of one connection's streams.
    pub(crate) fn has_spare(&self, version: u64) -> bool {
        let slots = self.slots.load();
        let fresh = || fresh(&slots, version);
        let free_streams: usize = fresh().map(|slot| slot.allowed().saturating_sub(slot.streams())).sum();
        fresh().next_back().is_some_and(|last| free_streams >= (last.allowed() / 5).max(1))
    }

    /// Reserves a stream on an idle connection of this runtime: no stream is open, and all responses were read to their
    /// ends.
    pub(crate) fn reserve_idle(&self, version: u64, here: runtime::Id) -> Option<StreamPermit> {
        let slots = self.slots.load();
        let usable = slots.iter().filter(|slot| slot.is_usable(version) && slot.runtime == here);
        usable.filter(|slot| slot.counts.is_left_clean()).find_map(|slot| slot.reserve_below(slot.allowed().min(1)))
    }

    pub(crate) fn most_free_streams(&self, version: u64) -> Option<(usize, Arc<Slot>)> {
        let slots = self.slots.load();
        let usable = slots.iter().filter(|slot| slot.is_usable(version));
        let rooms = usable.map(|slot| (slot.allowed().saturating_sub(slot.streams()), slot));
        rooms.max_by_key(|(free_streams, _)| *free_streams).map(|(free_streams, slot)| (free_streams, slot.clone()))
    }

    pub(crate) fn idle(&self) -> Option<u64> {
        self.slots.load().iter().find(|slot| slot.streams() == 0).map(|slot| slot.id)
    }

    /// Returns the number of connections with credentials of this version. This includes a connection with too many
    /// resets, as long as the connection has open streams.
    pub(crate) fn usable(&self, version: u64) -> usize {
        self.slots.load().iter().filter(|slot| slot.is_usable(version) && !slot.is_exhausted()).count()
    }

    /// Returns whether there is neither a connection nor a connection attempt.
    pub(crate) fn is_unused(&self) -> bool {
        self.slots.load().is_empty() && self.dial.lock().as_ref().is_none_or(|dial| dial.outcome().is_some())
    }

    /// Returns the current connection attempt with credentials of this version.
    pub(crate) fn dial_under_way(&self, version: u64) -> Option<Dial> {
        under_way(&self.dial.lock(), version)
    }

    /// Returns the current connection attempt with credentials of this version. Starts an attempt with `begin` if there
    /// is none.
    pub(crate) fn join_dial(&self, version: u64, begin: impl FnOnce() -> SharedDial) -> Dial {
        let mut dial = self.dial.lock();
        match under_way(&dial, version) {
            Some(dial) => dial,
            None => begin_dial(&mut dial, version, begin),
        }
    }

    /// Like [`join_dial`](Self::join_dial), for connections that fill one after the other. `None` if a connection
    /// attempt that has just ended added enough free streams.
    pub(crate) fn join_needed_dial(&self, version: u64, begin: impl FnOnce() -> SharedDial) -> Option<Dial> {
        let mut dial = self.dial.lock();
        match under_way(&dial, version) {
            Some(dial) => Some(dial),
            // The check needs the lock, because a connection attempt adds its connection before the attempt ends.
            None if self.has_spare(version) => None,
            None => Some(begin_dial(&mut dial, version, begin)),
        }
    }

    /// Returns whether a recent connection attempt has failed.
    pub(crate) fn has_just_failed(&self) -> bool {
        let dial = self.dial.lock();
        let failed = |dial: &Dial| dial.outcome().is_some_and(|outcome| outcome.is_err());
        dial.as_ref().is_some_and(|dial| dial.begun.elapsed() < PAUSE_AFTER_FAILURE && failed(dial))
    }

    /// Adds a connection to the pool. Removes connections that get no more requests: closed connections, connections
    /// with too many resets and no open stream, and connections with older credentials. A request that started with
    /// older credentials may still add a connection, which does not replace newer connections.
    pub(crate) fn push(&self, slot: Arc<Slot>) {
        let stays =
            |other: &Arc<Slot>| other.version >= slot.version && !other.sender.is_closed() && !other.is_exhausted();
        self.slots.rcu(|slots| {
            let mut slots: Vec<_> = slots.iter().filter(|other| stays(other)).cloned().collect();
            slots.push(slot.clone());
            slots
        });
    }

    pub(crate) fn remove(&self, id: u64) {
        self.slots.rcu(|slots| slots.iter().filter(|slot| slot.id != id).cloned().collect::<Vec<_>>());
    }

    /// Removes idle connections that had no request since the last call, or that had too many resets. A request that is
    /// just starting on such a connection keeps the connection open until the request ends.
    pub(crate) fn reap(&self) {
        let is_unused = |slot: &Arc<Slot>| !slot.counts.used.swap(false, Ordering::Relaxed) || slot.has_many_resets();
        let idle = |slot: &Arc<Slot>| slot.streams() == 0 && is_unused(slot);
        let unused: Vec<u64> = self.slots.load().iter().filter(|slot| idle(slot)).map(|slot| slot.id).collect();
        for id in unused {
            self.remove(id);
        }
    }

    /// Returns the number of streams that one connection allows. `None` without a connection.
    pub(crate) fn streams_of_one(&self) -> Option<usize> {
        self.slots.load().last().map(|slot| slot.allowed())
    }

    pub(crate) fn statistics(&self) -> (usize, usize) {
        let slots = self.slots.load();
        (slots.len(), slots.iter().map(|slot| slot.streams()).sum())
    }
}

/// Returns the connections with credentials of this version and few resets.
fn fresh(slots: &[Arc<Slot>], version: u64) -> impl DoubleEndedIterator<Item = &Arc<Slot>> {
    slots.iter().filter(move |slot| slot.is_usable(version) && !slot.has_many_resets())
}

/// Reserves a stream on the connection with the fewest resets. Called when all connections with few resets are full.
/// Without this choice, one client that resets many streams could exhaust each new connection, and other clients would
/// wait for ever.
fn reserve_fewest_resets(slots: &[Arc<Slot>], version: u64) -> Option<StreamPermit> {
    let has_capacity = |slot: &&Arc<Slot>| slot.is_usable(version) && slot.streams() < slot.allowed();
    let best = slots.iter().filter(has_capacity).min_by_key(|slot| slot.counts.broken_off.load(Ordering::Relaxed));
    best.and_then(|slot| slot.reserve(100))
}

fn under_way(dial: &Option<Dial>, version: u64) -> Option<Dial> {
    dial.as_ref().filter(|dial| dial.version == version && dial.outcome().is_none()).cloned()
}

fn begin_dial(dial: &mut Option<Dial>, version: u64, begin: impl FnOnce() -> SharedDial) -> Dial {
    let begun = Dial { begun: Instant::now(), version, ended: begin() };
    *dial = Some(begun.clone());
    begun
}

#[cfg(test)]
mod tests {
    use hyper_util::rt::{TokioExecutor, TokioIo};

    use super::*;
    use crate::pool::stream_counts::{BROKEN_OFF_MAX, SentStream};

    async fn slot(id: u64, streams: usize) -> Arc<Slot> {
        let (near, far) = tokio::io::duplex(64 << 10);
        let started = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(near));
        let (sender, connection) = started.await.unwrap();
        tokio::spawn(async move {
            let _far = far;
            let _ended = connection.await;
        });
        let counts = Arc::new(StreamCounts::new(streams));
        let (sender, runtime) = (RequestSender::Usual(sender), runtime::Handle::current().id());
        Arc::new(Slot { id, version: 1, runtime, sender, counts })
    }

    async fn connections(streams: usize) -> (Connections, runtime::Id) {
        let connections = Connections::default();
        connections.push(slot(1, streams).await);
        (connections, runtime::Handle::current().id())
    }

    fn free_streams(picked: Pick) -> Option<StreamPermit> {
        match picked {
            Pick::Free(permit) => Some(permit),
            Pick::FreeButGrow(_) | Pick::Full => None,
        }
    }

    #[tokio::test]
    async fn connection_with_unsent_requests_is_not_treated_as_having_many_resets() {
        let (connections, here) = connections(64).await;
        for _ in 0..2 * BROKEN_OFF_MAX {
            // Neither of these two streams is reset: the first carries no request, and the request of the second was
            // returned unsent.
            drop(free_streams(connections.pick(1, here)).expect("room"));
            let unsent = free_streams(connections.pick(1, here)).expect("room");
            SentStream::on(&unsent.slot().counts).complete();
        }
        assert!(connections.reserve_idle(1, here).is_some(), "nothing was left unread on it");
        for _ in 0..BROKEN_OFF_MAX {
            let reset = free_streams(connections.pick(1, here)).expect("room");
            drop(SentStream::on(&reset.slot().counts));
        }
        assert!(matches!(connections.pick(1, here), Pick::FreeButGrow(_)), "it is to be replaced");
    }

    /// Each case has the number of open streams on each connection. The test checks which connection gets the next
    /// request, and whether a new connection should be opened.
    #[tokio::test]
    async fn streams_are_spread_over_connections_before_one_is_full() {
        let (connections, here) = connections(64).await;
        let mut permits = Vec::new();
        for _ in 0..SPREAD_FROM {
            permits.push(free_streams(connections.pick_spread(1, here, 2)).expect("few streams need one connection"));
        }
        assert!(matches!(connections.pick_spread(1, here, 1), Pick::Free(_)), "where one is enough it is filled");
        let Pick::FreeButGrow(ninth) = connections.pick_spread(1, here, 2) else { panic!("another is to be dialed") };
        permits.push(ninth);
        connections.push(slot(2, 64).await);
        let mut take = |count| {
            for _ in 0..count {
                permits.push(free_streams(connections.pick_spread(1, here, 2)).expect("room on two"));
            }
            connections.slots.load().iter().map(|slot| slot.streams()).collect::<Vec<_>>()
        };
        assert_eq!(take(7), [9, 7], "the new one is filled as far as the first");
        assert_eq!(take(13), [15, 14], "then each gets what the other has");
        assert_eq!(take(73), [51, 51], "to 80 % of what each allows");
        assert!(
            matches!(connections.pick_spread(1, here, 2), Pick::FreeButGrow(_)),
            "the next one is due as without spreading"
        );
    }

    #[tokio::test]
    async fn connection_with_many_resets_is_used_only_if_the_others_are_full() {
        let (connections, here) = connections(64).await;
        let reset_prone = free_streams(connections.pick(1, here)).expect("room");
        for _ in 0..BROKEN_OFF_MAX {
            drop(SentStream::on(&reset_prone.slot().counts));
        }
        connections.push(slot(2, 1).await);
        let other = free_streams(connections.pick(1, here)).expect("room on the other");
        assert_eq!(other.slot().id, 2);
        let Pick::FreeButGrow(last) = connections.pick(1, here) else { panic!("another is to be dialed") };
        assert_eq!(last.slot().id, 1);
        assert!(matches!(connections.pick(2, here), Pick::Full), "with other credentials");
    }

    #[tokio::test]
    async fn connection_with_many_resets_is_kept_until_its_last_stream_ends() {
        let (connections, here) = connections(64).await;
        let reset_prone = free_streams(connections.pick(1, here)).expect("room");
        for _ in 0..BROKEN_OFF_MAX {
            drop(SentStream::on(&reset_prone.slot().counts));
        }
        assert_eq!(connections.usable(1), 1);
        drop(reset_prone);
        assert_eq!(connections.usable(1), 0);
    }

    #[tokio::test]
    async fn next_connection_opens_when_80_percent_of_streams_are_used() {
        let (connections, _) = connections(100).await;
        let mut permits = Vec::new();
        for place in 1..=100 {
            match connections.pick_first(1) {
                Pick::Free(permit) if place <= 80 => permits.push(permit),
                Pick::FreeButGrow(permit) if place > 80 => permits.push(permit),
                _ => panic!("place {place}"),
            }
        }
        assert!(matches!(connections.pick_first(1), Pick::Full));
        let begin = || std::future::ready(Ok(())).boxed().shared();
        assert!(connections.join_needed_dial(1, begin).is_some());
        permits.truncate(80);
        assert!(connections.join_needed_dial(1, begin).is_none(), "there is room again");
    }
}
