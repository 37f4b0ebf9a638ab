//! Connections for clients' long-running requests other than watches. Each client connection (reader) has separate
//! connections to the cluster.
//!
//! h2 closes a connection with all its streams when unread DATA frames exceed a budget of half the connection's window.
//! Each frame of fewer than 256 bytes takes the difference to 256 from this budget (`data_frame_budget` in h2's
//! `proto/streams/counts.rs`). A workload decides the size of its log frames, and a client may leave them unread. With
//! separate connections, a client that does not read breaks only its own streams. Watches share other connections with
//! small windows (`watch_connection.rs`).

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime;
use tokio::time::Instant;

use crate::pool::connections::{Connections, Dial, PAUSE_AFTER_FAILURE, Pick, SharedDial, Slot, StreamPermit};

/// Maximal number of requests on one connection. If the client does not read one of the responses, all requests on the
/// connection may break. 16: a dashboard follows about as many logs at once.
pub(crate) const STREAMS: usize = 16;

/// Maximal number of readers' connections, as a multiple of the connections for Tributary's own requests. 3: 96 instead
/// of 32 connections. With 16 requests each, 96 connections carry as many requests as 24 connections with 64 requests
/// each. Until the maximum is reached, no two clients share a connection. A client with more than a dozen streams has
/// several connections.
pub(crate) const CONNECTIONS_FOR_EACH: usize = 3;

#[derive(Default)]
pub(crate) struct Readers {
    /// The address of the client's connection identifies a reader. `None` stands for all clients without an address.
    by_reader: Mutex<HashMap<Option<SocketAddr>, Arc<Connections>>>,
    /// Result of the last connection attempt that has ended. "Last" refers to the start of the attempts.
    last_dial: Mutex<Option<LastDial>>,
}

#[derive(Clone, Copy)]
struct LastDial {
    begun: Instant,
    is_success: bool,
}

impl Readers {
    /// Returns the current connection attempt for this reader. Starts an attempt with `begin` if there is none.
    pub(crate) fn join_dial(
        &self,
        reader: Option<SocketAddr>,
        version: u64,
        begin: impl FnOnce() -> SharedDial,
    ) -> Dial {
        self.by_reader.lock().entry(reader).or_default().join_dial(version, begin)
    }

    pub(crate) fn push(&self, reader: Option<SocketAddr>, slot: Arc<Slot>) {
        self.by_reader.lock().entry(reader).or_default().push(slot);
    }

    /// Reserves a stream on one of this reader's connections.
    pub(crate) fn pick(&self, reader: Option<SocketAddr>, version: u64, here: runtime::Id) -> Pick {
        let own = self.by_reader.lock().get(&reader).cloned();
        own.map_or(Pick::Full, |own| own.pick(version, here))
    }

    /// Takes over an idle connection of another reader, with credentials of this version and driven by this runtime.
    /// All responses on the connection must have been read to the end. So consecutive `kubectl logs` commands, each on
    /// a new client connection, do not wait for a connection attempt.
    ///
    /// A connection with unread data is not taken over. Unread data has spent a part of h2's budget, which h2 returns
    /// late or never (`ignore_data` in `proto/streams/recv.rs`).
    pub(crate) fn adopt(&self, reader: Option<SocketAddr>, version: u64, here: runtime::Id) -> Option<StreamPermit> {
        let mut by_reader = self.by_reader.lock();
        let reserve = |(of, connections): (&Option<SocketAddr>, &Arc<Connections>)| {
            Some((*of, connections.reserve_idle(version, here)?))
        };
        let (of, permit) = by_reader.iter().find_map(reserve)?;
        if let Some(connections) = by_reader.get(&of) {
            connections.remove(permit.slot().id);
            forget_without(&mut by_reader, of);
        }
        by_reader.entry(reader).or_default().push(permit.slot().clone());
        Some(permit)
    }

    /// Reserves a stream on the connection with the most free streams, of any reader. Called when the maximal number of
    /// connections is reached.
    pub(crate) fn borrow(&self, version: u64) -> Option<StreamPermit> {
        let by_reader = self.by_reader.lock();
        let most_free_streams = by_reader.values().filter_map(|of| of.most_free_streams(version));
        most_free_streams.max_by_key(|(room, _)| *room)?.1.reserve(100)
    }

    /// Returns the number of connections with credentials of this version, plus current connection attempts for other
    /// readers.
    pub(crate) fn count(&self, version: u64, reader: Option<SocketAddr>) -> usize {
        let by_reader = self.by_reader.lock();
        let of_one = |(of, connections): (&Option<SocketAddr>, &Arc<Connections>)| {
            connections.usable(version) + usize::from(*of != reader && connections.dial_under_way(version).is_some())
        };
        by_reader.iter().map(of_one).sum()
    }

    /// Returns a current connection attempt with credentials of this version, for any reader.
    pub(crate) fn dial_under_way(&self, version: u64) -> Option<Dial> {
        self.by_reader.lock().values().find_map(|of| of.dial_under_way(version))
    }

    /// Closes one idle connection. Returns whether an idle connection existed.
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

    /// Records the result of a connection attempt for this reader. A late failure of an earlier attempt does not
    /// replace a later success.
    pub(crate) fn record_dial(&self, reader: Option<SocketAddr>, begun: Instant, is_success: bool) {
        let mut last = self.last_dial.lock();
        if last.is_none_or(|last| last.begun <= begun) {
            *last = Some(LastDial { begun, is_success });
        }
        drop(last);
        forget_without(&mut self.by_reader.lock(), reader);
    }

    /// Returns whether a recent connection attempt of any reader has failed. If so, no new attempt is started. If each
    /// client started an attempt, each failure would make the member unreachable.
    pub(crate) fn has_just_failed(&self) -> bool {
        let last = *self.last_dial.lock();
        last.is_some_and(|last| !last.is_success && last.begun.elapsed() < PAUSE_AFTER_FAILURE)
    }

    pub(crate) fn remove(&self, id: u64) {
        self.by_reader.lock().retain(|_, of| {
            of.remove(id);
            !of.is_unused()
        });
    }

    /// Removes connections without a request since the last call, and readers without connections.
    pub(crate) fn reap(&self) {
        self.by_reader.lock().retain(|_, of| {
            of.reap();
            !of.is_unused()
        });
    }

    /// Returns the number of streams that one connection allows. `None` without a connection.
    pub(crate) fn streams_of_one(&self) -> Option<usize> {
        self.by_reader.lock().values().find_map(|of| of.streams_of_one())
    }

    pub(crate) fn statistics(&self) -> (usize, usize) {
        let by_reader = self.by_reader.lock();
        let statistics = by_reader.values().map(|of| of.statistics());
        statistics.fold((0, 0), |(connections, streams), more| (connections + more.0, streams + more.1))
    }
}

/// Removes a reader that has neither a connection nor a connection attempt.
fn forget_without(by_reader: &mut HashMap<Option<SocketAddr>, Arc<Connections>>, reader: Option<SocketAddr>) {
    if by_reader.get(&reader).is_some_and(|of| of.is_unused()) {
        by_reader.remove(&reader);
    }
}
