//! Connections on which nobody is known yet: a part of all, so that whoever has no credential cannot take the room of
//! those who have one. Nor their memory: a cluster may have to be asked who sends a request, and the heads of all that come
//! meanwhile are held.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::bounds::CONNECTIONS_PART;

/// What the requests of one connection may have in their heads until it is known who sends them, in bytes. 4 MiB: as many as
/// there are streams, with 2 KiB each, as of a controller that connects anew.
const HEADS_BYTES_MAX: usize = 4 << 20;
/// The same of all connections together, but for what each has of its own.
const ALL_HEADS_BYTES_MAX: usize = 64 << 20;
/// What each connection may have however much the others have. 64 KiB: what somebody begins with.
const OWN_HEADS_BYTES: usize = 64 << 10;

/// The connections on which nobody is known yet. One more than they may be sends away the one that has been so for
/// longest: a client that means to say who it is has done so by then.
#[derive(Debug)]
pub(crate) struct Strangers {
    max: usize,
    waiting: Mutex<Waiting>,
    /// What there is in the heads of their requests, in bytes.
    heads: AtomicUsize,
}

/// By the order in which they came.
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    connections: BTreeMap<u64, CancellationToken>,
}

/// The place of one connection, until somebody is known on it or it is dropped.
#[derive(Debug)]
pub(crate) struct Stranger {
    number: u64,
    sent_away: CancellationToken,
    among: Arc<Strangers>,
    /// What there is in the heads of its requests, in bytes.
    heads: Arc<AtomicUsize>,
}

/// The head of a request of which it is not known yet who sends it, until that is known or it is answered.
#[derive(Debug)]
pub(super) struct StrangersHead {
    bytes: usize,
    among: Arc<Strangers>,
    own: Arc<AtomicUsize>,
}

impl Drop for StrangersHead {
    fn drop(&mut self) {
        self.own.fetch_sub(self.bytes, Ordering::Relaxed);
        self.among.heads.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Strangers {
    /// A part of so many connections.
    pub(super) fn of(connections: usize) -> Arc<Self> {
        Self::at_most((connections / CONNECTIONS_PART).max(1))
    }

    /// So many connections.
    pub(crate) fn at_most(max: usize) -> Arc<Self> {
        Arc::new(Self { max, waiting: Mutex::default(), heads: AtomicUsize::new(0) })
    }

    /// Takes in one more, and sends the oldest away where they are too many.
    pub(crate) fn admit(self: &Arc<Self>) -> Stranger {
        let sent_away = CancellationToken::new();
        let mut waiting = self.waiting.lock();
        let number = waiting.next;
        waiting.next += 1;
        waiting.connections.insert(number, sent_away.clone());
        if waiting.connections.len() > self.max
            && let Some((_, oldest)) = waiting.connections.pop_first()
        {
            oldest.cancel();
        }
        Stranger { number, sent_away, among: Arc::clone(self), heads: Arc::default() }
    }
}

impl Stranger {
    /// Holds the head of a request that has so many bytes; `None` where there is no room for it. [`OWN_HEADS_BYTES`] of
    /// each connection always have room.
    pub(super) fn hold(&self, bytes: usize) -> Option<StrangersHead> {
        let own = self.heads.fetch_add(bytes, Ordering::Relaxed);
        let all = self.among.heads.fetch_add(bytes, Ordering::Relaxed);
        // Gives back what was counted where there is none.
        let head = StrangersHead { bytes, among: Arc::clone(&self.among), own: Arc::clone(&self.heads) };
        let is_little = own + bytes <= OWN_HEADS_BYTES;
        let has_room = own + bytes <= HEADS_BYTES_MAX && all + bytes <= ALL_HEADS_BYTES_MAX;
        (is_little || has_room).then_some(head)
    }

    /// Somebody is known on the connection: it is no stranger's any more. Whoever was sent away stays so.
    pub(super) fn is_known(&self) {
        self.among.waiting.lock().connections.remove(&self.number);
    }

    /// Ends when the connection has to make room for another. Cancel: safe.
    pub(crate) async fn sent_away(&self) {
        self.sent_away.cancelled().await;
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.is_known();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_stranger_makes_room() {
        let strangers = Strangers::of(8);
        let is_away = |stranger: &Stranger| stranger.sent_away.is_cancelled();
        let (first, second) = (strangers.admit(), strangers.admit());
        first.is_known();
        let third = strangers.admit();
        assert!(![&first, &second, &third].into_iter().any(is_away));
        let fourth = strangers.admit();
        assert_eq!([&first, &second, &third, &fourth].map(is_away), [false, true, false, false]);
        drop(third);
        let fifth = strangers.admit();
        assert!(!is_away(&fourth) && !is_away(&fifth));
        assert_eq!(Strangers::of(1).max, 1);
    }

    #[test]
    fn what_strangers_have_in_heads_is_bounded_and_each_may_have_some() {
        const EACH: usize = 2 << 10;
        let strangers = Strangers::of(1024);
        let one = strangers.admit();
        let large = one.hold(HEADS_BYTES_MAX);
        assert!(large.is_some() && one.hold(1).is_none(), "no more than a connection may have");
        drop(large);
        let all_of = |own: &Stranger| std::iter::from_fn(|| own.hold(EACH)).collect::<Vec<_>>();
        let held = all_of(&one);
        assert_eq!(held.len() * EACH, HEADS_BYTES_MAX);
        let others: Vec<_> = (0..40).map(|_| strangers.admit()).collect();
        let of_others: Vec<_> = others.iter().map(all_of).collect();
        let bytes = |at: usize| of_others[at].len() * EACH;
        assert_eq!((bytes(0), bytes(39)), (HEADS_BYTES_MAX, OWN_HEADS_BYTES));
        let late = strangers.admit();
        assert!(
            late.hold(1 << 20).is_none() && late.hold(EACH).is_some(),
            "a first head that is large waits for room, too"
        );
        assert!(strangers.heads.load(Ordering::Relaxed) <= ALL_HEADS_BYTES_MAX + 40 * OWN_HEADS_BYTES);
        drop((held, of_others));
        assert_eq!(strangers.heads.load(Ordering::Relaxed), 0);
        assert!(others[39].hold(HEADS_BYTES_MAX).is_some());
    }
}
