//! Waits for clusters whose objects are unknown, and checks for clusters that forbid reads.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{ClusterName, ClusterSelector, Partial};

use super::View;
use super::cache_state::{self, CacheState, CacheStates};

/// Time for which lists and watches wait for clusters whose objects are unknown.
pub const KNOWN_WITHIN: Duration = Duration::from_secs(30);

impl View {
    /// Waits until no wanted cluster has the state `Unknown`, and returns the states of the wanted clusters. If partial
    /// answers are allowed, the function waits only until the first attempt to read each cluster has succeeded or
    /// failed.
    ///
    /// # Errors
    /// 429 with the clusters whose objects are still unknown at the deadline, if partial answers are denied. The error
    /// comes at once if the objects of a cluster are unknown for a permanent cause.
    pub async fn wait_until_known(
        &self,
        partial: Partial,
        wanted: &ClusterSelector,
        deadline: Instant,
    ) -> Result<Arc<CacheStates>, Refusal> {
        // Usually the states suffice at once, and no channel is needed.
        if let Some(cache_states) = self.cache_state_tracker.enough(partial, wanted) {
            return self.unless_refused(partial, cache_states);
        }
        let mut changes = self.cache_state_tracker.enough_changes(wanted);
        loop {
            changes.look();
            if let Some(cache_states) = self.cache_state_tracker.enough(partial, wanted) {
                return self.unless_refused(partial, cache_states);
            }
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return self.unless_refused(partial, self.cache_states_of(wanted));
            }
        }
    }

    fn unless_refused(&self, partial: Partial, cache_states: Arc<CacheStates>) -> Result<Arc<CacheStates>, Refusal> {
        match (partial, cache_state::refusal(&self.kind.resource, &cache_states)) {
            (Partial::Deny, Some(refusal)) => Err(refusal.into()),
            _ => Ok(cache_states),
        }
    }

    /// Waits until the first attempt to read each of these clusters has succeeded or failed, or until the deadline.
    /// Returns the states of all clusters.
    pub async fn attempted(&self, clusters: &[ClusterName], deadline: Instant) -> Arc<CacheStates> {
        let mut changes = self.cache_state_tracker.changes();
        // A cluster is not visited again after its first attempt. With repeated visits, a thousand changes of state
        // would cause a thousand visits of a thousand clusters.
        let mut waited_for = clusters.iter().peekable();
        loop {
            changes.mark_unchanged();
            let cache_states = self.cache_states();
            let is_tried =
                |cluster: &&ClusterName| !cache_states.cache_state_of(cluster).is_some_and(CacheState::is_under_way);
            while waited_for.next_if(is_tried).is_some() {}
            if waited_for.peek().is_none() {
                return cache_states;
            }
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return self.cache_states();
            }
        }
    }

    /// Returns whether all of these clusters forbid Tributary to read the objects of this view.
    pub fn is_forbidden_by_all(&self, clusters: &[ClusterName]) -> bool {
        let cache_states = self.cache_states();
        clusters.iter().all(|cluster| cache_states.cache_state_of(cluster).is_some_and(CacheState::is_forbidden))
    }

    /// Returns whether a wanted cluster forbids reads of all namespaces, so that a single namespace needs its own view.
    /// Costs one load if no cluster forbids reads.
    pub fn is_forbidden(&self, wanted: &ClusterSelector) -> bool {
        self.cache_state_tracker.forbidden() > 0 && self.cache_states_of(wanted).is_one_forbidden()
    }

    /// Returns the number of times that a cluster began to forbid reads of all namespaces. While the number is
    /// unchanged, [`is_forbidden`](Self::is_forbidden) has the same result.
    pub fn times_forbidden(&self) -> usize {
        self.cache_state_tracker.times_forbidden()
    }

    /// Returns whether a wanted cluster forbids reads of all namespaces and its cached objects have been removed. Costs
    /// as much as [`is_forbidden`](Self::is_forbidden).
    pub fn is_given_up(&self, wanted: &ClusterSelector) -> bool {
        self.cache_state_tracker.forbidden() > 0 && self.cache_states_of(wanted).is_one_given_up()
    }
}
