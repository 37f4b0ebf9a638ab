//! Limits for the heads of waiting requests, per connection and for all connections, so that unanswered requests cannot
//! exhaust the memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest request head, in bytes, as HTTP/2 counts it. 256 KiB has room for a token and an impersonation of 64 KiB
/// each, a selector of 1,000 values in the query, and 32 bytes for each of 1,000 headers. hyper's own 16 KiB is too
/// small. kube-apiserver takes 1 MiB (`http.DefaultMaxHeaderBytes`). But a head takes two to three times as much memory
/// as it counts, and is held before its sender is authenticated.
pub(super) const HEADER_LIST_BYTES_MAX: u32 = 256 << 10;
/// The limit of the heads of one connection's waiting requests, in bytes. 4 MiB: 2 KiB for each of 2,000 streams, as of
/// a controller that reconnects; tokens and groups make some heads larger.
pub(super) const HEADS_BYTES_MAX: usize = 4 << 20;
/// The same limit for all connections together. Each connection's own [`OWN_HEADS_BYTES`] are exempt.
const ALL_HEADS_BYTES_MAX: usize = 64 << 20;
/// The bytes of heads that each connection may always have, regardless of the other connections. 64 KiB: enough for the
/// first requests of a client.
const OWN_HEADS_BYTES: usize = 64 << 10;

/// The number of bytes in the heads of all requests that wait for the same reason, on all connections.
#[derive(Clone, Debug, Default)]
pub(super) struct AllHeads(Arc<AtomicUsize>);

/// The number of bytes in the heads of one connection.
#[derive(Debug)]
pub(super) struct ConnectionHeads {
    own: Arc<AtomicUsize>,
    all: AllHeads,
}

/// The head of a waiting request. Counted until dropped.
#[derive(Debug)]
pub(super) struct HeldHead {
    bytes: usize,
    own: Arc<AtomicUsize>,
    all: AllHeads,
}

impl AllHeads {
    /// Starts the count of one more connection.
    pub(super) fn of_connection(&self) -> ConnectionHeads {
        ConnectionHeads { own: Arc::default(), all: self.clone() }
    }
}

impl ConnectionHeads {
    /// Counts the head of a request of this size; `None` where it exceeds the limits. [`OWN_HEADS_BYTES`] of each
    /// connection always fit.
    pub(super) fn hold_head(&self, bytes: usize) -> Option<HeldHead> {
        let own = self.own.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = self.all.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // Dropping the head undoes the count where there is no room.
        let head = HeldHead { bytes, own: Arc::clone(&self.own), all: self.all.clone() };
        (own <= OWN_HEADS_BYTES || (own <= HEADS_BYTES_MAX && all <= ALL_HEADS_BYTES_MAX)).then_some(head)
    }
}

impl Drop for HeldHead {
    fn drop(&mut self) {
        self.own.fetch_sub(self.bytes, Ordering::Relaxed);
        self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_heads_have_a_memory_bound_and_a_minimum_per_connection() {
        const EACH: usize = 2 << 10;
        let everybody = AllHeads::default();
        let one = everybody.of_connection();
        let large = one.hold_head(HEADS_BYTES_MAX);
        assert!(large.is_some() && one.hold_head(1).is_none(), "no more than a connection may have");
        drop(large);
        let all_of = |own: &ConnectionHeads| std::iter::from_fn(|| own.hold_head(EACH)).collect::<Vec<_>>();
        let held = all_of(&one);
        assert_eq!(held.len() * EACH, HEADS_BYTES_MAX);
        let others: Vec<_> = (0..40).map(|_| everybody.of_connection()).collect();
        let of_others: Vec<_> = others.iter().map(all_of).collect();
        let bytes = |at: usize| of_others[at].len() * EACH;
        assert_eq!((bytes(0), bytes(39)), (HEADS_BYTES_MAX, OWN_HEADS_BYTES));
        let late = everybody.of_connection();
        assert!(
            late.hold_head(1 << 20).is_none() && late.hold_head(EACH).is_some(),
            "a first head that is large waits for room, too"
        );
        assert!(everybody.0.load(Ordering::Relaxed) <= ALL_HEADS_BYTES_MAX + 40 * OWN_HEADS_BYTES);
        drop((held, of_others));
        assert_eq!(everybody.0.load(Ordering::Relaxed), 0);
        assert!(others[39].hold_head(HEADS_BYTES_MAX).is_some());
    }
}
