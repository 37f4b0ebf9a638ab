//! Connections to clusters that support only HTTP/1.1: one request at a time on each connection. Idle connections are
//! kept.
//!
//! Each request in flight occupies a connection, and a watch occupies it for its whole duration.
//! [`crate::ClientTuning::max_http1_requests`] limits short requests and long-running requests separately, so that
//! watches cannot block reads.

use std::sync::Arc;

use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use tokio::runtime;
use tokio::time::{Duration, Instant};
use tributary_apimachinery::Permit;
use tributary_apimachinery::body::Body;

/// Maximal number of idle connections. 64: more connections are idle only after a burst of requests.
const MAX_IDLE: usize = 64;

#[derive(Debug)]
struct IdleConnection {
    sender: SendRequest<Body>,
    since: Instant,
    version: u64,
    /// The runtime that opened the connection and drives it.
    runtime: runtime::Id,
}

/// The idle connections of one member; the last used connection comes first.
#[derive(Debug, Default)]
pub(crate) struct IdleConnections {
    idle: Mutex<Vec<IdleConnection>>,
}

/// A connection in use. When dropped, the connection becomes idle if it can accept another request. A connection whose
/// last response was not read to the end is closed.
#[derive(Debug)]
pub(crate) struct Checkout {
    sender: Option<SendRequest<Body>>,
    version: u64,
    runtime: runtime::Id,
    /// Permit for the request. `None` if the connection was opened before any request used it.
    permit: Option<Permit>,
    home: Arc<IdleConnections>,
}

impl IdleConnections {
    /// Takes an idle connection with credentials of this version. Prefers connections of this runtime, and among these
    /// the last used connection.
    pub(crate) fn reuse_connection(self: &Arc<Self>, version: u64, here: runtime::Id) -> Option<Checkout> {
        let mut idle = self.idle.lock();
        // Connections with older credentials are closed. Connections with newer credentials stay for other requests.
        idle.retain(|idle| idle.version >= version && !idle.sender.is_closed());
        let last_of = |wanted: &dyn Fn(&IdleConnection) -> bool| {
            idle.iter().rposition(|idle| idle.version == version && wanted(idle))
        };
        let last = last_of(&|idle| idle.runtime == here).or_else(|| last_of(&|_| true))?;
        let IdleConnection { sender, runtime, .. } = idle.remove(last);
        Some(self.checkout(sender, version, runtime))
    }

    pub(crate) fn checkout(
        self: &Arc<Self>,
        sender: SendRequest<Body>,
        version: u64,
        runtime: runtime::Id,
    ) -> Checkout {
        Checkout { sender: Some(sender), version, runtime, permit: None, home: self.clone() }
    }

    pub(crate) fn len(&self) -> usize {
        self.idle.lock().len()
    }

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
    pub(crate) fn with_permit(self, permit: Permit) -> Self {
        let mut with_permit = self;
        with_permit.permit = Some(permit);
        with_permit
    }

    pub(crate) fn sender(&mut self) -> Option<&mut SendRequest<Body>> {
        self.sender.as_mut()
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let (Some(mut sender), Ok(handle)) = (self.sender.take(), runtime::Handle::try_current()) else {
            return;
        };
        let (home, version, runtime, permit) = (self.home.clone(), self.version, self.runtime, self.permit.take());
        if sender.is_ready() {
            home.put(sender, version, runtime);
        } else if !sender.is_closed() {
            handle.spawn(async move {
                // The connection is in use until the response has been read.
                let _permit = permit;
                if sender.ready().await.is_ok() {
                    home.put(sender, version, runtime);
                }
            });
        }
    }
}
