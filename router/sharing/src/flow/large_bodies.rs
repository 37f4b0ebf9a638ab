//! CPU limit for large bodies: few large bodies are processed at a time, apart from other requests.
//!
//! A core takes tenths of a second to validate and parse a body of some megabytes. Ten such bodies at once would block
//! all threads that serve requests. Therefore each large body waits for a CPU slot, and the runtime moves other tasks
//! to another thread during the work. Connections get slots round robin. The limit also applies to slow output: YAML,
//! and text that is compressed or formatted as a whole.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;
use tributary_apimachinery::Permit;

use crate::flow::fair_queue::FairQueue;
use crate::flow::share_key::ShareKey;

/// Minimal size of a large body, in bytes. Parsing 64 KiB takes one to two milliseconds, and nearly all bodies are
/// smaller.
const LARGE_BYTES: usize = 64 << 10;

/// CPU cost of YAML input: one byte of YAML takes as long to convert to JSON as this number of JSON bytes takes to
/// parse. A megabyte of short YAML values takes one to two seconds.
const YAML_CONVERSION_COST: usize = 64;

/// Returns the CPU cost of converting `bytes` bytes of YAML to JSON. The unit is the time to parse one byte of JSON. By
/// this measure, 1 KiB of YAML is a large body.
pub fn yaml_conversion_cost(bytes: usize) -> usize {
    bytes.saturating_mul(YAML_CONVERSION_COST)
}

/// Runs long work on this thread, while another thread takes over the thread's other tasks.
pub fn run_in_place<T>(work: impl FnOnce() -> T) -> T {
    // A single-threaded runtime has no other thread, and `block_in_place` would panic.
    let others = Handle::try_current().is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if others { block_in_place(work) } else { work() }
}

/// Runs a short scan of a body without a CPU slot. Only for scans that take a fraction of the time of parsing.
pub fn at_once<T>(bytes: usize, look: impl FnOnce() -> T) -> T {
    if bytes < LARGE_BYTES { look() } else { run_in_place(look) }
}

/// CPU slots for large bodies.
pub struct LargeBodies(Arc<FairQueue>);

/// Permit to process one body. Dropping the permit releases the CPU slot.
pub struct BodyPermit(Option<Permit>);

impl Default for LargeBodies {
    /// The default has slots for half of the cores, and at least one slot. The other half of the cores serves small
    /// requests.
    fn default() -> Self {
        Self(FairQueue::new(available_parallelism().map_or(1, NonZero::get) / 2))
    }
}

impl LargeBodies {
    /// Returns a limit with a single CPU slot, as on a machine with one core.
    pub fn one_at_a_time() -> Self {
        Self(FairQueue::new(1))
    }

    /// Waits for a CPU slot for a body. A small body needs no slot.
    ///
    /// Cancellation is safe: the request leaves the queue.
    pub async fn body_permit(&self, share_key: ShareKey, bytes: usize) -> BodyPermit {
        if bytes < LARGE_BYTES {
            return BodyPermit(None);
        }
        BodyPermit(self.0.acquire(share_key).await)
    }
}

impl BodyPermit {
    /// Runs the work. During the work of a large body, another thread takes over this thread's other tasks.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> T {
        if self.0.is_some() { run_in_place(work) } else { work() }
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
    use crate::flow::share_key::ShareKey;

    fn client(port: u16) -> ShareKey {
        ShareKey::Connection(([127, 0, 0, 1], port).into())
    }

    #[tokio::test]
    async fn small_body_does_not_wait_for_a_large_body() {
        let bodies = LargeBodies::one_at_a_time();
        let large = bodies.body_permit(ShareKey::Unknown, LARGE_BYTES).await;
        assert!(bodies.body_permit(ShareKey::Unknown, LARGE_BYTES).now_or_never().is_none(), "its turn is taken");
        assert_eq!(bodies.body_permit(ShareKey::Unknown, LARGE_BYTES - 1).await.run(|| 1), 1);
        assert_eq!(large.run(|| 2), 2);
        assert!(bodies.body_permit(ShareKey::Unknown, LARGE_BYTES).now_or_never().is_some(), "the turn is over");
    }

    #[tokio::test]
    async fn cpu_slots_for_large_bodies_go_to_connections_round_robin() {
        let bodies = LargeBodies::one_at_a_time();
        let ask = |port| Box::pin(bodies.body_permit(client(port), LARGE_BYTES));
        let reading = ask(1).await;
        let mut flood: Vec<_> = (0..100).map(|_| ask(1)).collect();
        assert!(flood.iter_mut().all(|pending| pending.now_or_never().is_none()));
        let mut other = ask(2);
        assert!((&mut other).now_or_never().is_none());
        drop(reading);
        let next = flood[0].as_mut().now_or_never().expect("it came first");
        drop(next);
        let others = other.now_or_never().expect("the other connection is served second, not as the hundred and first");
        drop(others);
        assert!(flood[1].as_mut().now_or_never().is_some());
    }

    /// The runtime has one worker thread, which is busy with a large body. Without the move to another thread, the
    /// second task would never run.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_on_a_large_body_blocks_no_worker_thread() {
        let (begun, has_begun) = oneshot::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let bodies = Arc::new(LargeBodies::default());
        let reader = tokio::spawn(async move {
            let body_permit = bodies.body_permit(ShareKey::Unknown, LARGE_BYTES).await;
            body_permit.run(|| {
                begun.send(()).unwrap();
                may_go_on.recv_timeout(Duration::from_secs(60))
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
