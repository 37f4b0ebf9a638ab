//! The capacity for client connections, which all listeners of a process share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Semaphore;

use crate::metrics::ListenerMetrics;
use crate::settings::Bounds;
use crate::unauthenticated_connections::UnauthenticatedConnections;
use crate::unread::Unread;
use crate::user_connections::UserConnections;

/// The limits that all listeners with the same `ListenerCapacity` share: the connection slots, the unread bytes of
/// answers, and each user's part of the connections. The listeners also share the metrics.
#[derive(Debug)]
pub struct ListenerCapacity {
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) connections_max: usize,
    pub(crate) unread: Unread,
    pub(crate) unauthenticated_connections: Arc<UnauthenticatedConnections>,
    pub(crate) users: Arc<UserConnections>,
    pub(crate) metrics: Arc<ListenerMetrics>,
    has_listener: AtomicBool,
}

impl ListenerCapacity {
    /// Creates the capacity with these limits, and sets the limits in the metrics.
    pub fn new(bounds: Bounds, metrics: Arc<ListenerMetrics>) -> Arc<Self> {
        metrics.set_bounds(&bounds);
        Arc::new(Self {
            slots: Arc::new(Semaphore::new(bounds.connections)),
            connections_max: bounds.connections,
            unread: Unread::new(metrics.unread_bytes.clone(), bounds.unread_bytes),
            unauthenticated_connections: UnauthenticatedConnections::with_connections(bounds.connections),
            users: UserConnections::with_connections(bounds.connections),
            metrics,
            has_listener: AtomicBool::new(false),
        })
    }

    /// Registers a listener. Each listener occupies a slot while it waits for its next connection. So each listener
    /// after the first adds a slot, and an idle listener takes no slot from a busy one.
    pub(crate) fn add_listener(&self) {
        if self.has_listener.swap(true, Ordering::Relaxed) {
            self.slots.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_listener_takes_no_slot_from_a_busy_one() {
        let capacity = ListenerCapacity::new(Bounds { connections: 1, ..Bounds::default() }, Arc::default());
        capacity.add_listener();
        let idle = Arc::clone(&capacity.slots).try_acquire_owned();
        assert!(idle.is_ok() && capacity.slots.try_acquire().is_err());
        capacity.add_listener();
        assert!(capacity.slots.try_acquire().is_ok());
    }
}
