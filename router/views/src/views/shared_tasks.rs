//! Tasks that concurrent callers with the same key share.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

/// Result of a task; `None` if the task failed.
pub(super) type SharedTask<A> = Shared<BoxFuture<'static, Option<A>>>;

/// Running tasks by key. A task continues even if all its callers stop waiting. If it were cancelled, a task that takes
/// longer than any client waits would never finish.
pub(super) struct SharedTasks<K: Eq + Hash, A>(Mutex<HashMap<K, SharedTask<A>>>);

impl<K, A> SharedTasks<K, A>
where
    K: Clone + Eq + Hash + Send + 'static,
    A: Clone + Send + Sync + 'static,
{
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// Returns the running task for this key, and starts a task if none is running. Must be called within a tokio
    /// runtime.
    pub(super) fn join<F>(self: &Arc<Self>, key: &K, begin: impl FnOnce() -> F) -> SharedTask<A>
    where
        F: Future<Output = A> + Send + 'static,
    {
        let begin = || {
            let (tasks, key, work) = (Arc::downgrade(self), key.clone(), begin());
            let task = tokio::spawn(async move {
                // The guard is created inside the task. While the runtime shuts down, `spawn` drops the task at once,
                // and with it a guard that was created outside. The guard's drop would then deadlock on the lock that
                // this thread holds.
                let _under_way = RunningTask { tasks, key };
                work.await
            });
            async move { task.await.ok() }.boxed().shared()
        };
        self.0.lock().entry(key.clone()).or_insert_with(begin).clone()
    }
}

/// Guard that removes a task from the set when the task ends, also by a panic.
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

    /// Tasks that take a second each, and return the number of tasks started so far.
    struct Begun {
        tasks: Arc<SharedTasks<&'static str, u32>>,
        begun: Arc<AtomicU32>,
        ended: Arc<AtomicU32>,
    }

    impl Begun {
        fn new() -> Self {
            Self { tasks: SharedTasks::new(), begun: Arc::default(), ended: Arc::default() }
        }

        fn run_task(&self, key: &'static str) -> SharedTask<u32> {
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
    async fn concurrent_callers_with_the_same_key_share_a_task() {
        let begun = Begun::new();
        let late = |after| {
            let begun = &begun;
            async move {
                sleep(Duration::from_millis(after)).await;
                begun.run_task("x").await
            }
        };
        // Callers that come while the task runs share the task; a later caller gets a new task.
        assert_eq!(join_all([0, 0, 300, 999, 1001].map(late)).await, [1, 1, 1, 1, 2].map(Some));
        assert_eq!(join_all([begun.run_task("x"), begun.run_task("y")]).await, [Some(3), Some(4)], "one for each");
        assert!(begun.tasks.0.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn shared_task_continues_after_its_callers_are_cancelled() {
        let begun = Begun::new();
        let first = begun.run_task("x");
        assert!(timeout(Duration::from_millis(100), first).await.is_err(), "the first one leaves");
        assert_eq!(begun.run_task("x").await, Some(1), "the others have its answer");
        // All callers stop waiting, and the task continues. A caller that comes back finds the task still running.
        for _ in 0..4 {
            assert!(timeout(Duration::from_millis(200), begun.run_task("x")).await.is_err());
        }
        assert_eq!((begun.run_task("x").await, begun.ended.load(Ordering::SeqCst)), (Some(2), 2));
    }

    #[tokio::test]
    async fn failed_shared_task_is_started_again() {
        let tasks = SharedTasks::<_, u32>::new();
        let failing = tasks.join(&"x", || async { panic!("on purpose") });
        assert_eq!(failing.await, None);
        assert_eq!(tasks.join(&"x", || async { 1 }).await, Some(1));
    }
}
