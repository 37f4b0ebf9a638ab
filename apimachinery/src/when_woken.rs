//! A future that is polled only after its own wakeup.
//!
//! The futures that may end a response early (changed rights, changed policies, a deadline) share a task with the
//! response's frames. Nearly all wakeups of the task are for a frame. Polling these futures each time would be
//! expensive, because each poll visits all futures that they contain.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;

/// Polls a future once, and afterwards only after a wakeup by the future's own waker. The future must store the waker
/// that it receives, as the contract of `Future` requires. Cancelling is as safe as for the future itself.
#[derive(Debug)]
pub struct WhenWoken<F> {
    future: F,
    own: Arc<WakeState>,
    waker: Waker,
}

#[derive(Debug)]
struct WakeState {
    task: AtomicWaker,
    is_woken: AtomicBool,
}

impl<F> WhenWoken<F> {
    /// Wraps a future. The wrapper's first poll polls the future.
    pub fn new(future: F) -> Self {
        let own = Arc::new(WakeState { task: AtomicWaker::new(), is_woken: AtomicBool::new(true) });
        let waker = Waker::from(Arc::clone(&own));
        Self { future, own, waker }
    }
}

impl<F: Future + Unpin> Future for WhenWoken<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, own, waker } = self.get_mut();
        // The task's waker is registered before the check for a wakeup, so that no later wakeup is lost.
        own.task.register(cx.waker());
        match own.is_woken.swap(false, Ordering::SeqCst) {
            true => Pin::new(future).poll(&mut Context::from_waker(waker)),
            false => Poll::Pending,
        }
    }
}

impl Wake for WakeState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.task.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use futures::channel::oneshot;
    use futures::future::poll_fn;
    use futures::task::{ArcWake, waker};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl ArcWake for Woken {
        fn wake_by_ref(woken: &Arc<Self>) {
            woken.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn wrapped_future_is_not_polled_after_wakeups_of_other_futures() {
        let (send, mut receive) = oneshot::channel::<()>();
        let mut polls = 0;
        let mut future = WhenWoken::new(poll_fn(|cx| {
            polls += 1;
            Pin::new(&mut receive).poll(cx).map(|received| (received, polls))
        }));
        let (first, second) = (Arc::<Woken>::default(), Arc::<Woken>::default());
        let mut poll =
            |task: &Arc<Woken>| Pin::new(&mut future).poll(&mut Context::from_waker(&waker(Arc::clone(task))));
        assert!(poll(&first).is_pending());
        assert!(poll(&first).is_pending());
        assert!(poll(&second).is_pending());
        send.send(()).unwrap();
        let woken = [&first, &second].map(|task| task.0.load(Ordering::SeqCst));
        assert_eq!(woken, [0, 1], "the task that polled last is woken");
        assert_eq!(poll(&second), Poll::Ready((Ok(()), 2)));
    }
}
