//! Threads of their own for a part of the process.
//!
//! Within one tokio runtime everybody waits in the same lines. Where a thousand clusters answer at once, thousands of
//! their tasks are ready, and a client's request stands behind them for tenths of a second, however little it asks.
//! Runtimes of their own share the cores by the kernel's scheduler instead, which gives a thread that has slept its
//! time within milliseconds.

use std::io;
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::task::JoinHandle;

/// How long the end of a runtime is waited for. Its tasks are dropped as soon as none of them runs, within a
/// millisecond; what a thread for long work is at, an answer of a hundred thousand objects, takes some tenths of a
/// second.
const END_WITHIN: Duration = Duration::from_secs(5);

/// How many cores this process may use; one where the system does not say.
pub fn cores() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// A runtime that ends with this, and whose tasks are dropped then.
pub struct Threads {
    handle: Handle,
    /// Taken when this is dropped.
    runtime: Option<Runtime>,
}

impl Threads {
    /// As many threads as there are cores, over `parts`, and one at least.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn start(name: &'static str, parts: usize) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads((cores() / parts.max(1)).max(1)).thread_name(name).enable_all();
        let runtime = builder.build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Runs a task there.
    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.handle.spawn(task)
    }

    /// Drops all tasks, and ends once they are: what is told of each at its end is told by then. After 5 s in
    /// any case. Cancel: the tasks are dropped all the same.
    pub async fn end(mut self) {
        if let Some(runtime) = self.runtime.take() {
            // It fails only where the runtime that waits ends itself.
            let _ = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(END_WITHIN)).await;
        }
    }

    /// What is made until the guard is dropped, sockets for instance, belongs there.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // A runtime that is dropped waits for its threads, which is refused where tasks run.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
