//! Sharing of lookups in members between concurrent requests. A request that arrives during a lookup waits for the next
//! lookup.
//!
//! A lookup that began before a request is not valid for the request: a client may have created the object in between,
//! directly in the cluster. So Tributary caches no result, and requests share only a lookup that has not begun. A
//! lookup without a result is repeated after [`PAUSE`] at the earliest. So a client that requests a missing name very
//! often costs each member only a few small requests a second.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Pause after a lookup without a result. With a quarter of a second, there are at most four lookups a second, and
/// people do not notice the pause.
const PAUSE: Duration = Duration::from_millis(250);

/// Number of keys at which the first sweep removes unused keys.
const SWEPT_FROM: usize = 256;

type SharedLookup<A> = Shared<BoxFuture<'static, A>>;

/// Shared lookups by key. The router has one value for each kind of lookup.
pub(crate) struct SharedLookups<K, A> {
    lookups: Mutex<LookupTable<K, A>>,
}

struct LookupTable<K, A> {
    by_key: HashMap<K, LookupEntry<A>>,
    /// Number of keys at the next sweep, which removes unused keys.
    sweep_at: usize,
}

struct LookupEntry<A> {
    /// Lookup that has not begun.
    next: Option<SharedLookup<A>>,
    /// Lock that a lookup holds while it runs. Contains the start of the last lookup if that lookup had no result.
    running: Arc<tokio::sync::Mutex<Option<Instant>>>,
}

impl<K, A> Default for SharedLookups<K, A> {
    fn default() -> Self {
        Self { lookups: Mutex::new(LookupTable { by_key: HashMap::new(), sweep_at: SWEPT_FROM }) }
    }
}

impl<K, A> SharedLookups<K, A>
where
    K: Clone + Eq + Hash + Send + 'static,
    A: Clone + Send + Sync + 'static,
{
    /// Runs a lookup that begins now or later, or joins such a lookup. `put` sends the lookup to the members; `in_vain`
    /// returns whether the answer has no result. Dropping the future is safe: other requests continue the lookup, and
    /// it is cancelled with the last of them.
    pub(crate) async fn run_or_join<F>(self: &Arc<Self>, key: K, put: impl FnOnce() -> F, in_vain: fn(&A) -> bool) -> A
    where
        F: Future<Output = A> + Send + 'static,
    {
        let question = {
            let mut lookups = self.lookups.lock();
            if lookups.by_key.len() >= lookups.sweep_at {
                lookups.by_key.retain(|_, entry| !entry.is_over());
                lookups.sweep_at = (2 * lookups.by_key.len()).max(SWEPT_FROM);
            }
            let entry = lookups.by_key.entry(key.clone()).or_insert_with(LookupEntry::new);
            let running = &entry.running;
            entry.next.get_or_insert_with(|| self.question(key, Arc::clone(running), put(), in_vain)).clone()
        };
        question.await
    }

    fn question(
        self: &Arc<Self>,
        key: K,
        running: Arc<tokio::sync::Mutex<Option<Instant>>>,
        put: impl Future<Output = A> + Send + 'static,
        in_vain: fn(&A) -> bool,
    ) -> SharedLookup<A> {
        // Weak, because the lookup is a value of this map: a strong reference would keep map and lookup in memory for
        // ever.
        let questions = Arc::downgrade(self);
        let question = async move {
            let mut vain = running.lock().await;
            if let Some(before) = *vain {
                tokio::time::sleep_until(before + PAUSE).await;
            }
            // Requests that arrive after this line share the next lookup.
            let put_now = questions.upgrade().and_then(|all| all.lookups.lock().by_key.get_mut(&key)?.next.take());
            drop(put_now);
            let begun = Instant::now();
            let answer = put.await;
            *vain = in_vain(&answer).then_some(begun);
            answer
        };
        question.boxed().shared()
    }
}

impl<A> LookupEntry<A> {
    fn new() -> Self {
        Self { next: None, running: Arc::default() }
    }

    /// Returns whether the map can drop the key: no lookup runs or waits, and no pause is left.
    fn is_over(&self) -> bool {
        let idle = self.running.try_lock().is_ok_and(|vain| vain.is_none_or(|begun| begun.elapsed() >= PAUSE));
        // A lookup without waiting requests is referenced only by the map.
        idle && self.next.as_ref().is_none_or(|next| next.strong_count() == Some(1))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::future::join_all;

    use super::*;

    /// Lookups of 10 ms, whose result is the number of lookups.
    #[derive(Default)]
    struct CountedLookups {
        questions: Arc<SharedLookups<&'static str, u32>>,
        put: Arc<AtomicU32>,
        answered: Arc<AtomicU32>,
    }

    impl CountedLookups {
        async fn ask(&self, in_vain: fn(&u32) -> bool) -> u32 {
            let (put, answered) = (Arc::clone(&self.put), Arc::clone(&self.answered));
            let question = || async move {
                let number = put.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
                answered.fetch_add(1, Ordering::SeqCst);
                number
            };
            self.questions.run_or_join("x", question, in_vain).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn request_during_a_lookup_waits_for_the_next_lookup() {
        let counted_lookups = CountedLookups::default();
        let late = |after| {
            let counted_lookups = &counted_lookups;
            async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                counted_lookups.ask(|_| false).await
            }
        };
        // The first lookup begins at once. The requests that arrive during the first lookup share the second lookup.
        assert_eq!(join_all([late(0), late(1), late(5), late(9), late(12)]).await, [1, 2, 2, 2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn lookup_without_a_result_is_repeated_after_a_pause() {
        let counted_lookups = CountedLookups::default();
        let begun = Instant::now();
        let clients = (0..200).map(|_| async {
            for _ in 0..5 {
                counted_lookups.ask(|_| true).await;
            }
        });
        join_all(clients).await;
        let rounds = counted_lookups.put.load(Ordering::SeqCst);
        assert!(rounds <= 7, "1,000 requests put {rounds} questions");
        assert!(begun.elapsed() >= (rounds - 1) * PAUSE, "{rounds} within {:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_request_does_not_cancel_the_lookup_of_other_requests() {
        let counted_lookups = CountedLookups::default();
        let client = |comes: u64, goes: u64| {
            let counted_lookups = &counted_lookups;
            async move {
                tokio::time::sleep(Duration::from_millis(comes)).await;
                tokio::time::timeout(Duration::from_millis(goes - comes), counted_lookups.ask(|_| false)).await.ok()
            }
        };
        // The first request is cancelled at 5 ms, during its lookup. The second request shares a later lookup with the
        // third and fourth, and is cancelled before or during that lookup.
        for goes in [4, 8] {
            let answers = join_all([client(0, 5), client(1, goes), client(2, 100), client(3, 100)]).await;
            assert!(answers[..2].iter().all(Option::is_none) && answers[2].is_some(), "{answers:?}");
            assert_eq!(answers[2], answers[3]);
        }
        assert_eq!(
            (counted_lookups.put.load(Ordering::SeqCst), counted_lookups.answered.load(Ordering::SeqCst)),
            (4, 2)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn lookup_without_waiting_requests_is_cancelled_and_its_key_removed() {
        let counted_lookups = CountedLookups::default();
        let leaving = (0..3).map(|_| tokio::time::timeout(Duration::from_millis(5), counted_lookups.ask(|_| true)));
        assert!(join_all(leaving).await.iter().all(Result::is_err));
        let put = counted_lookups.put.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = counted_lookups.put.load(Ordering::SeqCst);
        assert_eq!(
            (now, counted_lookups.answered.load(Ordering::SeqCst)),
            (put, 0),
            "it has ended, and no other is put"
        );
        assert_eq!(counted_lookups.ask(|_| true).await, put + 1, "the next one is not kept waiting by it");
        tokio::time::sleep(PAUSE).await;
        let lookups = counted_lookups.questions.lookups.lock();
        assert!(lookups.by_key.values().all(LookupEntry::is_over));
    }
}
