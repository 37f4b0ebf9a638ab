//! Whether there is room for an answer on the connection that a request came by.

use std::fmt;
use std::sync::Arc;

/// Asks the connection that a request came by whether there is room for its answer. An extension of the request.
///
/// The body of a write may come long after its head, and what there was room for then may be taken by others meanwhile.
/// So it is asked again once the body is there, before anything is sent: what a write is answered is never withheld.
#[derive(Clone)]
pub struct AnswerRoom(Arc<dyn Fn() -> bool + Send + Sync>);

impl AnswerRoom {
    /// Asks it so.
    pub fn new(is_left: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_left))
    }

    /// Whether there is room now.
    pub fn is_left(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for AnswerRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnswerRoom").finish_non_exhaustive()
    }
}
