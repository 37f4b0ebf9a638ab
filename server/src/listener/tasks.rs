//! The tasks that answer over HTTP/2, one for each stream, and how one of them is ended.

use std::future::Future;

use futures::future::{AbortHandle, abortable};
use hyper::rt::Executor;

/// The most that hyper's own part of a stream may take in memory, in bytes. 1 KiB; it takes 616 bytes, and its task
/// 768. There are thousands of them where thousands watch, or wait for their turn to list. hyper keeps one place for a
/// request's future and for its answer's body, as large as the larger of them for as long as the stream lasts, so what
/// answers a request is boxed (in `connection.rs`).
const STREAM_BYTES_MAX: usize = 1 << 10;

tokio::task_local! {
    /// Ends the task of the stream that is answered.
    static STREAM: AbortHandle;
}

/// Starts tasks each of which can be ended alone. hyper waits for a stream's window without asking the answer's body
/// anything, so no body can end its stream; that the task ends does: what it held is dropped,
/// and the client is told `RST_STREAM`.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamTasks;

impl<F> Executor<F> for StreamTasks
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, stream: F) {
        const { assert!(size_of::<F>() <= STREAM_BYTES_MAX, "a stream takes more than STREAM_BYTES_MAX") };
        let (stream, end) = abortable(stream);
        tokio::spawn(STREAM.scope(end, stream));
    }
}

/// What ends the stream whose answer is being made; `None` over HTTP/1.1, where that is the connection.
pub(super) fn stream() -> Option<AbortHandle> {
    STREAM.try_with(AbortHandle::clone).ok()
}
