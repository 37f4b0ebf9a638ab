//! Tasks that are shared by all who ask for the same while they are under way.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

/// A task's answer, once it is there; `None` where it failed.
pub(super) type SharedTask<A> = Shared<BoxFuture<'static, Option<A>>>;

/// The tasks that are under way, by what they are for. A task goes on though all who wait for it leave: what takes
/// longer than a client has patience would never be done if each began anew.
pub(super) struct SharedTasks<K: Eq + Hash, A>(Mutex<HashMap<K, SharedTask<A>>>);

impl<K, A> SharedTasks<K, A>
where
    K: Clone + Eq + Hash + Send + 'static,
    A: Clone + Send + Sync + 'static,
{
    /// No task.
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// The task for this that is under way, begun if there is none. Must be called within a tokio runtime.
    pub(super) fn join<F>(self: &Arc<Self>, key: &K, begin: impl FnOnce() -> F) -> SharedTask<A>
    where
        F: Future<Output = A> + Send + 'static,
    {
        let begin = || {
            let (tasks, key, work) = (Arc::downgrade(self), key.clone(), begin());
            let task = tokio::spawn(async move {
                // Made by the task itself: a runtime that ends drops it at once, which happens under the lock.
                let _under_way = RunningTask { tasks, key };
                work.await
            });
            async move { task.await.ok() }.boxed().shared()
        };
        self.0.lock().entry(key.clone()).or_insert_with(begin).clone()
    }
}

/// Forgets a task when it ends, however that is.
struct RunningTask<K: Eq + Hash, A> {
    tasks: Weak<SharedTasks<K, A>>,
    key: K,
}

impl<K: Eq + Hash, A> Drop for RunningTask<K, A> {
    fn drop(&mut self) {
        if let Some(tasks) = self.tasks.upgrade() {
            tasks.0.lock().remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use futures::future::join_all;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// Tasks that take a second and tell how many have begun.
    struct Begun {
        tasks: Arc<SharedTasks<&'static str, u32>>,
        begun: Arc<AtomicU32>,
        ended: Arc<AtomicU32>,
    }

    impl Begun {
        fn new() -> Self {
            Self { tasks: SharedTasks::new(), begun: Arc::default(), ended: Arc::default() }
        }

        fn ask(&self, key: &'static str) -> SharedTask<u32> {
            let (begun, ended) = (Arc::clone(&self.begun), Arc::clone(&self.ended));
            self.tasks.join(&key, || async move {
                let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
                sleep(Duration::from_secs(1)).await;
                ended.fetch_add(1, Ordering::SeqCst);
                number
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_the_same_shares_a_task() {
        let begun = Begun::new();
        let late = |after| {
            let begun = &begun;
            async move {
                sleep(Duration::from_millis(after)).await;
                begun.ask("x").await
            }
        };
        // Those who come while it is under way; whoever comes later has a new one.
        assert_eq!(join_all([0, 0, 300, 999, 1001].map(late)).await, [1, 1, 1, 1, 2].map(Some));
        assert_eq!(join_all([begun.ask("x"), begun.ask("y")]).await, [Some(3), Some(4)], "one for each");
        assert!(begun.tasks.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_goes_on_though_those_leave_who_wait_for_it() {
        let begun = Begun::new();
        let first = begun.ask("x");
        assert!(timeout(Duration::from_millis(100), first).await.is_err(), "the first one leaves");
        assert_eq!(begun.ask("x").await, Some(1), "the others have its answer");
        // All leave, and who comes back finds the task further on.
        for _ in 0..4 {
            assert!(timeout(Duration::from_millis(200), begun.ask("x")).await.is_err());
        }
        assert_eq!((begun.ask("x").await, begun.ended.load(Ordering::SeqCst)), (Some(2), 2));
    }

    #[tokio::test]
    async fn a_task_that_fails_is_not_waited_for_again() {
        let tasks = SharedTasks::<_, u32>::new();
        let failing = tasks.join(&"x", || async { panic!("on purpose") });
        assert_eq!(failing.await, None);
        assert_eq!(tasks.join(&"x", || async { 1 }).await, Some(1));
    }
}
