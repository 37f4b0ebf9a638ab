//! The last response of an endpoint to Tributary's own credentials.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::credentials::CurrentCredentials;

/// The last check whether one endpoint accepts Tributary's credentials. A check holds the lock, so only one check per
/// endpoint runs at a time.
#[derive(Default)]
pub(crate) struct CredentialCheck(pub(crate) Mutex<Option<CredentialCheckResult>>);

/// Result of a check: its time, the checked credentials, and whether the endpoint rejected these credentials.
pub(crate) struct CredentialCheckResult {
    pub(crate) at: Instant,
    pub(crate) with: Arc<CurrentCredentials>,
    pub(crate) rejected: bool,
}
