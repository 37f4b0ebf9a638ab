//! Log lines about a cluster's faults: one line at the start of a fault, whatever its cause, and one line at its end.

use tokio::time::Instant;
use tributary_answers::refusal::ClusterFailure;

use super::Cluster;
use crate::report::ClusterCondition;

impl Cluster {
    /// Logs when the cluster becomes unreachable or not ready. The function never returns.
    pub(super) async fn log_failures(&self) {
        let Ok(client) = &self.setup.client else { return };
        let mut reachability = client.reachability();
        loop {
            self.log_failure();
            if reachability.changed().await.is_err() {
                return;
            }
        }
    }

    /// Logs the current fault, unless a log line about the fault exists.
    pub(super) fn log_failure(&self) {
        let Some(ClusterFailure { cluster, cause, age }) = self.known_trouble() else { return };
        let mut logged_at = self.logged_at.lock();
        if logged_at.is_none() {
            *logged_at = Some(Instant::now());
            tracing::warn!(%cluster, reason = cause, age_seconds = age.map(|age| age.as_secs()), "the cluster is in trouble");
        }
    }

    /// Logs the end of a fault, if its start was logged. Called after the cluster has reported its discovery, because
    /// an answer to a different request does not suffice.
    pub(super) fn log_recovery(&self) {
        let is_well = self.known_trouble().is_none();
        if let Some(since) = self.logged_at.lock().take_if(|_| is_well) {
            let trouble_seconds = since.elapsed().as_secs();
            tracing::info!(cluster = %self.name(), trouble_seconds, "the cluster is well again");
        }
    }

    /// Returns the current fault if it has to be logged. A cluster without a client has an unusable configuration,
    /// which is logged when Tributary reads the configuration.
    fn known_trouble(&self) -> Option<ClusterFailure> {
        self.setup.client.as_ref().ok()?;
        let is_logged = |condition: &ClusterCondition| match condition {
            ClusterCondition::Unreachable
            | ClusterCondition::Untrusted
            | ClusterCondition::Unauthorized
            | ClusterCondition::NoCredentials
            | ClusterCondition::Misconfigured => true,
            // A cluster that is configured under two names has a separate log line.
            ClusterCondition::Troubled => self.duplicate().is_none(),
            ClusterCondition::Pending | ClusterCondition::Refusing | ClusterCondition::Ready => false,
        };
        self.cause().filter(|(condition, _)| is_logged(condition)).map(|(_, failure)| failure)
    }
}
