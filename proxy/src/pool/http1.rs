//! Connections to members that speak HTTP/1.1 only: one request at a time on each, and the idle ones are kept.
//!
//! Each request in flight takes one, a watch for as long as it lasts; [`crate::ClientTuning::max_http1_requests`]
//! bounds them in each lane, so that watches leave room for reads.

use std::sync::Arc;

use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use tokio::runtime;
use tokio::time::{Duration, Instant};
use tributary_apimachinery::Permit;
use tributary_apimachinery::body::Body;

/// Idle connections kept. More than this many at once are a burst; keeping all of them would outlive it.
const MAX_IDLE: usize = 64;

#[derive(Debug)]
struct IdleConnection {
    sender: SendRequest<Body>,
    since: Instant,
    version: u64,
    /// Where it was dialed and is driven.
    runtime: runtime::Id,
}

/// The idle connections of one member, last used first.
#[derive(Debug, Default)]
pub(crate) struct IdleConnections {
    idle: Mutex<Vec<IdleConnection>>,
}

/// A connection in use. Dropped, it goes back to the idle ones as soon as it can take another request; if its last
/// response was not read to the end, it closes instead.
#[derive(Debug)]
pub(crate) struct Checkout {
    sender: Option<SendRequest<Body>>,
    version: u64,
    runtime: runtime::Id,
    /// Its place among the lane's requests; `None` for a connection that was opened for whoever comes.
    place: Option<Permit>,
    home: Arc<IdleConnections>,
}

impl IdleConnections {
    /// Takes the connection that was used last, if one of this credential version is still open:
    /// of this runtime rather than of another.
    pub(crate) fn reuse_connection(self: &Arc<Self>, version: u64, here: runtime::Id) -> Option<Checkout> {
        let mut idle = self.idle.lock();
        // Those of older credentials are done with; those of newer ones are for others.
        idle.retain(|idle| idle.version >= version && !idle.sender.is_closed());
        let last_of = |wanted: &dyn Fn(&IdleConnection) -> bool| {
            idle.iter().rposition(|idle| idle.version == version && wanted(idle))
        };
        let last = last_of(&|idle| idle.runtime == here).or_else(|| last_of(&|_| true))?;
        let IdleConnection { sender, runtime, .. } = idle.remove(last);
        Some(self.checkout(sender, version, runtime))
    }

    /// A connection in use, which is driven in this runtime.
    pub(crate) fn checkout(
        self: &Arc<Self>,
        sender: SendRequest<Body>,
        version: u64,
        runtime: runtime::Id,
    ) -> Checkout {
        Checkout { sender: Some(sender), version, runtime, place: None, home: self.clone() }
    }

    pub(crate) fn len(&self) -> usize {
        self.idle.lock().len()
    }

    /// Closes what has been idle for longer than `age`.
    pub(crate) fn reap(&self, age: Duration) {
        self.idle.lock().retain(|idle| idle.since.elapsed() < age && !idle.sender.is_closed());
    }

    fn put(&self, sender: SendRequest<Body>, version: u64, runtime: runtime::Id) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(IdleConnection { sender, since: Instant::now(), version, runtime });
        }
    }
}

impl Checkout {
    /// The same in a place of its lane.
    pub(crate) fn placed(self, place: Permit) -> Self {
        let mut placed = self;
        placed.place = Some(place);
        placed
    }

    /// The connection. It is there until the checkout is dropped.
    pub(crate) fn sender(&mut self) -> Option<&mut SendRequest<Body>> {
        self.sender.as_mut()
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let (Some(mut sender), Ok(handle)) = (self.sender.take(), runtime::Handle::try_current()) else {
            return;
        };
        let (home, version, runtime, place) = (self.home.clone(), self.version, self.runtime, self.place.take());
        if sender.is_ready() {
            home.put(sender, version, runtime);
        } else if !sender.is_closed() {
            handle.spawn(async move {
                // As long as its answer is not read to the end the connection is in use.
                let _place = place;
                if sender.ready().await.is_ok() {
                    home.put(sender, version, runtime);
                }
            });
        }
    }
}
