//! Expiry of a sender's credentials. Open streams of the sender end at the expiry.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Time at which the sender's credentials expire. The sender's streams end at this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthenticatedUntil(Instant);

impl AuthenticatedUntil {
    /// Creates the expiry of credentials that stay valid for this duration. `None` if the clock cannot represent the
    /// time.
    pub fn in_duration(time: Duration) -> Option<Self> {
        Instant::now().checked_add(time).map(Self)
    }

    /// Returns the time of the expiry.
    pub fn instant(self) -> Instant {
        self.0
    }
}

/// Function that returns whether the sender's credentials are still valid. Streams call the function after
/// `Router::authentication_changed` and after each change of rights, so it must be cheap. All values of this type
/// compare equal.
#[derive(Clone)]
pub struct CredentialValidity(Arc<dyn Fn() -> bool + Send + Sync>);

impl CredentialValidity {
    /// Wraps a function that returns whether the credentials are valid.
    pub fn new(says: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(says))
    }

    /// Returns whether the sender's credentials are valid now.
    pub fn is_known(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for CredentialValidity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StillKnown")
    }
}
