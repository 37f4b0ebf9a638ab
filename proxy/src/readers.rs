//! The connections for clients' long-running requests, by who reads the answers.
//!
//! h2 ends a connection, with all its streams, once the DATA frames on it that nobody has read yet have cost too much:
//! each of fewer than 256 bytes takes what it is short of them off a budget of half the connection's window
//! (`data_frame_budget` in h2's `proto/streams/counts.rs`), because it takes far more memory than its bytes. How small
//! frames are is for workloads to decide where their logs are followed, and events of small objects are as small; whether
//! they are read is for clients. So each connection of a client has connections of its own here, with few requests on
//! each: whoever does not read breaks a few streams of its own, and nobody else's.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime;
use tokio::time::Instant;

use crate::connections::{Connections, Dial, PAUSE_AFTER_FAILURE, Pick, StreamPermit};
use crate::peer::Peer;

/// The most requests on one connection: what one client loses of its own where it leaves one unread. 16: a dashboard
/// follows about as many logs at once.
pub(crate) const STREAMS: usize = 16;

/// How many connections there may be for each one that this process may have for itself: 96 where those are 32. With 16
/// requests on each they carry as many as the 24 that clients have in the other lane, with 64. While no more clients
/// than that follow something at an endpoint at once, none shares a connection with another.
pub(crate) const CONNECTIONS_FOR_EACH: usize = 3;

/// Who reads: the connection of a client, or whoever came by none that is known.
pub(crate) type Reader = Option<Peer>;

/// The connections of each reader. Whoever has none has no place here.
#[derive(Default)]
pub(crate) struct Readers {
    by_reader: Mutex<HashMap<Reader, Arc<Connections>>>,
    /// When the last dial failed, if none has succeeded since.
    failed: Mutex<Option<Instant>>,
}

impl Readers {
    /// Those of one reader, to dial another or to add it.
    pub(crate) fn of(&self, reader: Reader) -> Arc<Connections> {
        self.by_reader.lock().entry(reader).or_default().clone()
    }

    /// Room on one of this reader's own.
    pub(crate) fn pick(&self, reader: Reader, version: u64, here: runtime::Id) -> Pick {
        let own = self.by_reader.lock().get(&reader).cloned();
        own.map_or(Pick::Full, |own| own.pick(version, here))
    }

    /// A connection on which nobody has a request, and whose answers were all read to the end, made with credentials of
    /// this version and driven in this runtime. It is this reader's from now on: where one `kubectl logs` follows the
    /// other, each a connection of its own, none waits for a dial. One that has been left unread has spent some of its
    /// budget, and h2 gives that back late or never (`ignore_data` in `proto/streams/recv.rs`).
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

    /// Room on anybody's connection, that with the fewest requests, where there may be no further ones.
    pub(crate) fn share(&self, version: u64) -> Option<StreamPermit> {
        let by_reader = self.by_reader.lock();
        let roomiest = by_reader.values().filter_map(|of| of.least_used(version));
        roomiest.min_by_key(|slot| slot.streams())?.reserve(100)
    }

    /// How many connections there are with credentials of this version, and how many more are dialed for others than
    /// this reader.
    pub(crate) fn count(&self, version: u64, reader: Reader) -> usize {
        let by_reader = self.by_reader.lock();
        let of_one = |(of, connections): (&Reader, &Arc<Connections>)| {
            connections.usable(version) + usize::from(*of != reader && connections.dialing(version).is_some())
        };
        by_reader.iter().map(of_one).sum()
    }

    /// A dial under way with credentials of this version, of whichever reader.
    pub(crate) fn dialing(&self, version: u64) -> Option<Dial> {
        self.by_reader.lock().values().find_map(|of| of.dialing(version))
    }

    /// Closes a connection on which nobody has a request, and says whether there was one.
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

    /// Notes how a dial for this reader has ended.
    pub(crate) fn dialed(&self, reader: Reader, is_success: bool) {
        *self.failed.lock() = (!is_success).then(Instant::now);
        forget_without(&mut self.by_reader.lock(), reader);
    }

    /// Whether a dial has failed not long ago. As many would be begun as clients come, and each that fails says of the
    /// member that it is out of reach.
    pub(crate) fn has_just_failed(&self) -> bool {
        self.failed.lock().is_some_and(|failed| failed.elapsed() < PAUSE_AFTER_FAILURE)
    }

    /// Forgets a connection that has ended, whosesoever it is by now.
    pub(crate) fn remove(&self, id: u64) {
        self.by_reader.lock().retain(|_, of| {
            of.remove(id);
            !of.is_unused()
        });
    }

    /// Forgets connections that have had no request since the last call, and readers who have none.
    pub(crate) fn reap(&self) {
        self.by_reader.lock().retain(|_, of| {
            of.reap();
            !of.is_unused()
        });
    }

    /// How many streams a connection has for requests that the member lets through; `None` where there is none yet.
    pub(crate) fn streams_of_one(&self) -> Option<usize> {
        self.by_reader.lock().values().find_map(|of| of.streams_of_one())
    }

    /// How many connections there are, and how many streams on them.
    pub(crate) fn statistics(&self) -> (usize, usize) {
        let by_reader = self.by_reader.lock();
        let statistics = by_reader.values().map(|of| of.statistics());
        statistics.fold((0, 0), |(connections, streams), more| (connections + more.0, streams + more.1))
    }
}

/// Forgets a reader who has no connection and dials none.
fn forget_without(by_reader: &mut HashMap<Reader, Arc<Connections>>, reader: Reader) {
    if by_reader.get(&reader).is_some_and(|of| of.is_unused()) {
        by_reader.remove(&reader);
    }
}
