//! Large bodies are read beside the other requests, and few at a time.
//!
//! A body of some megabytes takes a core for tenths of a second to be checked and taken apart. On the threads that
//! answer requests, ten of them at once would leave nobody else a thread for as long; here each waits for its turn, and
//! the runtime moves the other requests to another thread meanwhile. Connections are served in turn: what one has
//! waiting, and it may be more than it holds bytes for, delays another's by one. The same goes for what is written for
//! long: YAML, and text that is compressed or laid out as a whole.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;
use tributary_apimachinery::Permit;

use crate::flow::fair_line::FairLine;
use crate::flow::holder::Holder;

/// From how many bytes on a body is large. 64 KiB are read in one to two milliseconds,
/// and nearly all bodies are smaller.
const LARGE_BYTES: usize = 64 << 10;

/// The number of bytes of JSON that a thread reads while it converts a byte of YAML: a megabyte of short values takes
/// one to two seconds.
const YAML_CONVERSION_COST: usize = 64;

/// The cost of converting YAML to JSON, in bytes of JSON that take the same time: 1 KiB of YAML is a large body.
pub fn of_yaml(bytes: usize) -> usize {
    bytes.saturating_mul(YAML_CONVERSION_COST)
}

/// Runs long work while a second thread takes over the other tasks of this thread.
pub fn beside<T>(work: impl FnOnce() -> T) -> T {
    // A runtime of a single thread has none to take over.
    let others = Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if others { block_in_place(work) } else { work() }
}

/// Runs a short look through a body without a turn. For looks that take a fraction of the time for parsing.
pub fn at_once<T>(bytes: usize, look: impl FnOnce() -> T) -> T {
    if bytes < LARGE_BYTES { look() } else { beside(look) }
}

/// The turns of large bodies.
pub struct LargeBodies(Arc<FairLine>);

/// The permission to read one body. Its turn is over when this is dropped.
pub struct BodyTurn(Option<Permit>);

impl Default for LargeBodies {
    /// Half of the cores at once, and at least one: the other half serves small requests.
    fn default() -> Self {
        Self(FairLine::new(available_parallelism().map_or(1, NonZero::get) / 2))
    }
}

impl LargeBodies {
    /// A single turn, as on a machine with one core.
    pub fn one_at_a_time() -> Self {
        Self(FairLine::new(1))
    }

    /// Waits for the turn of a body. A small body needs no turn.
    ///
    /// Cancellation is safe: the request leaves the queue.
    pub async fn turn(&self, holder: Holder, bytes: usize) -> BodyTurn {
        if bytes < LARGE_BYTES {
            return BodyTurn(None);
        }
        BodyTurn(self.0.acquire(holder).await)
    }
}

impl BodyTurn {
    /// Runs the work. The work of a large body runs while a second thread takes over the other tasks.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> T {
        if self.0.is_some() { beside(work) } else { work() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use futures::FutureExt;

    use super::*;
    use crate::flow::holder::Holder;

    fn client(port: u16) -> Holder {
        Holder::Connection(([127, 0, 0, 1], port).into())
    }

    #[tokio::test]
    async fn a_small_body_waits_for_no_large_one() {
        let bodies = LargeBodies::one_at_a_time();
        let large = bodies.turn(Holder::Unknown, LARGE_BYTES).await;
        assert!(bodies.turn(Holder::Unknown, LARGE_BYTES).now_or_never().is_none(), "its turn is taken");
        assert_eq!(bodies.turn(Holder::Unknown, LARGE_BYTES - 1).await.run(|| 1), 1);
        assert_eq!(large.run(|| 2), 2);
        assert!(bodies.turn(Holder::Unknown, LARGE_BYTES).now_or_never().is_some(), "the turn is over");
    }

    #[tokio::test]
    async fn connections_take_turns() {
        let bodies = LargeBodies::one_at_a_time();
        let ask = |port| Box::pin(bodies.turn(client(port), LARGE_BYTES));
        let reading = ask(1).await;
        let mut flood: Vec<_> = (0..100).map(|_| ask(1)).collect();
        assert!(flood.iter_mut().all(|asked| asked.now_or_never().is_none()));
        let mut other = ask(2);
        assert!((&mut other).now_or_never().is_none());
        drop(reading);
        let next = flood[0].as_mut().now_or_never().expect("it came first");
        drop(next);
        let others = other.now_or_never().expect("the other connection is served second, not as the hundred and first");
        drop(others);
        assert!(flood[1].as_mut().now_or_never().is_some());
    }

    /// With one worker thread, and that one busy with a large body, another task still runs: without the move to
    /// another thread this would wait for ever.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn who_reads_a_large_body_keeps_no_worker() {
        let (begun, has_begun) = oneshot::channel();
        let (go_on, told) = mpsc::channel::<()>();
        let bodies = Arc::new(LargeBodies::default());
        let reader = tokio::spawn(async move {
            let turn = bodies.turn(Holder::Unknown, LARGE_BYTES).await;
            turn.run(|| {
                begun.send(()).unwrap();
                told.recv_timeout(Duration::from_secs(60))
            })
        });
        let other = tokio::spawn(async move {
            has_begun.await.unwrap();
            go_on.send(()).unwrap();
        });
        other.await.unwrap();
        reader.await.unwrap().unwrap();
    }
}
