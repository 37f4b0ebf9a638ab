//! The lines of the log about a cluster's troubles: one when something is wrong, whatever it is and whoever met it
//! first, and one when nothing is any more.

use tokio::time::Instant;
use tributary_answers::refusal::Trouble;

use super::Cluster;
use crate::report::ClusterCondition;

impl Cluster {
    /// Tells as soon as it is out of reach, or not ready, for as long as this is polled.
    pub(super) async fn tell_of_troubles(&self) {
        let Ok(client) = &self.setup.client else { return };
        let mut reachability = client.reachability();
        loop {
            self.tell_trouble();
            if reachability.changed().await.is_err() {
                return;
            }
        }
    }

    /// Tells that something is wrong with it, if something is, unless that is told already.
    pub(super) fn tell_trouble(&self) {
        let Some(Trouble { cluster, cause, age }) = self.known_trouble() else { return };
        let mut told = self.told.lock();
        if told.is_none() {
            *told = Some(Instant::now());
            tracing::warn!(%cluster, reason = cause, age_seconds = age.map(|age| age.as_secs()), "the cluster is in trouble");
        }
    }

    /// Tells that nothing is wrong with it any more, unless something is, or nothing was. To be called once it has said
    /// what it serves: that it answers at all is not enough.
    pub(super) fn tell_well(&self) {
        let is_well = self.known_trouble().is_none();
        if let Some(since) = self.told.lock().take_if(|_| is_well) {
            let trouble_seconds = since.elapsed().as_secs();
            tracing::info!(cluster = %self.name(), trouble_seconds, "the cluster is well again");
        }
    }

    /// What is wrong with it, once it has been asked. A configuration that cannot be used is told of by who reads it.
    fn known_trouble(&self) -> Option<Trouble> {
        self.setup.client.as_ref().ok()?;
        let is_told = |condition: &ClusterCondition| match condition {
            ClusterCondition::Unreachable
            | ClusterCondition::Untrusted
            | ClusterCondition::Unauthorized
            | ClusterCondition::NoCredentials
            | ClusterCondition::Misconfigured => true,
            // That it is another's second name is told where that is found.
            ClusterCondition::Troubled => self.twin().is_none(),
            ClusterCondition::Pending | ClusterCondition::Refusing | ClusterCondition::Ready => false,
        };
        self.cause().filter(|(condition, _)| is_told(condition)).map(|(_, trouble)| trouble)
    }
}
