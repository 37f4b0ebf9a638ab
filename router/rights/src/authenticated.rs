//! Validity of a sender's credentials.

use std::fmt;
use std::sync::Arc;

/// Function that returns whether the sender's credentials are still valid. Streams call the function after
/// `Router::authentication_changed` and after each change of rights, so it must be cheap.
#[derive(Clone)]
pub struct CredentialValidity(Arc<dyn Fn() -> bool + Send + Sync>);

impl CredentialValidity {
    /// Wraps a function that returns whether the credentials are valid.
    pub fn new(says: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(says))
    }

    /// Returns whether the sender's credentials are valid now.
    pub fn is_valid(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for CredentialValidity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StillKnown")
    }
}
