//! One task for all of an HTTP/2 connection to a member.
//!
//! hyper divides a connection among tasks: one reads and writes the socket, one takes requests, and one for each
//! request waits for the head of its answer. Each request and each answer then wakes several, and of two that are ready
//! at once tokio gives one to another thread, which has to be woken for it: with one request at a time that was half of
//! what passing it on cost. Here they all run where the connection is driven, one after the other, and what they wake
//! of each other is polled in the same turn.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::stream::{FuturesUnordered, StreamExt};
use futures::task::AtomicWaker;
use hyper::rt::Executor;
use parking_lot::Mutex;

/// What hyper starts for a connection.
type Part = Pin<Box<dyn Future<Output = ()> + Send>>;

/// How often parts that wake each other are polled in one turn. What goes on beyond that waits for others of the
/// thread: a request and its answer take three.
const ROUNDS_MAX: usize = 8;

/// Takes what hyper starts for a connection. Clones are of the same connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starter(Arc<Mutex<Started>>);

/// What was started and is not polled yet.
#[derive(Default)]
struct Started {
    parts: Vec<Part>,
    /// Nobody polls it any more.
    is_over: bool,
}

impl std::fmt::Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Started({} parts)", self.parts.len())
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Starter {
    fn execute(&self, part: F) {
        let mut started = self.0.lock();
        if !started.is_over {
            started.parts.push(Box::pin(part));
        }
    }
}

/// A connection with its parts. It has to be polled for anything to happen; dropped, all of it ends.
pub(crate) struct ConnectionTask<C> {
    /// `None` once it takes no more requests: its parts see that it is gone, and end with the requests that it has.
    connection: Option<C>,
    starter: Starter,
    parts: FuturesUnordered<Part>,
    turn: Arc<Turn>,
    of_connection: Waker,
    of_parts: Waker,
}

impl<C: Future + Unpin> ConnectionTask<C> {
    /// A connection whose parts are given to this starter.
    pub(crate) fn new(connection: C, starter: Starter) -> Self {
        let turn = Arc::new(Turn::default());
        let of_connection = Waker::from(Arc::new(Side::<CONNECTION>(Arc::clone(&turn))));
        let of_parts = Waker::from(Arc::new(Side::<PARTS>(Arc::clone(&turn))));
        Self { connection: Some(connection), starter, parts: FuturesUnordered::new(), turn, of_connection, of_parts }
    }

    /// The connection itself, while it takes requests.
    pub(crate) fn connection(&self) -> Option<&C> {
        self.connection.as_ref()
    }

    /// Polls everything, until nothing has woken anything; the connection, not for what its parts alone wait for. Ready
    /// once the connection takes no more requests.
    pub(crate) fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<C::Output> {
        let mut woken = self.turn.begin(cx.waker());
        let mut ended = Poll::Pending;
        for _ in 0..ROUNDS_MAX {
            if let Some(connection) = self.connection.as_mut().filter(|_| woken != PARTS) {
                ended = Pin::new(connection).poll(&mut Context::from_waker(&self.of_connection));
            }
            if ended.is_ready() {
                self.connection = None;
            }
            self.poll_parts();
            woken = self.turn.take();
            if ended.is_ready() || woken == 0 {
                break;
            }
        }
        // What was woken since, by whomever, is polled in another turn.
        if self.turn.end(woken) {
            cx.waker().wake_by_ref();
        }
        ended
    }

    fn poll_parts(&mut self) {
        let cx = &mut Context::from_waker(&self.of_parts);
        loop {
            self.parts.extend(std::mem::take(&mut self.starter.0.lock().parts));
            while let Poll::Ready(Some(())) = self.parts.poll_next_unpin(cx) {}
            if self.starter.0.lock().parts.is_empty() {
                return;
            }
        }
    }

    /// Polls what the requests that are under way still need, once the connection takes no more.
    pub(crate) async fn finish(mut self) {
        std::future::poll_fn(|cx| {
            // There is no connection, so nothing but the parts is polled.
            let _pending = self.poll_connection(cx);
            if self.parts.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl<C> Drop for ConnectionTask<C> {
    /// What was started has a starter itself, and would keep itself.
    fn drop(&mut self) {
        let parts = {
            let mut started = self.starter.0.lock();
            started.is_over = true;
            std::mem::take(&mut started.parts)
        };
        drop(parts);
    }
}

/// Whether the connection and its parts are being polled, and which of the two was woken. Wakes the task only for what
/// it would not see by itself: a task that is woken while it runs is put behind all others, and another thread is woken
/// to take it over.
#[derive(Debug, Default)]
struct Turn {
    state: AtomicU8,
    task: AtomicWaker,
}

/// They are being polled.
const POLLED: u8 = 1;
/// The connection was woken.
const CONNECTION: u8 = 2;
/// One of its parts was woken.
const PARTS: u8 = 4;

impl Turn {
    /// They are polled from now on. What was woken by now: nothing where the task was woken for something else.
    fn begin(&self, task: &Waker) -> u8 {
        self.task.register(task);
        self.take()
    }

    /// What was woken by now, which is polled in the next round.
    fn take(&self) -> u8 {
        self.state.swap(POLLED, Ordering::SeqCst) & !POLLED
    }

    /// Whether anything was woken that has not been polled since, beside what was taken and is not.
    fn end(&self, taken: u8) -> bool {
        self.state.fetch_or(taken, Ordering::SeqCst);
        self.state.fetch_and(!POLLED, Ordering::SeqCst) != POLLED
    }

    fn wake(&self, side: u8) {
        if self.state.fetch_or(side, Ordering::SeqCst) == 0 {
            self.task.wake();
        }
    }
}

/// One side of a turn, to be woken.
struct Side<const SIDE: u8>(Arc<Turn>);

impl<const SIDE: u8> Wake for Side<SIDE> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake(SIDE);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::channel::oneshot;
    use futures::task::{ArcWake, waker};

    use super::*;

    /// Counts how often the task is woken.
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
    fn parts_that_wake_each_other_take_one_turn_and_wake_no_task() {
        let (mut task, starter, woken) = task(std::future::pending());
        let ((ask, asked), (answer, answered)) = (oneshot::channel(), oneshot::channel());
        let done = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&done);
        // The first waits for what the second says, and the second for what comes from outside.
        starter.execute(async move {
            let _ = answered.await;
            told.fetch_add(1, Ordering::SeqCst);
        });
        starter.execute(async move {
            let _ = asked.await;
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
    fn the_connection_is_not_polled_for_what_its_parts_wait_for() {
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
        assert_eq!(polls.load(Ordering::SeqCst), 2, "whoever polls for a reason of their own polls the connection");
    }

    #[test]
    fn what_never_rests_leaves_the_thread_to_others() {
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
    async fn what_is_under_way_goes_on_when_the_connection_takes_no_more() {
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
    fn nothing_keeps_itself_once_nobody_polls() {
        let (task, starter, _) = task(std::future::pending());
        let kept = Arc::new(());
        let hold = |kept: &Arc<()>| {
            let (own, kept) = (starter.clone(), Arc::clone(kept));
            async move {
                std::future::pending::<()>().await;
                drop((own, kept));
            }
        };
        starter.execute(hold(&kept));
        drop(task);
        starter.execute(hold(&kept));
        assert_eq!(Arc::strong_count(&kept), 1);
    }
}
