//! Questions to members that requests share: whoever comes while one is under way waits for the next.
//!
//! An answer says nothing to a request that came after the question was put: what it asks for may have been made in
//! between, past this process. So nothing is remembered of an answer, however fresh; what is shared is a question that
//! has not been put yet. One that was answered in vain is put again no sooner than [`PAUSE`] after, so that a client
//! which asks for a name that is nowhere costs each member a few small requests a second, however often it asks.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tokio::time::Instant;

/// How long after a question that was answered in vain the same one is put again. A quarter of a second: four questions
/// a second, and no longer than people notice.
const PAUSE: Duration = Duration::from_millis(250);

/// How many questions are remembered before those are looked for that can be forgotten.
const SWEPT_FROM: usize = 256;

/// A question that may be shared.
type SharedLookup<A> = Shared<BoxFuture<'static, A>>;

/// Questions by what they ask. One per kind of question.
pub(crate) struct SharedQuestions<K, A> {
    topics: Mutex<Topics<K, A>>,
}

struct Topics<K, A> {
    by_key: HashMap<K, Topic<A>>,
    /// How many there are when those are looked for next that can be forgotten.
    sweep_at: usize,
}

/// One question, put again and again.
struct Topic<A> {
    /// The one that has not been put yet.
    next: Option<SharedLookup<A>>,
    /// Held while one is under way; when the last one was put that was in vain.
    turn: Arc<tokio::sync::Mutex<Option<Instant>>>,
}

impl<K, A> Default for SharedQuestions<K, A> {
    fn default() -> Self {
        Self { topics: Mutex::new(Topics { by_key: HashMap::new(), sweep_at: SWEPT_FROM }) }
    }
}

impl<K, A> SharedQuestions<K, A>
where
    K: Clone + Eq + Hash + Send + 'static,
    A: Clone + Send + Sync + 'static,
{
    /// The answer to a question that is put from now on. `put` puts it; `in_vain` judges the answer. Cancelling is
    /// safe: others who wait go on with the question, and it ends when nobody does.
    pub(crate) async fn share_question<F>(
        self: &Arc<Self>,
        key: K,
        put: impl FnOnce() -> F,
        in_vain: fn(&A) -> bool,
    ) -> A
    where
        F: Future<Output = A> + Send + 'static,
    {
        let question = {
            let mut topics = self.topics.lock();
            if topics.by_key.len() >= topics.sweep_at {
                topics.by_key.retain(|_, topic| !topic.is_over());
                topics.sweep_at = (2 * topics.by_key.len()).max(SWEPT_FROM);
            }
            let topic = topics.by_key.entry(key.clone()).or_insert_with(Topic::new);
            let turn = &topic.turn;
            topic.next.get_or_insert_with(|| self.question(key, Arc::clone(turn), put(), in_vain)).clone()
        };
        question.await
    }

    fn question(
        self: &Arc<Self>,
        key: K,
        turn: Arc<tokio::sync::Mutex<Option<Instant>>>,
        put: impl Future<Output = A> + Send + 'static,
        in_vain: fn(&A) -> bool,
    ) -> SharedLookup<A> {
        // Not held by the question: it stands in there, and both would live for ever.
        let questions = Arc::downgrade(self);
        let question = async move {
            let mut vain = turn.lock().await;
            if let Some(before) = *vain {
                tokio::time::sleep_until(before + PAUSE).await;
            }
            // Whoever comes from now on is not answered by this one.
            let put_now = questions.upgrade().and_then(|all| all.topics.lock().by_key.get_mut(&key)?.next.take());
            drop(put_now);
            let begun = Instant::now();
            let answer = put.await;
            *vain = in_vain(&answer).then_some(begun);
            answer
        };
        question.boxed().shared()
    }
}

impl<A> Topic<A> {
    fn new() -> Self {
        Self { next: None, turn: Arc::default() }
    }

    /// Whether nothing is known of it that matters: nobody asks, and no pause is to be kept.
    fn is_over(&self) -> bool {
        let idle = self.turn.try_lock().is_ok_and(|vain| vain.is_none_or(|begun| begun.elapsed() >= PAUSE));
        // One that nobody waits for any more is held here alone.
        idle && self.next.as_ref().is_none_or(|next| next.strong_count() == Some(1))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::future::join_all;

    use super::*;

    /// Questions that take 10 ms and whose answer is how often they have been put.
    #[derive(Default)]
    struct Asked {
        questions: Arc<SharedQuestions<&'static str, u32>>,
        put: Arc<AtomicU32>,
        answered: Arc<AtomicU32>,
    }

    impl Asked {
        async fn ask(&self, in_vain: fn(&u32) -> bool) -> u32 {
            let (put, answered) = (Arc::clone(&self.put), Arc::clone(&self.answered));
            let question = || async move {
                let number = put.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
                answered.fetch_add(1, Ordering::SeqCst);
                number
            };
            self.questions.share_question("x", question, in_vain).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_while_a_question_is_under_way_waits_for_the_next() {
        let asked = Asked::default();
        let late = |after| {
            let asked = &asked;
            async move {
                tokio::time::sleep(Duration::from_millis(after)).await;
                asked.ask(|_| false).await
            }
        };
        // The first is put at once; whoever comes meanwhile shares the second.
        assert_eq!(join_all([late(0), late(1), late(5), late(9), late(12)]).await, [1, 2, 2, 2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_in_vain_is_put_again_after_a_pause_however_often_it_is_asked() {
        let asked = Asked::default();
        let begun = Instant::now();
        let clients = (0..200).map(|_| async {
            for _ in 0..5 {
                asked.ask(|_| true).await;
            }
        });
        join_all(clients).await;
        let rounds = asked.put.load(Ordering::SeqCst);
        assert!(rounds <= 7, "1,000 requests put {rounds} questions");
        assert!(begun.elapsed() >= (rounds - 1) * PAUSE, "{rounds} within {:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_takes_the_question_from_nobody() {
        let asked = Asked::default();
        let client = |comes: u64, goes: u64| {
            let asked = &asked;
            async move {
                tokio::time::sleep(Duration::from_millis(comes)).await;
                tokio::time::timeout(Duration::from_millis(goes - comes), asked.ask(|_| false)).await.ok()
            }
        };
        // The first's is under way, and ends with it at 5 ms. The second's has not been put then, and is the others',
        // too; the second goes away before it is put, or while it is under way.
        for goes in [4, 8] {
            let answers = join_all([client(0, 5), client(1, goes), client(2, 100), client(3, 100)]).await;
            assert!(answers[..2].iter().all(Option::is_none) && answers[2].is_some(), "{answers:?}");
            assert_eq!(answers[2], answers[3]);
        }
        assert_eq!((asked.put.load(Ordering::SeqCst), asked.answered.load(Ordering::SeqCst)), (4, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_nobody_waits_for_ends_and_is_forgotten() {
        let asked = Asked::default();
        let leaving = (0..3).map(|_| tokio::time::timeout(Duration::from_millis(5), asked.ask(|_| true)));
        assert!(join_all(leaving).await.iter().all(Result::is_err));
        let put = asked.put.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = asked.put.load(Ordering::SeqCst);
        assert_eq!((now, asked.answered.load(Ordering::SeqCst)), (put, 0), "it has ended, and no other is put");
        assert_eq!(asked.ask(|_| true).await, put + 1, "the next one is not kept waiting by it");
        tokio::time::sleep(PAUSE).await;
        let topics = asked.questions.topics.lock();
        assert!(topics.by_key.values().all(Topic::is_over));
    }
}
