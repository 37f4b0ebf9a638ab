//! Polls the streams of an HTTP/2 connection on the connection's own task.
//!
//! hyper spawns a task for each stream, beside the task that reads and writes the connection. The tasks wake each other
//! for each frame, and each time the runtime wakes another thread as well. In a measurement, the answer to a list of
//! 620 KB caused 13 waits for I/O events, and woke an idle thread 8 times.
//!
//! So a stream is polled together with its connection. A wake-up between the stream and the connection is served within
//! the same poll, without the runtime. The stream and the connection are each polled only after their own wake-ups. A
//! stream with a long computation moves to a task of its own, so that it does not delay the connection's other streams.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::future::{AbortHandle, abortable};
use futures::stream::{FuturesUnordered, StreamExt};
use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::task::coop;
use tokio::time::Instant;
use tributary_apimachinery::{PollRound, PollSide};

/// The maximum size of hyper's part of a stream, in bytes. hyper's part takes 616 bytes, and the whole stream 768.
/// Thousands of streams exist while thousands of clients watch or wait for a list. During the stream's life, hyper
/// keeps memory for the request's future or the answer's body, whichever is larger. So the handling of a request is
/// boxed (in `request.rs`).
const STREAM_BYTES_MAX: usize = 1 << 10;
/// The time of one poll after which a stream moves to a task of its own. 1 ms is a thousand times the time for a frame
/// in memory. Compressing, printing and searching take longer.
const SLOW_POLL: Duration = Duration::from_millis(1);
/// The most polls of a connection and its streams within one poll of their task. Without this limit, a connection and
/// its streams could wake each other forever, and the thread's other tasks would not run.
const ROUNDS_MAX: usize = 32;

tokio::task_local! {
    /// The handle that aborts the HTTP/2 stream of the current task.
    static STREAM: AbortHandle;
}

/// Returns the handle that aborts the current stream. Returns `None` over HTTP/1.1, where only the connection can be
/// closed.
pub(super) fn stream() -> Option<AbortHandle> {
    STREAM.try_with(AbortHandle::clone).ok()
}

/// The new streams of a connection, spawned by hyper. Each stream can be aborted separately. While a stream's
/// flow-control window is full, hyper does not poll the answer's body. So the body itself cannot end its stream.
/// Dropping the stream frees its memory, and the client receives `RST_STREAM`.
#[derive(Clone, Default)]
pub(super) struct StreamExecutor {
    streams: Arc<Mutex<Vec<Stream>>>,
    round: Arc<PollRound>,
}

impl<F> Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        const { assert!(size_of::<F>() <= STREAM_BYTES_MAX, "a stream takes more than STREAM_BYTES_MAX") };
        let (stream, end) = abortable(stream);
        let stream = STREAM.scope(end, stream);
        // The error of an aborted stream is ignored, because its client has received `RST_STREAM`.
        self.streams.lock().push(Stream(Some(Box::pin(async { drop(stream.await) }))));
        // The caller may be the task of a stream that begins a tunnel, not the connection's task. The wake-up makes the
        // connection's task poll the new stream.
        self.round.wake(PollSide::Parts);
    }
}

/// A stream on its connection's task; `None` after its end, or after it moved to a task of its own.
struct Stream(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Future for Stream {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(stream) = &mut self.0 else { return Poll::Ready(()) };
        let began = Instant::now();
        // The panic hook has reported the panic, which must not end the connection's other streams.
        let polled = catch_unwind(AssertUnwindSafe(|| stream.as_mut().poll(cx))).unwrap_or(Poll::Ready(()));
        if polled.is_ready() {
            self.0 = None;
        } else if began.elapsed() > SLOW_POLL {
            self.0.take().map(tokio::spawn);
        }
        if self.0.is_none() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// The streams of a connection. Open streams are dropped together with the connection, because their client has
/// disconnected.
pub(super) struct Streams {
    executor: StreamExecutor,
    running: FuturesUnordered<Stream>,
    round: Arc<PollRound>,
    connection_waker: Waker,
    streams_waker: Waker,
}

impl Streams {
    /// Creates the streams of a connection that spawns new streams on `executor`.
    pub(super) fn new(executor: StreamExecutor) -> Self {
        let round = Arc::clone(&executor.round);
        let connection_waker = round.waker(PollSide::Connection);
        let streams_waker = round.waker(PollSide::Parts);
        Self { executor, running: FuturesUnordered::new(), round, connection_waker, streams_waker }
    }

    /// Polls the connection and its streams until the connection ends. Cancel: safe, if the function is called again
    /// afterwards.
    pub(super) fn drive<'a, C: Future>(&'a mut self, connection: Pin<&'a mut C>) -> Driven<'a, C> {
        // The caller may have changed the connection's state, for example with a graceful shutdown, so the connection
        // must be polled once.
        self.round.mark_woken(PollSide::Connection);
        Driven { streams: self, connection }
    }

    /// Polls the streams before the connection, so that one poll of the connection sends all their writes.
    fn poll<C: Future>(&mut self, mut connection: Pin<&mut C>, cx: &mut Context<'_>) -> Poll<C::Output> {
        self.round.begin(cx.waker());
        for _ in 0..ROUNDS_MAX {
            if self.round.take_woken(PollSide::Parts) {
                self.poll_streams();
            }
            if self.round.take_woken(PollSide::Connection) {
                let polled = connection.as_mut().poll(&mut Context::from_waker(&self.connection_waker));
                if polled.is_ready() {
                    // After the connection's end, a last poll of the streams writes the log entries of completed
                    // answers.
                    self.poll_streams();
                    self.round.leave();
                    return polled;
                }
            }
            if self.round.rests() {
                return Poll::Pending;
            }
            // Without cooperative budget, no resource of tokio is ready within this poll.
            if !coop::has_budget_remaining() {
                break;
            }
        }
        self.round.leave();
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_streams(&mut self) {
        self.running.extend(self.executor.streams.lock().drain(..));
        let own = &mut Context::from_waker(&self.streams_waker);
        while let Poll::Ready(Some(())) = self.running.poll_next_unpin(own) {}
    }
}

impl Drop for Streams {
    /// Breaks a reference cycle: a stream owns the list of new streams, for its tunnel. A stream that stayed in the
    /// list would never be freed.
    fn drop(&mut self) {
        let left = std::mem::take(&mut *self.executor.streams.lock());
        drop(left);
    }
}

/// The future that polls a connection together with its streams. Completes when the connection ends.
pub(super) struct Driven<'a, C> {
    streams: &'a mut Streams,
    connection: Pin<&'a mut C>,
}

impl<C: Future> Future for Driven<'_, C> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let own = self.get_mut();
        own.streams.poll(own.connection.as_mut(), cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;

    use futures::channel::mpsc;
    use futures::future::{pending, poll_fn};
    use tokio::task::yield_now;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn poll_counting<C: Future>(streams: &mut Streams, connection: Pin<&mut C>, woken: &Arc<Woken>) -> Poll<C::Output> {
        let waker = Waker::from(Arc::clone(woken));
        Pin::new(&mut streams.drive(connection)).poll(&mut Context::from_waker(&waker))
    }

    #[tokio::test]
    async fn mutual_wakeups_of_connection_and_stream_bypass_the_runtime() {
        const FRAMES: u32 = 10;
        let executor = StreamExecutor::default();
        let mut streams = Streams::new(executor.clone());
        let ((mut ask, mut asked), (mut give, mut given)) = (mpsc::channel(0), mpsc::channel(0));
        executor.execute(async move {
            while let Some(frame) = asked.next().await {
                futures::SinkExt::send(&mut give, frame).await.unwrap();
            }
        });
        let mut connection = Box::pin(async move {
            for frame in 0..FRAMES {
                futures::SinkExt::send(&mut ask, frame).await.unwrap();
                assert_eq!(given.next().await, Some(frame));
            }
            FRAMES
        });
        let woken = Arc::new(Woken::default());
        assert_eq!(poll_counting(&mut streams, connection.as_mut(), &woken), Poll::Ready(FRAMES));
        assert_eq!(woken.0.load(SeqCst), 0);
    }

    #[tokio::test]
    async fn connection_and_stream_are_polled_only_after_their_own_wakeups() {
        let executor = StreamExecutor::default();
        let mut streams = Streams::new(executor.clone());
        let (polls, steps) = (std::cell::Cell::new(0), Arc::new(AtomicUsize::new(0)));
        let ((event, mut events), (frame, mut frames)) = (mpsc::unbounded(), mpsc::unbounded());
        let own_steps = Arc::clone(&steps);
        executor.execute(poll_fn(move |cx| {
            own_steps.fetch_add(1, SeqCst);
            let _event: Poll<Option<()>> = events.poll_next_unpin(cx);
            Poll::<()>::Pending
        }));
        let mut connection = Box::pin(poll_fn(|cx| {
            polls.set(polls.get() + 1);
            let _frame: Poll<Option<()>> = frames.poll_next_unpin(cx);
            Poll::<()>::Pending
        }));
        let woken = Arc::new(Woken::default());
        let mut driven = streams.drive(connection.as_mut());
        let mut poll = || {
            let waker = Waker::from(Arc::clone(&woken));
            assert!(Pin::new(&mut driven).poll(&mut Context::from_waker(&waker)).is_pending());
            (polls.replace(0), steps.swap(0, SeqCst))
        };
        assert_eq!(poll(), (1, 1));
        event.unbounded_send(()).unwrap();
        assert_eq!(poll(), (0, 1), "the connection was looked at for a stream");
        frame.unbounded_send(()).unwrap();
        assert_eq!(poll(), (1, 0), "a stream was looked at for the connection");
        assert_eq!(poll(), (0, 0));
        assert_eq!(woken.0.load(SeqCst), 2);
    }

    #[tokio::test]
    async fn each_call_of_drive_polls_the_connection() {
        let mut streams = Streams::new(StreamExecutor::default());
        let is_to_end = std::cell::Cell::new(false);
        let mut connection = Box::pin(poll_fn(|_| if is_to_end.get() { Poll::Ready(()) } else { Poll::Pending }));
        assert!(poll_counting(&mut streams, connection.as_mut(), &Arc::default()).is_pending());
        is_to_end.set(true);
        assert!(poll_counting(&mut streams, connection.as_mut(), &Arc::default()).is_ready());
    }

    #[tokio::test]
    async fn busy_connection_yields_to_other_tasks() {
        let mut streams = Streams::new(StreamExecutor::default());
        let mut connection = Box::pin(poll_fn(|cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        let woken = Arc::new(Woken::default());
        assert!(poll_counting(&mut streams, connection.as_mut(), &woken).is_pending());
        assert_eq!(woken.0.load(SeqCst), 1, "it goes on after the others");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn wakeups_from_another_thread_are_not_lost() {
        const MESSAGES: usize = 20_000;
        let executor = StreamExecutor::default();
        let mut streams = Streams::new(executor.clone());
        let (send, mut messages) = tokio::sync::mpsc::unbounded_channel();
        let (done, is_done) = tokio::sync::oneshot::channel();
        executor.execute(async move {
            for message in 0..MESSAGES {
                assert_eq!(messages.recv().await, Some(message));
            }
            done.send(()).unwrap();
        });
        std::thread::spawn(move || (0..MESSAGES).for_each(|message| send.send(message).unwrap()));
        let driven = tokio::spawn(async move { streams.drive(Box::pin(is_done).as_mut()).await });
        tokio::time::timeout(Duration::from_secs(30), driven).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn stream_with_a_long_poll_moves_to_its_own_task() {
        let executor = StreamExecutor::default();
        let mut streams = Streams::new(executor.clone());
        let (done, is_done) = tokio::sync::oneshot::channel();
        executor.execute(async move {
            let began = Instant::now();
            while began.elapsed() <= SLOW_POLL {
                std::hint::spin_loop();
            }
            yield_now().await;
            done.send(()).unwrap();
        });
        let mut connection = Box::pin(pending::<()>());
        assert!(poll_counting(&mut streams, connection.as_mut(), &Arc::default()).is_pending());
        assert!(streams.running.is_empty());
        is_done.await.unwrap();
    }

    #[tokio::test]
    async fn panic_of_one_stream_does_not_end_other_streams() {
        let executor = StreamExecutor::default();
        let mut streams = Streams::new(executor.clone());
        executor.execute(async { panic!("of one stream") });
        let (done, is_done) = tokio::sync::oneshot::channel();
        executor.execute(async move { done.send(()).unwrap() });
        assert_eq!(streams.drive(Box::pin(is_done).as_mut()).await, Ok(()));
    }

    #[tokio::test]
    async fn streams_are_dropped_with_their_connection() {
        let executor = StreamExecutor::default();
        let mut streams = Streams::new(executor.clone());
        let (held, given_up) = tokio::sync::oneshot::channel::<()>();
        executor.execute(async move {
            let _held = held;
            pending::<()>().await
        });
        streams.drive(Box::pin(yield_now()).as_mut()).await;
        assert_eq!(streams.running.len(), 1);
        drop(streams);
        assert!(given_up.await.is_err());
    }

    #[tokio::test]
    async fn streams_that_begin_as_their_connection_ends_are_dropped() {
        let executor = StreamExecutor::default();
        let streams = Streams::new(executor.clone());
        let (held, given_up) = tokio::sync::oneshot::channel::<()>();
        let own = executor.clone();
        executor.execute(async move {
            let _held = (held, own);
            pending::<()>().await
        });
        drop((streams, executor));
        assert!(given_up.await.is_err());
    }

    #[tokio::test]
    async fn ready_stream_is_polled_before_its_connection_ends() {
        let executor = StreamExecutor::default();
        let mut streams = Streams::new(executor.clone());
        let (answer, mut answered) = tokio::sync::oneshot::channel();
        executor.execute(async move { answer.send(()).unwrap() });
        streams.drive(Box::pin(std::future::ready(())).as_mut()).await;
        assert_eq!(answered.try_recv(), Ok(()));
    }

    #[tokio::test]
    async fn stream_can_be_aborted_without_closing_the_connection() {
        let executor = StreamExecutor::default();
        let mut streams = Streams::new(executor.clone());
        let (tell, told) = tokio::sync::oneshot::channel();
        executor.execute(async move {
            tell.send(stream().unwrap()).unwrap();
            pending::<()>().await
        });
        let mut connection = Box::pin(pending::<()>());
        assert!(poll_counting(&mut streams, connection.as_mut(), &Arc::default()).is_pending());
        let woken = Arc::new(Woken::default());
        assert!(poll_counting(&mut streams, connection.as_mut(), &woken).is_pending());
        told.await.unwrap().abort();
        assert_eq!(woken.0.load(SeqCst), 1);
        assert!(poll_counting(&mut streams, connection.as_mut(), &woken).is_pending());
        assert!(streams.running.is_empty());
    }
}
