//! What a member last said of our own credentials.

use std::sync::{Arc, Weak};

use tokio::time::Instant;

use crate::credentials::Current;
use crate::endpoints::endpoint::Endpoint;

/// The last question, and what the member said.
#[derive(Default)]
pub(crate) struct LastQuestion(pub(crate) tokio::sync::Mutex<Option<LastCheck>>);

/// When it was asked, with which credentials, and where.
pub(crate) struct LastCheck {
    pub(crate) at: Instant,
    pub(crate) with: Arc<Current>,
    pub(crate) at_endpoint: Weak<Endpoint>,
    pub(crate) rejected: bool,
}
