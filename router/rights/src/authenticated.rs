//! Time until which the sender of a request is known. Its streams end then.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Time until which the sender of a request is known. Its streams end then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticatedUntil(Instant);

impl AuthenticatedUntil {
    /// So long from now; `None` for an end that no clock reaches.
    pub fn in_duration(time: Duration) -> Option<Self> {
        Instant::now().checked_add(time).map(Self)
    }

    /// The end of this time.
    pub fn instant(self) -> Instant {
        self.0
    }
}

/// Function that tells whether the sender's credentials are still valid. Streams call it after
/// `Router::authentication_changed` and after changes of rights, so it must be cheap. Clones are equal.
#[derive(Clone)]
pub struct StillKnown(Arc<dyn Fn() -> bool + Send + Sync>);

impl StillKnown {
    /// Wraps a function without notifications.
    pub fn new(says: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(says))
    }

    /// Whether the sender would be known now.
    pub fn is_known(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for StillKnown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StillKnown")
    }
}
