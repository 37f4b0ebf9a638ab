//! Connections to members that speak HTTP/1.1 only: one request at a time on each, and the idle ones are kept.
//!
//! Their number has no limit but the requests in flight: every watch takes one, as it does with kubectl proxy.

use std::sync::Arc;

use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

use crate::body::Body;

/// Idle connections kept. More than this many at once are a burst; keeping all of them would outlive it.
const MAX_IDLE: usize = 64;

#[derive(Debug)]
struct Idle {
    sender: SendRequest<Body>,
    since: Instant,
    version: u64,
}

/// The idle connections of one member, last used first.
#[derive(Debug, Default)]
pub(crate) struct IdleConnections {
    idle: Mutex<Vec<Idle>>,
}

/// A connection in use. Dropped, it goes back to the idle ones as soon as it can take another request; if its last
/// response was not read to the end, it closes instead.
#[derive(Debug)]
pub(crate) struct Checkout {
    sender: Option<SendRequest<Body>>,
    version: u64,
    home: Arc<IdleConnections>,
}

impl IdleConnections {
    /// Takes the connection that was used last, if one of this credential version is still open.
    pub(crate) fn take(self: &Arc<Self>, version: u64) -> Option<Checkout> {
        let mut idle = self.idle.lock();
        while let Some(Idle { sender, version: made, .. }) = idle.pop() {
            if made == version && !sender.is_closed() {
                return Some(self.checkout(sender, version));
            }
        }
        None
    }

    /// A fresh connection, in use.
    pub(crate) fn checkout(self: &Arc<Self>, sender: SendRequest<Body>, version: u64) -> Checkout {
        Checkout { sender: Some(sender), version, home: self.clone() }
    }

    pub(crate) fn len(&self) -> usize {
        self.idle.lock().len()
    }

    /// Closes what has been idle for longer than `age`.
    pub(crate) fn reap(&self, age: Duration) {
        self.idle.lock().retain(|idle| idle.since.elapsed() < age && !idle.sender.is_closed());
    }

    fn put(&self, sender: SendRequest<Body>, version: u64) {
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.push(Idle { sender, since: Instant::now(), version });
        }
    }
}

impl Checkout {
    /// The connection. It is there until the checkout is dropped.
    pub(crate) fn sender(&mut self) -> Option<&mut SendRequest<Body>> {
        self.sender.as_mut()
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        let (Some(mut sender), Ok(runtime)) = (self.sender.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        let (home, version) = (self.home.clone(), self.version);
        if sender.is_ready() {
            home.put(sender, version);
        } else if !sender.is_closed() {
            runtime.spawn(async move {
                if sender.ready().await.is_ok() {
                    home.put(sender, version);
                }
            });
        }
    }
}
