//! Runs a part of the process on separate threads.
//!
//! The tasks of one tokio runtime share its queues. When a thousand clusters answer at the same time, thousands of
//! tasks are ready, and delay a client's request. The kernel's scheduler shares the cores among separate runtimes, and
//! favours threads that have slept.

use std::io;
use std::num::NonZero;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::task::JoinHandle;

/// The time limit for the end of a runtime. Tasks are dropped within a millisecond. A blocking thread, for example with
/// an answer of a hundred thousand objects, needs some tenths of a second.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the number of cores for this process; one if the system reports none.
pub fn cores() -> usize {
    available_parallelism().map_or(1, NonZero::get)
}

/// A separate runtime. Its tasks are dropped together with the runtime.
pub struct Threads {
    handle: Handle,
    /// The tokio runtime; `None` after its shutdown has begun.
    runtime: Option<Runtime>,
}

impl Threads {
    /// Starts a runtime. The number of its threads is the number of cores divided by `parts`, but at least one.
    ///
    /// # Errors
    /// The operating system cannot start the threads.
    pub fn start(name: &'static str, parts: usize) -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads((cores() / parts.max(1)).max(1)).thread_name(name).enable_all();
        let runtime = builder.build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Spawns a task on the threads of this runtime.
    pub fn spawn<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.handle.spawn(task)
    }

    /// Drops all tasks and waits for the end of the runtime, at most 5 s. Cancel: the tasks are dropped even if this
    /// future is dropped.
    pub async fn end(mut self) {
        if let Some(runtime) = self.runtime.take() {
            // `spawn_blocking` fails only if the caller's runtime ends.
            let _ = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(END_TIMEOUT)).await;
        }
    }

    /// Enters the runtime until the returned guard is dropped.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Dropping a runtime waits for its threads, which panics within an async task.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
