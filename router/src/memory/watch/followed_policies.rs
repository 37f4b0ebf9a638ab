//! Follows the dispatch policies of an open watch, and ends the watch when their decision changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;
use tributary_answers::termination_reason::TerminationReason;
use tributary_apimachinery::{ClusterName, ClusterSelector};
use tributary_rights::ScopeChange;

use crate::dispatch::Dispatched;

pub(super) struct FollowedPolicies {
    dispatched: Arc<Dispatched>,
    wanted: ClusterSelector,
    /// Clusters of the watched resource; updated when clusters join or leave.
    clusters: watch::Receiver<Arc<[ClusterName]>>,
    /// Clusters that the watch shows. Set if only policies, and no rights, exclude clusters. A cluster outside of this
    /// set is new to the client.
    shown: Option<Arc<BTreeSet<ClusterName>>>,
    denying: BTreeSet<ClusterName>,
    changes: watch::Receiver<()>,
}

impl FollowedPolicies {
    pub(super) fn new(
        dispatched: &Arc<Dispatched>,
        wanted: ClusterSelector,
        clusters: watch::Receiver<Arc<[ClusterName]>>,
        shown: Option<Arc<BTreeSet<ClusterName>>>,
    ) -> Self {
        let mut changes = dispatched.changes();
        // The first call of `look` must compare the policies, because they may have changed since the arrival of the
        // request.
        changes.mark_changed();
        let denying = dispatched.denied_clusters().into_iter().flat_map(|denied| denied.names().cloned()).collect();
        Self { dispatched: Arc::clone(dispatched), wanted, clusters, shown, denying, changes }
    }

    /// Returns the reason to end the watch, if there is one. Cost: two atomic loads if nothing has changed.
    pub(super) fn check_change(&mut self) -> Option<ScopeChange> {
        let may_have_changed =
            self.changes.has_changed().unwrap_or(false) || self.clusters.has_changed().unwrap_or(false);
        if !may_have_changed {
            return None;
        }
        self.changes.mark_unchanged();
        let clusters = Arc::clone(&self.clusters.borrow_and_update());
        let wanted: Vec<_> = clusters.iter().filter(|cluster| self.wanted.matches(cluster)).collect();
        let Some(denying) = self.dispatched.denying_now(wanted.iter().copied()) else {
            return Some(ScopeChange::Terminated(TerminationReason::Policy));
        };
        if denying.iter().any(|cluster| !self.denying.contains(cluster)) {
            return Some(ScopeChange::Another);
        }
        let is_further = |cluster: &&ClusterName| {
            let is_visible_to_client = self.shown.as_ref().is_none_or(|shown| shown.contains(*cluster));
            !denying.contains(*cluster) && (self.denying.contains(*cluster) || !is_visible_to_client)
        };
        wanted.into_iter().any(|cluster| is_further(&cluster)).then_some(ScopeChange::Further)
    }

    /// Resolves when the policies or the clusters may have changed. Cancellation is safe.
    pub(super) async fn wait_for_change(&mut self) {
        tokio::select! {
            changed = async { self.changes.changed().await } => {
                self.changes.mark_changed();
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
            changed = async { self.clusters.changed().await } => {
                self.clusters.mark_changed();
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}
