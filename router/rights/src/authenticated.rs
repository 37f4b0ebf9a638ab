//! For how long it is known who sends a request: what lasts is over then.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Among a request's extensions: until when it is known who sends it. What lasts is over then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticatedUntil(Instant);

impl AuthenticatedUntil {
    /// So long from now; `None` for an end that no clock reaches.
    pub fn in_duration(time: Duration) -> Option<Self> {
        Instant::now().checked_add(time).map(Self)
    }

    /// When that is.
    pub fn instant(self) -> Instant {
        self.0
    }
}

/// Among a request's extensions: says whether its sender would be known now by what they sent. What lasts asks it when
/// `Router::authentication_changed` was called, or rights have changed; so it
/// costs next to nothing. Clones are one.
#[derive(Clone)]
pub struct StillKnown(Arc<dyn Fn() -> bool + Send + Sync>);

impl StillKnown {
    /// What this says, which nobody waits for.
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
