//! The connections for what lasts of clients' requests but watches, by who reads the answers.
//!
//! h2 ends a connection, with all its streams, once the DATA frames on it that nobody has read yet have cost too much:
//! each of fewer than 256 bytes takes what it is short of them off a budget of half the connection's window
//! (`data_frame_budget` in h2's `proto/streams/counts.rs`), because it takes far more memory than its bytes. How small
//! the frames of a log are, its workload decides; whether they are read, a client does. So each connection of a client
//! has connections of its own here, with few requests on each: whoever does not read breaks a few streams of its own,
//! and nobody else's. Watches share connections of another kind (`watch_connection.rs`), whose streams have small
//! windows.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime;
use tokio::time::Instant;

use crate::peer::Peer;
use crate::pool::connections::{Connections, Dial, PAUSE_AFTER_FAILURE, Pick, SharedDial, Slot, StreamPermit};

/// The most requests on one connection: what one client loses of its own where it leaves one unread. 16: a dashboard
/// follows about as many logs at once.
pub(crate) const STREAMS: usize = 16;

/// How many connections there may be for each one that this process may have for itself: 96 where those are 32. With 16
/// requests on each they carry as many as the 24 that clients have in the other lane, with 64. While fewer are in use
/// at an endpoint, no client shares one with another; a client that follows more than a dozen things has several.
pub(crate) const CONNECTIONS_FOR_EACH: usize = 3;

/// Who reads: the connection of a client, or whoever came by none that is known.
pub(crate) type Reader = Option<Peer>;

/// The connections of each reader who has any.
#[derive(Default)]
pub(crate) struct Readers {
    by_reader: Mutex<HashMap<Reader, Arc<Connections>>>,
    /// Of the dials that have ended, how the one that began last did.
    last_dial: Mutex<Option<LastDial>>,
}

/// When a dial began, and whether it succeeded.
#[derive(Clone, Copy)]
struct LastDial {
    begun: Instant,
    is_success: bool,
}

impl Readers {
    /// The dial of this reader's that is under way, or one that `begin` begins.
    pub(crate) fn join_dial(&self, reader: Reader, version: u64, begin: impl FnOnce() -> SharedDial) -> Dial {
        self.by_reader.lock().entry(reader).or_default().join_dial(version, begin)
    }

    /// Adds a connection to this reader's.
    pub(crate) fn push(&self, reader: Reader, slot: Arc<Slot>) {
        self.by_reader.lock().entry(reader).or_default().push(slot);
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

    /// Room on anybody's connection, that with the most, where there may be no further ones.
    pub(crate) fn borrow(&self, version: u64) -> Option<StreamPermit> {
        let by_reader = self.by_reader.lock();
        let roomiest = by_reader.values().filter_map(|of| of.roomiest(version));
        roomiest.max_by_key(|(room, _)| *room)?.1.reserve(100)
    }

    /// How many connections there are with credentials of this version, and how many more are dialed for others than
    /// this reader.
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

    /// Notes how a dial for this reader has ended. One that failed late says nothing where later ones have succeeded.
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
