//! Last answer of an endpoint about the client's own credentials.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::credentials::Current;

/// Last question to one endpoint, and its answer. Locked during a question, so that one request at a time asks the
/// endpoint. Each endpoint has its own.
#[derive(Default)]
pub(crate) struct LastQuestion(pub(crate) Mutex<Option<LastAnswer>>);

/// Last answer: the time of the question, the credentials, and whether they were rejected.
pub(crate) struct LastAnswer {
    pub(crate) at: Instant,
    pub(crate) with: Arc<Current>,
    pub(crate) rejected: bool,
}
