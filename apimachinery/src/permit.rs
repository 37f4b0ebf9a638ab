//! Permits that count against a limit until they are dropped.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A permit that counts against a limit until it is dropped, for example against a limit of concurrent requests. The
/// body of a response owns the permit of its request. One permit may combine several permits. Cost: one allocation.
#[must_use = "what it occupies is free again once it is dropped"]
pub struct Permit(Option<Box<dyn FnOnce() + Send>>);

impl Permit {
    /// Creates a permit. Dropping the permit calls `release`.
    pub fn new(release: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(release)))
    }

    /// Creates a permit that owns `guard`, so that dropping the permit drops `guard`. The fields of a tuple are dropped
    /// in order.
    pub fn from_guard(guard: impl Send + 'static) -> Self {
        Self::new(move || drop(guard))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(release) = self.0.take() {
            release();
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit")
    }
}

/// The permits of a request whose connection is upgraded (exec, port-forward, a WebSocket). The task that copies bytes
/// between client and cluster keeps a clone until the connection ends. Clones share the permits, and the last clone
/// releases the permits in the order of [`push`](Self::push).
#[derive(Clone, Debug, Default)]
pub struct TunnelPermits(Arc<Mutex<Vec<Permit>>>);

impl TunnelPermits {
    /// Adds a permit.
    pub fn push(&self, permit: Permit) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(permit);
    }
}

/// A permit that lasts until the cluster has completed a request, which may be after the client has disconnected.
/// Clones share the permit.
#[derive(Clone, Debug)]
pub struct RequestPermit(#[expect(dead_code, reason = "it is dropped, never read")] Arc<dyn Any + Send + Sync>);

impl RequestPermit {
    /// Creates a permit that owns `guard` and drops it with the permit's last clone. The fields of a tuple are dropped
    /// in order. Cost: one allocation.
    pub fn from_guard(guard: impl Send + Sync + 'static) -> Self {
        Self(Arc::new(guard))
    }
}

impl From<Permit> for RequestPermit {
    fn from(permit: Permit) -> Self {
        Self::from_guard(Mutex::new(permit))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Increments the counter, and returns a permit that decrements the counter.
    fn one(count: &Arc<AtomicUsize>) -> Permit {
        count.fetch_add(1, Ordering::Relaxed);
        let count = Arc::clone(count);
        Permit::new(move || {
            count.fetch_sub(1, Ordering::Relaxed);
        })
    }

    #[test]
    fn dropping_a_permit_decrements_the_request_counters_of_its_limits() {
        let [user, cluster] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let both = Permit::from_guard((one(&user), one(&cluster)));
        let other = one(&user);
        let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        assert_eq!((count(&user), count(&cluster)), (2, 1));
        drop(both);
        assert_eq!((count(&user), count(&cluster)), (1, 0));
        drop(other);
        assert_eq!(count(&user), 0);
    }
}
