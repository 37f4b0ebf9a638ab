//! Writes the audit lines of requests that end at the same time with few system calls.
//!
//! The first request becomes the writer, and writes its own line at once on its own thread. Requests that arrive during
//! the write enqueue their lines, and wait without blocking a thread. The writer then writes all enqueued lines with
//! one call, and reports the result to each request. No thread waits for the write of another thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::emission::Emission;
use crate::line_log::Output;

/// The time limit for the last writes of the audit log at shutdown, so that a hanging disk cannot prevent the end of
/// the process.
const IDLE_WAIT: Duration = Duration::from_secs(5);

/// An audit log output with at most one writing request at a time.
pub(crate) struct SharedOutput(Mutex<OutputState>);

/// The state of the audit log output: free, or owned by the request that currently writes.
enum OutputState {
    /// The audit log output has no writer.
    Free(Box<Output>),
    /// A request is the writer. Other requests enqueue their lines for the writer.
    InUse(VecDeque<QueuedLine>),
}

/// A log line that waits for the current writer.
struct QueuedLine {
    line: Bytes,
    written: oneshot::Sender<bool>,
}

impl SharedOutput {
    pub(crate) fn new(output: Output) -> Arc<Self> {
        Arc::new(Self(Mutex::new(OutputState::Free(Box::new(output)))))
    }

    /// Writes a line, or enqueues the line for the current writer. The result is `true` after the operating system has
    /// accepted the line.
    pub(crate) fn write(self: &Arc<Self>, line: &Bytes) -> Emission {
        let mut state = self.0.lock();
        let output = match &mut *state {
            OutputState::InUse(left) => {
                let (written, is_written) = oneshot::channel();
                left.push_back(QueuedLine { line: line.clone(), written });
                // The sender of this result is dropped without a result only after a panic of the writing request.
                return Emission::waiting(async { is_written.await.unwrap_or(false) });
            }
            free @ OutputState::Free(_) => std::mem::replace(free, OutputState::InUse(VecDeque::new())),
        };
        drop(state);
        let OutputState::Free(output) = output else { return Emission::Done(false) };
        let mut writing = WriteGuard { shared: Arc::clone(self), output: Some(output) };
        let is_written = writing.output.as_mut().is_some_and(|output| output.write_one(line));
        // Writes the few lines that were enqueued during the first write. A background task writes all later lines,
        // because this request must send its answer.
        if writing.write_queued() {
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(writing.write_all())),
                Err(_) => while writing.write_queued() {},
            }
        }
        Emission::Done(is_written)
    }

    /// Waits until no request writes, so that no line is lost at the end of the process. Returns after [`IDLE_WAIT`] at
    /// the latest. Cancel: safe.
    pub(crate) async fn idle(&self) {
        let is_taken = || matches!(*self.0.lock(), OutputState::InUse(_));
        let nobody_writes = async {
            while is_taken() {
                sleep(Duration::from_millis(1)).await;
            }
        };
        if timeout(IDLE_WAIT, nobody_writes).await.is_err() {
            tracing::error!("the audit log is still being written; its last lines may be missing");
        }
    }
}

/// Exclusive ownership of the output by the current writer. Dropping it frees the output.
struct WriteGuard {
    shared: Arc<SharedOutput>,
    /// The audit log output; `None` after it was freed.
    output: Option<Box<Output>>,
}

impl WriteGuard {
    fn write(&mut self, lines: &[Bytes]) -> Vec<bool> {
        self.output.as_mut().map(|output| output.write(lines)).unwrap_or_default()
    }

    /// Writes the enqueued lines. If there are none, frees the output and returns `false`.
    fn write_queued(&mut self) -> bool {
        let left = match &mut *self.shared.0.lock() {
            OutputState::InUse(left) if !left.is_empty() => std::mem::take(left),
            state => {
                // The same lock protects the queue and the state, so no request can enqueue a line between the check
                // and this assignment.
                if let Some(output) = self.output.take() {
                    *state = OutputState::Free(output);
                }
                return false;
            }
        };
        let (lines, waiting): (Vec<_>, Vec<_>) = left.into_iter().map(|left| (left.line, left.written)).unzip();
        for (waiting, is_written) in waiting.into_iter().zip(self.write(&lines)) {
            // Sending the result fails if the client has disconnected, because the receiver is then dropped.
            let _ = waiting.send(is_written);
        }
        true
    }

    /// Writes enqueued lines until the queue is empty. Yields to other tasks of the thread after each write.
    async fn write_all(mut self) {
        while self.write_queued() {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for WriteGuard {
    /// Frees the output after a panic in a write, or at the end of the runtime. At the end of the runtime, enqueued
    /// lines are written first: they may be the last lines of requests that the shutdown interrupts.
    fn drop(&mut self) {
        // When the queue is empty, `write_queued` frees the output, and the loop ends. The request that writes the next
        // line then becomes the writer.
        while self.output.is_some() && !std::thread::panicking() {
            self.write_queued();
        }
        if let Some(output) = self.output.take() {
            *self.shared.0.lock() = OutputState::Free(output);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::Barrier;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::super::metrics::AuditMetrics;
    use super::*;
    use crate::line_log::Target;

    /// A test output that reports the beginning of each write, and blocks until the test sends the write's result.
    struct Gate {
        begun: Sender<String>,
        go_on: Receiver<io::Result<()>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.begun.send(String::from_utf8_lossy(bytes).into_owned()).unwrap();
            self.go_on.recv().unwrap().map(|()| bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Target for Gate {}

    fn gated() -> (Arc<SharedOutput>, Receiver<String>, Sender<io::Result<()>>) {
        let ((begun, writes), (let_go_on, go_on)) = (channel(), channel());
        let output = Output::new(Box::new(Gate { begun, go_on }), AuditMetrics::default().log_losses());
        (SharedOutput::new(output), writes, let_go_on)
    }

    fn line(text: &str) -> Bytes {
        Bytes::from(format!("{text}\n"))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn log_lines_that_arrive_during_a_write_are_written_together() {
        let (shared, writes, go_on) = gated();
        let first = {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move { shared.write(&line("one")).await })
        };
        assert_eq!(writes.recv().unwrap(), "one\n");
        // The requests' results stay pending until the gate lets the lines be written.
        let mut left = ["two", "three", "four"].map(|text| shared.write(&line(text)));
        for emission in &mut left {
            assert!(futures::poll!(&mut *emission).is_pending());
        }
        go_on.send(Ok(())).unwrap();
        assert_eq!(writes.recv().unwrap(), "two\nthree\nfour\n");
        for emission in &mut left {
            assert!(futures::poll!(&mut *emission).is_pending());
        }
        // The first request writes only lines that arrived during its own write, not this later line. So the answer to
        // the first request is not delayed.
        let late = shared.write(&line("five"));
        go_on.send(Ok(())).unwrap();
        assert!(first.await.unwrap());
        for emission in left {
            assert!(emission.await);
        }
        assert_eq!(writes.recv().unwrap(), "five\n");
        go_on.send(Ok(())).unwrap();
        assert!(late.await);
        shared.idle().await;
        let alone = tokio::task::spawn_blocking(move || matches!(shared.write(&line("six")), Emission::Done(true)));
        assert_eq!(writes.recv().unwrap(), "six\n");
        go_on.send(Ok(())).unwrap();
        assert!(alone.await.unwrap(), "who comes alone writes at once");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn log_lines_that_are_written_together_have_separate_results() {
        let (shared, writes, go_on) = gated();
        let first = {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move { shared.write(&line("one")).await })
        };
        writes.recv().unwrap();
        let left = ["two", "three"].map(|text| shared.write(&line(text)));
        for result in [Ok(()), Err(io::ErrorKind::StorageFull.into()), Ok(()), Ok(())] {
            go_on.send(result).unwrap();
        }
        let mut told = vec![first.await.unwrap()];
        for emission in left {
            told.push(emission.await);
        }
        assert_eq!(told, [true, false, true], "the second was lost, the third was not");
        assert_eq!(writes.into_iter().take(3).collect::<Vec<_>>(), ["two\nthree\n", "\n", "three\n"]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn cancelled_log_writer_still_writes_the_remaining_lines() {
        let (shared, writes, go_on) = gated();
        let OutputState::Free(output) = std::mem::replace(&mut *shared.0.lock(), OutputState::InUse(VecDeque::new()))
        else {
            panic!("nobody writes")
        };
        let writing = WriteGuard { shared: Arc::clone(&shared), output: Some(output) };
        let left = shared.write(&line("one"));
        go_on.send(Ok(())).unwrap();
        // Dropping the future stands for a runtime that ends before it polls the task that writes the enqueued lines.
        drop(writing.write_all());
        assert_eq!(writes.recv().unwrap(), "one\n");
        assert!(left.await);
        assert!(matches!(*shared.0.lock(), OutputState::Free(_)));
    }

    #[test]
    fn concurrent_log_writers_lose_and_duplicate_no_lines() {
        #[derive(Clone, Default)]
        struct Kept(Arc<Mutex<Vec<u8>>>);

        impl Write for Kept {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                // A disk may accept only a part of the bytes with one call.
                let taken = bytes.len().min(7);
                self.0.lock().extend_from_slice(&bytes[..taken]);
                std::thread::yield_now();
                Ok(taken)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl Target for Kept {}

        const THREADS: usize = 8;
        const LINES: usize = 500;
        let kept = Kept::default();
        let shared = SharedOutput::new(Output::new(Box::new(kept.clone()), AuditMetrics::default().log_losses()));
        let begin = Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (shared, begin, kept) = (&shared, &begin, &kept);
                scope.spawn(move || {
                    begin.wait();
                    for number in 0..LINES {
                        let own = format!("{thread}-{number}");
                        assert!(futures::executor::block_on(shared.write(&line(&own))));
                        let written = format!("\n{}", String::from_utf8_lossy(&kept.0.lock()));
                        assert!(written.contains(&format!("\n{own}\n")), "{own} is answered before it is written");
                    }
                });
            }
        });
        let written = String::from_utf8(kept.0.lock().clone()).unwrap();
        let mut lines: Vec<_> = written.lines().collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!((written.lines().count(), lines.len()), (THREADS * LINES, THREADS * LINES));
    }
}
