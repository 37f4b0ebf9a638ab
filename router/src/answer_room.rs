//! Whether there is room for an answer on the connection that a request came by.

use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use tributary_answers::refusal::LimitRefusal;

/// Asks the connection that a request came by whether there is room for its answer. An extension of the request.
///
/// The body of a write may come long after its head, and what there was room for then may be taken by others meanwhile.
/// So it is asked again once the body is there, before anything is sent: what a write is answered is never withheld.
#[derive(Clone)]
pub struct AnswerRoom(Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>);

impl AnswerRoom {
    /// Asks it so. The future may wait for room, within bounds of its own, and says whether there is any.
    pub fn new<F>(room: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = bool> + Send + 'static,
    {
        Self(Arc::new(move || room().boxed()))
    }

    /// Waits until there is room, as long as the connection has its requests wait. Whether there is. Who gives up
    /// waiting leaves nothing behind.
    pub async fn wait(&self) -> bool {
        (self.0)().await
    }
}

/// Waits for room for the answer to a write. Call once its body is there, and before anything is sent.
///
/// # Errors
/// 429 where there is none for as long as the connection has its requests wait.
pub(crate) async fn wait(room: Option<&AnswerRoom>) -> Result<(), LimitRefusal> {
    match room {
        Some(room) if !room.wait().await => Err(LimitRefusal::Unread),
        _ => Ok(()),
    }
}

impl fmt::Debug for AnswerRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnswerRoom").finish_non_exhaustive()
    }
}
