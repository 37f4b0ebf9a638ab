//! Runs all parts of an HTTP/2 connection to a cluster in a single task.
//!
//! hyper divides a connection among tasks. One task reads and writes the socket, one accepts requests, and one task per
//! request waits for the response head. Each request and each response wakes several tasks. tokio may run one of two
//! ready tasks on a second thread, which must be woken. With one request at a time, these wake-ups were half of the
//! cost of forwarding. In this module all parts run in the task that drives the connection.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::stream::{FuturesUnordered, StreamExt};
use hyper::rt::Executor;
use parking_lot::Mutex;
use tributary_apimachinery::{PollRound, PollSide};

/// A future that hyper spawns for an HTTP/2 connection.
type ConnectionPart = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Maximal number of rounds in one poll. In a round, parts of the connection may wake each other. After the last round,
/// other tasks of the thread may run. 8: a request with its response needs three rounds.
const ROUNDS_MAX: usize = 8;

/// Executor for the futures that hyper spawns for a connection. Clones belong to the same connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starter {
    started: Arc<Mutex<Started>>,
    round: Arc<PollRound>,
}

#[derive(Default)]
struct Started {
    parts: Vec<ConnectionPart>,
    is_over: bool,
}

impl std::fmt::Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Started({} parts)", self.parts.len())
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Starter {
    fn execute(&self, part: F) {
        let mut started = self.started.lock();
        if !started.is_over {
            started.parts.push(Box::pin(part));
            drop(started);
            self.round.wake(PollSide::Parts);
        }
    }
}

/// A connection with its spawned futures. Polling makes progress; dropping ends all futures.
pub(crate) struct ConnectionTask<C> {
    /// `None` after the connection stops accepting requests. The spawned futures then end with their requests.
    connection: Option<C>,
    starter: Starter,
    parts: FuturesUnordered<ConnectionPart>,
    round: Arc<PollRound>,
    connection_waker: Waker,
    parts_waker: Waker,
}

impl<C: Future + Unpin> ConnectionTask<C> {
    pub(crate) fn new(connection: C, starter: Starter) -> Self {
        let round = Arc::clone(&starter.round);
        let (connection_waker, parts_waker) = (round.waker(PollSide::Connection), round.waker(PollSide::Parts));
        round.mark_woken(PollSide::Connection);
        Self {
            connection: Some(connection),
            starter,
            parts: FuturesUnordered::new(),
            round,
            connection_waker,
            parts_waker,
        }
    }

    pub(crate) fn connection(&self) -> Option<&C> {
        self.connection.as_ref()
    }

    /// Polls woken futures until no future has woken another. Ready when the connection has stopped accepting requests.
    pub(crate) fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<C::Output> {
        self.round.begin(cx.waker());
        for _ in 0..ROUNDS_MAX {
            if self.round.take_woken(PollSide::Connection)
                && let Some(connection) = &mut self.connection
                && let Poll::Ready(ended) = Pin::new(connection).poll(&mut Context::from_waker(&self.connection_waker))
            {
                self.connection = None;
                self.round.leave();
                return Poll::Ready(ended);
            }
            if self.round.take_woken(PollSide::Parts) {
                self.poll_parts();
            }
            if self.round.rests() {
                return Poll::Pending;
            }
        }
        // Futures that are woken after this line wait for the next poll of the task.
        self.round.leave();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_parts(&mut self) {
        let cx = &mut Context::from_waker(&self.parts_waker);
        loop {
            // Reuses the capacity of the vector, because each request spawns futures.
            self.parts.extend(self.starter.started.lock().parts.drain(..));
            while let Poll::Ready(Some(())) = self.parts.poll_next_unpin(cx) {}
            if self.starter.started.lock().parts.is_empty() {
                return;
            }
        }
    }

    /// Polls the remaining futures. Called after the connection has stopped accepting requests.
    pub(crate) async fn finish(mut self) {
        std::future::poll_fn(|cx| {
            // The connection was dropped before, so `poll_connection` polls only the spawned futures.
            let _pending = self.poll_connection(cx);
            if self.parts.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl<C> Drop for ConnectionTask<C> {
    /// Drops the spawned futures, which contain an executor and would keep themselves alive (a reference cycle).
    fn drop(&mut self) {
        let parts = {
            let mut started = self.starter.started.lock();
            started.is_over = true;
            std::mem::take(&mut started.parts)
        };
        drop(parts);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::channel::oneshot;
    use futures::task::{ArcWake, waker};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl ArcWake for Woken {
        fn wake_by_ref(woken: &Arc<Self>) {
            woken.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    type Connection = Pin<Box<dyn Future<Output = &'static str> + Send>>;

    fn task(
        connection: impl Future<Output = &'static str> + Send + 'static,
    ) -> (ConnectionTask<Connection>, Starter, Arc<Woken>) {
        let starter = Starter::default();
        let task: ConnectionTask<Connection> = ConnectionTask::new(Box::pin(connection), starter.clone());
        (task, starter, Arc::default())
    }

    #[test]
    fn futures_of_a_connection_that_wake_each_other_run_in_one_poll() {
        let (mut task, starter, woken) = task(std::future::pending());
        let ((ask, request_receiver), (answer, answered)) = (oneshot::channel(), oneshot::channel());
        let done = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&done);
        // The first future waits for the second, and the second waits for an event from outside of the connection.
        starter.execute(async move {
            let _ = answered.await;
            counter.fetch_add(1, Ordering::SeqCst);
        });
        starter.execute(async move {
            let _ = request_receiver.await;
            let _ = answer.send(());
        });
        let waker = waker(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        assert!(task.poll_connection(&mut cx).is_pending());
        assert_eq!(
            woken.0.load(Ordering::SeqCst),
            0,
            "what was started by then was polled, and is not asked for again"
        );
        ask.send(()).unwrap();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(task.poll_connection(&mut cx).is_pending());
        assert_eq!((done.load(Ordering::SeqCst), woken.0.load(Ordering::SeqCst)), (1, 1));
    }

    #[test]
    fn connection_is_not_polled_when_only_its_spawned_futures_wake() {
        let polls = Arc::new(AtomicUsize::new(0));
        let own = Arc::clone(&polls);
        let (mut task, starter, woken) = task(std::future::poll_fn(move |_| {
            own.fetch_add(1, Ordering::SeqCst);
            Poll::Pending
        }));
        let (answer, answered) = oneshot::channel::<()>();
        starter.execute(async move {
            let _ = answered.await;
        });
        let waker = waker(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        assert!(task.poll_connection(&mut cx).is_pending());
        answer.send(()).unwrap();
        assert!(task.poll_connection(&mut cx).is_pending());
        assert_eq!((polls.load(Ordering::SeqCst), woken.0.load(Ordering::SeqCst)), (1, 1));
        assert!(task.parts.is_empty());
        assert!(task.poll_connection(&mut cx).is_pending());
        assert_eq!(polls.load(Ordering::SeqCst), 1, "nothing that it waits for was woken");
    }

    #[test]
    fn future_that_always_wakes_itself_yields_the_thread() {
        let (mut task, starter, woken) = task(std::future::pending());
        starter.execute(std::future::poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::Pending
        }));
        let waker = waker(Arc::clone(&woken));
        assert!(task.poll_connection(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(woken.0.load(Ordering::SeqCst), 1, "it comes back");
    }

    #[tokio::test]
    async fn connection_futures_finish_after_the_connection_has_closed() {
        let (mut task, starter, _) = task(async { "closed" });
        let (end, ended) = oneshot::channel::<()>();
        starter.execute(async move {
            let _ = ended.await;
        });
        assert_eq!(std::future::poll_fn(|cx| task.poll_connection(cx)).await, "closed");
        let finished = tokio::spawn(task.finish());
        tokio::task::yield_now().await;
        assert!(!finished.is_finished());
        end.send(()).unwrap();
        finished.await.unwrap();
    }

    #[test]
    fn connection_futures_are_dropped_with_the_connection_task() {
        let (task, starter, _) = task(std::future::pending());
        let guard = Arc::new(());
        let hold = |guard: &Arc<()>| {
            let (own, guard) = (starter.clone(), Arc::clone(guard));
            async move {
                std::future::pending::<()>().await;
                drop((own, guard));
            }
        };
        starter.execute(hold(&guard));
        drop(task);
        starter.execute(hold(&guard));
        assert_eq!(Arc::strong_count(&guard), 1);
    }
}
