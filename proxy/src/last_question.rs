//! What a member last said of our own credentials.

use std::sync::Arc;

use tokio::time::Instant;

use crate::credentials::Current;

/// The last question, and what the member said.
#[derive(Default)]
pub(crate) struct LastQuestion(pub(crate) tokio::sync::Mutex<Option<LastCheck>>);

/// When it was asked, and with which credentials.
pub(crate) struct LastCheck {
    pub(crate) at: Instant,
    pub(crate) with: Arc<Current>,
    pub(crate) rejected: bool,
}
