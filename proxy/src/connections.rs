//! The HTTP/2 connections of a pool for one kind of request, which room they have, and the dial of the next one.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use hyper::client::conn::http2::SendRequest;
use parking_lot::Mutex;
use tokio::runtime;
use tokio::time::{Duration, Instant};
use tributary_apimachinery::body::Body;

use crate::error::ForwardError;

/// After a failed dial, how long those who have a connection already begin no other, counted from its start. 30 s:
/// where old connections go on and new ones fail, every request would begin another dial, and the member be called
/// unreachable by each. As long as the longest pause between two dials of an endpoint that was lost.
pub(crate) const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(30);

/// How many streams of a connection may have ended before their answers did; then another takes its place. 128: with those
/// that clients have open on it (64), fewer than the 500 whose handlers a kube-apiserver has run or wait before it closes
/// the connection with all that is on it, and than the 500 of which Envoy looks whether most were reset.
const BROKEN_OFF_MAX: usize = 128;

/// One HTTP/2 connection. It closes when its last request has ended and it is forgotten here.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) id: u64,
    pub(crate) version: u64,
    /// Where it was dialed and is driven.
    pub(crate) runtime: runtime::Id,
    pub(crate) sender: SendRequest<Body>,
    pub(crate) counts: Arc<StreamCounts>,
}

/// What the connection's task and its requests share.
#[derive(Debug)]
pub(crate) struct StreamCounts {
    open: AtomicUsize,
    allowed: AtomicUsize,
    /// How many were ever opened.
    opened: AtomicUsize,
    /// How many answers were read to the end.
    read_to_end: AtomicUsize,
    /// Set by requests, cleared by the reaper.
    used: AtomicBool,
}

impl StreamCounts {
    /// None yet, of so many.
    pub(crate) fn new(allowed: usize) -> Self {
        let [open, opened, read_to_end] = Default::default();
        Self { open, opened, read_to_end, allowed: allowed.into(), used: true.into() }
    }

    /// So many are allowed from now on.
    pub(crate) fn allow(&self, streams: usize) {
        self.allowed.store(streams, Ordering::Relaxed);
    }

    /// An answer has been read to its end.
    pub(crate) fn read_to_end(&self) {
        self.read_to_end.fetch_add(1, Ordering::Relaxed);
    }

    /// How many streams have ended before their answers did: most of them were reset for clients that had gone.
    fn broken_off(&self) -> usize {
        let [opened, read_to_end, open] =
            [&self.opened, &self.read_to_end, &self.open].map(|count| count.load(Ordering::Relaxed));
        opened.saturating_sub(read_to_end).saturating_sub(open)
    }

    fn is_left_clean(&self) -> bool {
        self.opened.load(Ordering::Relaxed) == self.read_to_end.load(Ordering::Relaxed)
    }
}

/// A stream that a request may open on a connection. Counted until dropped.
pub(crate) struct StreamPermit {
    slot: Arc<Slot>,
}

impl StreamPermit {
    /// A handle to send the request with.
    pub(crate) fn sender(&self) -> SendRequest<Body> {
        self.slot.sender.clone()
    }

    /// Its connection.
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
    /// Reserves a stream if fewer than `share` percent of the allowed ones are in use.
    pub(crate) fn reserve(self: &Arc<Self>, share: usize) -> Option<StreamPermit> {
        let allowed = self.allowed();
        let limit = if share >= 100 { allowed } else { (allowed.saturating_mul(share) / 100).max(allowed.min(1)) };
        self.reserve_below(limit)
    }

    /// Reserves a stream if fewer than `limit` are in use.
    fn reserve_below(self: &Arc<Self>, limit: usize) -> Option<StreamPermit> {
        let reserved =
            self.counts.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < limit).then_some(n + 1));
        reserved.ok()?;
        self.counts.opened.fetch_add(1, Ordering::Relaxed);
        self.counts.used.store(true, Ordering::Relaxed);
        Some(StreamPermit { slot: self.clone() })
    }

    /// How many streams are open.
    pub(crate) fn streams(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }

    fn allowed(&self) -> usize {
        self.counts.allowed.load(Ordering::Relaxed)
    }

    pub(crate) fn is_usable(&self, version: u64) -> bool {
        self.version == version && !self.sender.is_closed()
    }

    /// Whether so many of its streams were reset that the member may soon close it, with all that is on it. It takes new
    /// requests only until there is another.
    fn is_worn(&self) -> bool {
        self.counts.broken_off() >= BROKEN_OFF_MAX
    }
}

pub(crate) type SharedDial = Shared<BoxFuture<'static, Result<(), ForwardError>>>;

/// The HTTP/2 connections that the same requests may take.
#[derive(Default)]
pub(crate) struct Connections {
    slots: ArcSwap<Vec<Arc<Slot>>>,
    /// The dial that is under way: whoever needs a connection waits for the same one.
    dial: Mutex<Option<Dial>>,
}

/// A dial, when it began, and the version of the credentials that it is made with.
#[derive(Clone)]
pub(crate) struct Dial {
    pub(crate) begun: Instant,
    version: u64,
    pub(crate) ended: SharedDial,
}

impl Dial {
    /// How it ended, if it has. It is looked at here: where nobody waits for a dial, nobody else would see its end.
    pub(crate) fn outcome(&self) -> Option<Result<(), ForwardError>> {
        self.ended.clone().now_or_never()
    }
}

/// What there is for a request.
pub(crate) enum Pick {
    Room(StreamPermit),
    /// There is room, but it is time for another connection: the last streams are being used,
    /// it is driven in another runtime, or too much on it was reset.
    Tight(StreamPermit),
    Full,
}

impl Connections {
    /// Room on one of them.
    pub(crate) fn pick(&self, version: u64, here: runtime::Id) -> Pick {
        let slots = self.slots.load();
        let usable = || slots.iter().filter(|slot| slot.is_usable(version));
        let fresh = || usable().filter(|slot| !slot.is_worn());
        let ours = || fresh().filter(|slot| slot.runtime == here);
        if let Some(permit) = ours().find_map(|slot| slot.reserve(80)) {
            return Pick::Room(permit);
        }
        let roomy = fresh().find_map(|slot| slot.reserve(80));
        let any = || ours().chain(fresh()).chain(usable()).find_map(|slot| slot.reserve(100));
        roomy.or_else(any).map_or(Pick::Full, Pick::Tight)
    }

    /// A stream on a connection that is driven in this runtime and has none, if all answers on it were read to the end.
    pub(crate) fn reserve_idle(&self, version: u64, here: runtime::Id) -> Option<StreamPermit> {
        let slots = self.slots.load();
        let usable = slots.iter().filter(|slot| slot.is_usable(version) && slot.runtime == here);
        usable.filter(|slot| slot.counts.is_left_clean()).find_map(|slot| slot.reserve_below(slot.allowed().min(1)))
    }

    /// The connection with the most room, and how many streams that is.
    pub(crate) fn roomiest(&self, version: u64) -> Option<(usize, Arc<Slot>)> {
        let slots = self.slots.load();
        let usable = slots.iter().filter(|slot| slot.is_usable(version));
        let rooms = usable.map(|slot| (slot.allowed().saturating_sub(slot.streams()), slot));
        rooms.max_by_key(|(room, _)| *room).map(|(room, slot)| (room, slot.clone()))
    }

    /// A connection without a stream.
    pub(crate) fn idle(&self) -> Option<u64> {
        self.slots.load().iter().find(|slot| slot.streams() == 0).map(|slot| slot.id)
    }

    /// How many there are with credentials of this version, without those that are to be replaced.
    pub(crate) fn usable(&self, version: u64) -> usize {
        self.slots.load().iter().filter(|slot| slot.is_usable(version) && !slot.is_worn()).count()
    }

    /// Whether there is no connection, nor is one dialed.
    pub(crate) fn is_unused(&self) -> bool {
        self.slots.load().is_empty() && self.dial.lock().as_ref().is_none_or(|dial| dial.outcome().is_some())
    }

    /// The dial under way with credentials of this version.
    pub(crate) fn dial_under_way(&self, version: u64) -> Option<Dial> {
        let dial = self.dial.lock();
        dial.as_ref().filter(|dial| dial.version == version && dial.outcome().is_none()).cloned()
    }

    /// The dial under way with credentials of this version, or one that `begin` begins.
    pub(crate) fn join_dial(&self, version: u64, begin: impl FnOnce() -> SharedDial) -> Dial {
        let mut dial = self.dial.lock();
        if let Some(dial) = dial.as_ref().filter(|dial| dial.version == version && dial.outcome().is_none()) {
            return dial.clone();
        }
        let begun = Dial { begun: Instant::now(), version, ended: begin() };
        *dial = Some(begun.clone());
        begun
    }

    /// Whether a dial that began not long ago has failed.
    pub(crate) fn has_just_failed(&self) -> bool {
        let dial = self.dial.lock();
        let failed = |dial: &Dial| dial.outcome().is_some_and(|outcome| outcome.is_err());
        dial.as_ref().is_some_and(|dial| dial.begun.elapsed() < PAUSE_AFTER_FAILURE && failed(dial))
    }

    /// Adds a connection and forgets those that take no more requests: closed ones, those on which too much was reset, and
    /// those of older credentials. A request that began with the older ones may still add one, which takes nothing from those of newer ones.
    pub(crate) fn push(&self, slot: Arc<Slot>) {
        let stays = |other: &Arc<Slot>| other.version >= slot.version && !other.sender.is_closed() && !other.is_worn();
        self.slots.rcu(|slots| {
            let mut slots: Vec<_> = slots.iter().filter(|other| stays(other)).cloned().collect();
            slots.push(slot.clone());
            slots
        });
    }

    pub(crate) fn remove(&self, id: u64) {
        self.slots.rcu(|slots| slots.iter().filter(|slot| slot.id != id).cloned().collect::<Vec<_>>());
    }

    /// Forgets connections without a request since the last call. Nothing is lost if one gets a request at this moment:
    /// the request keeps it open.
    pub(crate) fn reap(&self) {
        let idle = |slot: &Arc<Slot>| slot.streams() == 0 && !slot.counts.used.swap(false, Ordering::Relaxed);
        let gone: Vec<u64> = self.slots.load().iter().filter(|slot| idle(slot)).map(|slot| slot.id).collect();
        for id in gone {
            self.remove(id);
        }
    }

    /// How many streams a connection has for requests that the member lets through; `None` where there is none yet.
    pub(crate) fn streams_of_one(&self) -> Option<usize> {
        self.slots.load().last().map(|slot| slot.allowed())
    }

    pub(crate) fn statistics(&self) -> (usize, usize) {
        let slots = self.slots.load();
        (slots.len(), slots.iter().map(|slot| slot.streams()).sum())
    }
}
