//! Connections to clusters that speak HTTP/1.1 only: one request at a time on each, and idle ones are kept.
//!
//! Each request in flight takes one, a watch for its whole duration; [`crate::ClientTuning::max_http1_requests`] bounds
//! them in each lane, so that watches leave room for reads.

use std::sync::Arc;

use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use tokio::runtime;
use tokio::time::{Duration, Instant};
use tributary_apimachinery::Permit;
use tributary_apimachinery::body::Body;

/// Idle connections that are kept. More than this are left over from a burst.
const MAX_IDLE: usize = 64;

#[derive(Debug)]
struct IdleConnection {
    sender: SendRequest<Body>,
    since: Instant,
    version: u64,
    /// Runtime in which it was dialed and is driven.
    runtime: runtime::Id,
}

/// The idle connections of one member, last used first.
#[derive(Debug, Default)]
pub(crate) struct IdleConnections {
    idle: Mutex<Vec<IdleConnection>>,
}

/// A connection in use. On drop it returns to the idle ones when it can take a request; if its last response was not
/// read to the end, it closes.
#[derive(Debug)]
pub(crate) struct Checkout {
    sender: Option<SendRequest<Body>>,
    version: u64,
    runtime: runtime::Id,
    /// Permit of the lane; `None` for a connection that was opened without a request.
    place: Option<Permit>,
    home: Arc<IdleConnections>,
}

impl IdleConnections {
    /// Takes the connection that was used last, if one of this credential version is still open:
    /// of this runtime rather than of another.
    pub(crate) fn reuse_connection(self: &Arc<Self>, version: u64, here: runtime::Id) -> Option<Checkout> {
        let mut idle = self.idle.lock();
        // Connections of older credentials are closed; those of newer ones belong to other requests.
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

    /// Closes connections that have been idle for longer than `age`.
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
    /// Adds the permit of its lane.
    pub(crate) fn placed(self, place: Permit) -> Self {
        let mut placed = self;
        placed.place = Some(place);
        placed
    }

    /// The connection, until the checkout is dropped.
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
                // The connection is in use until its answer has been read.
                let _place = place;
                if sender.ready().await.is_ok() {
                    home.put(sender, version, runtime);
                }
            });
        }
    }
}
