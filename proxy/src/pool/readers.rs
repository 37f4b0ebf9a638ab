//! Connections for clients' long-running requests other than watches, by reader.
//!
//! h2 ends a connection, with all its streams, when unread DATA frames on it have cost too much: each of fewer than 256
//! bytes takes the difference off a budget of half the connection's window (`data_frame_budget` in h2's
//! `proto/streams/counts.rs`). A log's workload decides about the size of its frames, and a client about reading. So
//! each client's connection has connections of its own here, with few requests on each: a client that does not read
//! breaks only its own streams. Watches share connections of a different kind (`watch_connection.rs`), with small
//! windows.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime;
use tokio::time::Instant;

use crate::peer::Peer;
use crate::pool::connections::{Connections, Dial, PAUSE_AFTER_FAILURE, Pick, SharedDial, Slot, StreamPermit};

/// Requests on one connection: the streams that a client loses when it leaves one unread. 16: a dashboard follows about
/// as many logs at once.
pub(crate) const STREAMS: usize = 16;

/// Connections for each one that Tributary may have for its own questions: 96 for 32. With 16 requests on each they
/// carry as many as the 24 with 64 in the other lane. While fewer are in use, no client shares one with a different
/// client; a client with more than a dozen streams has several.
pub(crate) const CONNECTIONS_FOR_EACH: usize = 3;

/// Reader of an answer: the client's connection, or all readers without a known one.
pub(crate) type Reader = Option<Peer>;

/// Connections of each reader.
#[derive(Default)]
pub(crate) struct Readers {
    by_reader: Mutex<HashMap<Reader, Arc<Connections>>>,
    /// Result of the ended dial that started last.
    last_dial: Mutex<Option<LastDial>>,
}

/// Start of a dial, and whether it succeeded.
#[derive(Clone, Copy)]
struct LastDial {
    begun: Instant,
    is_success: bool,
}

impl Readers {
    /// Current dial of this reader, or one that `begin` starts.
    pub(crate) fn join_dial(&self, reader: Reader, version: u64, begin: impl FnOnce() -> SharedDial) -> Dial {
        self.by_reader.lock().entry(reader).or_default().join_dial(version, begin)
    }

    /// Adds a connection to this reader's.
    pub(crate) fn push(&self, reader: Reader, slot: Arc<Slot>) {
        self.by_reader.lock().entry(reader).or_default().push(slot);
    }

    /// Room on one of this reader's connections.
    pub(crate) fn pick(&self, reader: Reader, version: u64, here: runtime::Id) -> Pick {
        let own = self.by_reader.lock().get(&reader).cloned();
        own.map_or(Pick::Full, |own| own.pick(version, here))
    }

    /// Takes over an idle connection, on which all answers were read to the end, made with credentials of this version
    /// and driven in this runtime. So one `kubectl logs` after the other, each on a new connection, does not wait for a
    /// dial. A connection with unread data has spent some of its budget, and h2 gives that back late or never
    /// (`ignore_data` in `proto/streams/recv.rs`).
    pub(crate) fn adopt(&self, reader: Reader, version: u64, here: runtime::Id) -> Option<StreamPermit> {
        let mut by_reader = self.by_reader.lock();
        let reserve =
            |(of, connections): (&Reader, &Arc<Connections>)| Some((*of, connections.reserve_idle(version, here)?));
        let (of, permit) = by_reader.iter().find_map(reserve)?;
        if let Some(connections) = by_reader.get(&of) {
            connections.remove(permit.slot().id);
            forget_without(&mut by_reader, of);
        }
        by_reader.entry(reader).or_default().push(permit.slot().clone());
        Some(permit)
    }

    /// Room on anybody's connection, that with the most, where there may be no further ones.
    pub(crate) fn borrow(&self, version: u64) -> Option<StreamPermit> {
        let by_reader = self.by_reader.lock();
        let roomiest = by_reader.values().filter_map(|of| of.roomiest(version));
        roomiest.max_by_key(|(room, _)| *room)?.1.reserve(100)
    }

    /// Number of connections with credentials of this version, plus current dials of other readers.
    pub(crate) fn count(&self, version: u64, reader: Reader) -> usize {
        let by_reader = self.by_reader.lock();
        let of_one = |(of, connections): (&Reader, &Arc<Connections>)| {
            connections.usable(version) + usize::from(*of != reader && connections.dial_under_way(version).is_some())
        };
        by_reader.iter().map(of_one).sum()
    }

    /// A dial under way with credentials of this version, of whichever reader.
    pub(crate) fn dial_under_way(&self, version: u64) -> Option<Dial> {
        self.by_reader.lock().values().find_map(|of| of.dial_under_way(version))
    }

    /// Closes an idle connection, and returns whether there was one.
    pub(crate) fn close_idle(&self) -> bool {
        let mut by_reader = self.by_reader.lock();
        let Some((of, id)) = by_reader.iter().find_map(|(of, connections)| Some((*of, connections.idle()?))) else {
            return false;
        };
        if let Some(connections) = by_reader.get(&of) {
            connections.remove(id);
            forget_without(&mut by_reader, of);
        }
        true
    }

    /// Records the end of a dial for this reader. A late failure does not count after later successes.
    pub(crate) fn note_dial(&self, reader: Reader, begun: Instant, is_success: bool) {
        let mut last = self.last_dial.lock();
        if last.is_none_or(|last| last.begun <= begun) {
            *last = Some(LastDial { begun, is_success });
        }
        drop(last);
        forget_without(&mut self.by_reader.lock(), reader);
    }

    /// Whether a dial has failed not long ago. Otherwise each client would begin another, and each failure would mark
    /// the member unreachable.
    pub(crate) fn has_just_failed(&self) -> bool {
        let last = *self.last_dial.lock();
        last.is_some_and(|last| !last.is_success && last.begun.elapsed() < PAUSE_AFTER_FAILURE)
    }

    /// Forgets a connection that has ended, of any reader.
    pub(crate) fn remove(&self, id: u64) {
        self.by_reader.lock().retain(|_, of| {
            of.remove(id);
            !of.is_unused()
        });
    }

    /// Forgets connections without a request since the last call, and readers without connections.
    pub(crate) fn reap(&self) {
        self.by_reader.lock().retain(|_, of| {
            of.reap();
            !of.is_unused()
        });
    }

    /// Streams of a connection for requests; `None` without a connection.
    pub(crate) fn streams_of_one(&self) -> Option<usize> {
        self.by_reader.lock().values().find_map(|of| of.streams_of_one())
    }

    /// Numbers of connections and of streams on them.
    pub(crate) fn statistics(&self) -> (usize, usize) {
        let by_reader = self.by_reader.lock();
        let statistics = by_reader.values().map(|of| of.statistics());
        statistics.fold((0, 0), |(connections, streams), more| (connections + more.0, streams + more.1))
    }
}

/// Forgets a reader without a connection or a dial.
fn forget_without(by_reader: &mut HashMap<Reader, Arc<Connections>>, reader: Reader) {
    if by_reader.get(&reader).is_some_and(|of| of.is_unused()) {
        by_reader.remove(&reader);
    }
}
