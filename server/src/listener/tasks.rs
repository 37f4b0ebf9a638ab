//! The tasks that answer over HTTP/2, one for each stream, and how one of them is ended.

use std::future::Future;

use hyper::rt::Executor;
use tokio_util::sync::CancellationToken;

tokio::task_local! {
    /// Ends the task of the stream that is answered.
    static STREAM: CancellationToken;
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
        let end = CancellationToken::new();
        tokio::spawn(STREAM.scope(end.clone(), async move { end.run_until_cancelled_owned(stream).await }));
    }
}

/// What ends the stream whose answer is being made; `None` over HTTP/1.1, where that is the connection.
pub(super) fn stream() -> Option<CancellationToken> {
    STREAM.try_with(CancellationToken::clone).ok()
}
