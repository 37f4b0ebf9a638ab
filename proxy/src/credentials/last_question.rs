//! What an endpoint of a member last said of our own credentials.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::credentials::Current;

/// The last question to one endpoint, and what it said. Locked while it is asked, so that one request at a time asks
/// that endpoint; each has its own, so that none waits for another's.
#[derive(Default)]
pub(crate) struct LastQuestion(pub(crate) Mutex<Option<LastAnswer>>);

/// What it said: when it was asked, with which credentials, and whether it rejected them.
pub(crate) struct LastAnswer {
    pub(crate) at: Instant,
    pub(crate) with: Arc<Current>,
    pub(crate) rejected: bool,
}
