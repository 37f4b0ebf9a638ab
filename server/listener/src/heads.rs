//! Limits the total size of the heads of waiting requests, for each connection and for all connections. Without limits,
//! unanswered requests could exhaust the memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The size limit of a request head in bytes, as HTTP/2 counts it. 256 KiB fit a token and an impersonation of 64 KiB
/// each, a selector of 1,000 values in the query, and 32 bytes for each of 1,000 headers. hyper's default of 16 KiB is
/// too small. kube-apiserver accepts 1 MiB (`http.DefaultMaxHeaderBytes`). But a head needs two to three times its
/// counted size in memory, before its sender is authenticated.
pub(super) const HEADER_LIST_BYTES_MAX: u32 = 256 << 10;
/// The limit for the heads of one connection's waiting requests, in bytes. When a controller reconnects, 2,000 streams
/// may wait at the same time, so 4 MiB allow 2 KiB for each head. Tokens and groups make some heads larger.
pub(super) const HEADS_BYTES_MAX: usize = 4 << 20;
/// The limit for the heads of waiting requests on all connections together, in bytes. The first [`OWN_HEADS_BYTES`] of
/// each connection do not count against this limit.
const ALL_HEADS_BYTES_MAX: usize = 64 << 20;
/// The bytes of heads that are always allowed on a connection, even beyond the limit for all connections. 64 KiB are
/// enough for a client's first requests.
const OWN_HEADS_BYTES: usize = 64 << 10;

/// The number of bytes in the heads of waiting requests on all connections. One value of this type counts requests that
/// wait for authentication, and a second value counts requests that wait for capacity.
#[derive(Clone, Debug, Default)]
pub(super) struct AllHeads(Arc<AtomicUsize>);

/// The number of bytes in the heads of one connection's waiting requests.
#[derive(Debug)]
pub(super) struct ConnectionHeads {
    own: Arc<AtomicUsize>,
    all: AllHeads,
}

/// The head of a waiting request. The head's bytes are counted until this value is dropped.
#[derive(Debug)]
pub(super) struct CountedHead {
    bytes: usize,
    own: Arc<AtomicUsize>,
    all: AllHeads,
}

impl AllHeads {
    /// Creates a new connection's count of head bytes.
    pub(super) fn add_connection(&self) -> ConnectionHeads {
        ConnectionHeads { own: Arc::default(), all: self.clone() }
    }
}

impl ConnectionHeads {
    /// Counts a request head of this many bytes. Returns `None` if the head exceeds the limits. The first
    /// [`OWN_HEADS_BYTES`] of a connection never exceed a limit.
    pub(super) fn count_head(&self, bytes: usize) -> Option<CountedHead> {
        let own = self.own.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let all = self.all.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // If a limit is exceeded, dropping this head subtracts its bytes again.
        let head = CountedHead { bytes, own: Arc::clone(&self.own), all: self.all.clone() };
        (own <= OWN_HEADS_BYTES || (own <= HEADS_BYTES_MAX && all <= ALL_HEADS_BYTES_MAX)).then_some(head)
    }
}

impl Drop for CountedHead {
    fn drop(&mut self) {
        self.own.fetch_sub(self.bytes, Ordering::Relaxed);
        self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_heads_are_limited_except_the_minimum_of_each_connection() {
        const EACH: usize = 2 << 10;
        let everybody = AllHeads::default();
        let one = everybody.add_connection();
        let large = one.count_head(HEADS_BYTES_MAX);
        assert!(large.is_some() && one.count_head(1).is_none(), "no more than a connection may have");
        drop(large);
        let all_of = |own: &ConnectionHeads| std::iter::from_fn(|| own.count_head(EACH)).collect::<Vec<_>>();
        let held = all_of(&one);
        assert_eq!(held.len() * EACH, HEADS_BYTES_MAX);
        let others: Vec<_> = (0..40).map(|_| everybody.add_connection()).collect();
        let of_others: Vec<_> = others.iter().map(all_of).collect();
        let bytes = |at: usize| of_others[at].len() * EACH;
        assert_eq!((bytes(0), bytes(39)), (HEADS_BYTES_MAX, OWN_HEADS_BYTES));
        let late = everybody.add_connection();
        assert!(
            late.count_head(1 << 20).is_none() && late.count_head(EACH).is_some(),
            "a first head that is large waits for room, too"
        );
        assert!(everybody.0.load(Ordering::Relaxed) <= ALL_HEADS_BYTES_MAX + 40 * OWN_HEADS_BYTES);
        drop((held, of_others));
        assert_eq!(everybody.0.load(Ordering::Relaxed), 0);
        assert!(others[39].count_head(HEADS_BYTES_MAX).is_some());
    }
}
