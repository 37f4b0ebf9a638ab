//! The connections for what workloads write: logs, and what is proxied to pods, services and nodes.
//!
//! h2 ends a connection, with all its streams, once the DATA frames on it that nobody has read yet have cost too much:
//! each of fewer than 256 bytes takes what it is short of them off a budget of half the connection's window
//! (`data_frame_budget` in h2's `proto/streams/counts.rs`), because it takes far more memory than its bytes. How small
//! frames are a workload decides, and whether they are read a client; what kube-apiservers write themselves is longer.
//! So each connection of a client has connections of its own here, with few requests on each: whoever does not read
//! breaks a few streams of its own, and nobody else's.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime;

use crate::connections::{Connections, Pick, StreamPermit};
use crate::peer::Peer;

/// The most requests on one connection. 16: so many logs of one client break at most where it leaves one unread, and
/// 128 connections carry the 1,536 long-running requests that clients may have at an endpoint.
pub(crate) const STREAMS: usize = 16;

/// How many connections there may be for each one that clients have for all their watches together. 128 where those
/// are 32: while no more clients than that read logs of an endpoint at once, none shares a connection with another.
pub(crate) const CONNECTIONS_FOR_EACH: usize = 4;

/// Who reads: the connection of a client, or whoever came by none that is known.
pub(crate) type Reader = Option<Peer>;

/// The connections of each reader.
#[derive(Default)]
pub(crate) struct Workloads {
    by_reader: Mutex<HashMap<Reader, Arc<Connections>>>,
}

impl Workloads {
    /// Those of one reader.
    pub(crate) fn of(&self, reader: Reader) -> Arc<Connections> {
        self.by_reader.lock().entry(reader).or_default().clone()
    }

    /// A connection on which nobody has a request, made with credentials of this version and driven in this runtime. It
    /// is this reader's from now on: where one `kubectl logs` follows the other, each a connection of its own, none
    /// waits for a dial.
    pub(crate) fn adopt(&self, reader: Reader, version: u64, here: runtime::Id) -> Option<StreamPermit> {
        let by_reader = self.by_reader.lock();
        let (of, permit) = by_reader.values().find_map(|of| Some((of, of.reserve_idle(version, here)?)))?;
        of.remove(permit.slot().id);
        by_reader.get(&reader)?.push(permit.slot().clone());
        Some(permit)
    }

    /// Room on anybody's connection, where there may be no further ones.
    pub(crate) fn share(&self, version: u64, here: runtime::Id) -> Option<StreamPermit> {
        self.by_reader.lock().values().find_map(|of| match of.pick(version, here) {
            Pick::Room(permit) | Pick::Tight(permit) => Some(permit),
            Pick::Full => None,
        })
    }

    /// How many connections there are with credentials of this version, and how many more are dialed for others than
    /// this reader.
    pub(crate) fn count(&self, version: u64, reader: Reader) -> usize {
        let by_reader = self.by_reader.lock();
        let dialed = |of: Reader, connections: &Connections| of != reader && connections.is_dialing();
        let of_one = |(of, connections): (&Reader, &Arc<Connections>)| {
            connections.usable(version) + usize::from(dialed(*of, connections))
        };
        by_reader.iter().map(of_one).sum()
    }

    /// Forgets a connection that has ended, whosesoever it is by now.
    pub(crate) fn remove(&self, id: u64) {
        self.by_reader.lock().values().for_each(|of| of.remove(id));
    }

    /// Forgets connections that have had no request since the last call, and readers who have none.
    pub(crate) fn reap(&self) {
        self.by_reader.lock().retain(|_, of| {
            of.reap();
            // Whoever holds it is about to add a connection.
            !of.is_empty() || of.is_dialing() || Arc::strong_count(of) > 1
        });
    }

    /// How many connections there are, and how many streams on them.
    pub(crate) fn statistics(&self) -> (usize, usize) {
        let by_reader = self.by_reader.lock();
        let statistics = by_reader.values().map(|of| of.statistics());
        statistics.fold((0, 0), |(connections, streams), more| (connections + more.0, streams + more.1))
    }
}
