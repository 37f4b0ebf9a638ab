//! Cluster states that are consistent with the data of a response.
//!
//! ```text
//! request ─▶ known ─▶ EarlierCacheStates ─▶ waits, then reads the log ─▶ View::cache_states_with ─▶ CacheStates
//!                                                                                    ─▶ 429, 404, warnings
//! ```
//!
//! While a request waits, the objects of a cluster that forbids reads may be removed from the log. If the response used
//! the cluster's state from before the wait, it would count the cluster as known, and clients would regard the removed
//! objects as deleted. Therefore a response uses states that are consistent with the data that was read.

use std::sync::Arc;

use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{ClusterName, ClusterSelector, Object, ObjectKey, Partial};
use tributary_merge::ClusterSnapshots;

use super::View;
use super::cache_state::{self, CacheState, CacheStates};

/// States of the wanted clusters at the start of a request, before it waited and read the log. The response must report
/// the clusters for whose objects the request did not wait.
#[derive(Clone, Debug)]
pub struct EarlierCacheStates {
    wanted: ClusterSelector,
    partial: Partial,
    cache_states: Arc<CacheStates>,
}

impl EarlierCacheStates {
    /// Stores the states of the wanted clusters. `partial` decides whether the request fails if the objects of a
    /// cluster are unknown.
    pub fn new(cache_states: Arc<CacheStates>, wanted: &ClusterSelector, partial: Partial) -> Self {
        Self { wanted: wanted.clone(), partial, cache_states }
    }

    pub(super) fn wanted_clusters(&self) -> &ClusterSelector {
        &self.wanted
    }

    pub(super) fn partial(&self) -> Partial {
        self.partial
    }

    /// Clusters with cached objects, with their states from before the wait.
    pub(super) fn cached_clusters(&self) -> impl Iterator<Item = (&ClusterName, &CacheState)> {
        self.cache_states
            .iter()
            .filter(|(_, cache_state)| matches!(cache_state, CacheState::Fresh | CacheState::Stale { .. }))
    }

    /// Returns whether at least one of the clusters forbade reads of the whole collection.
    pub fn is_one_forbidden(&self) -> bool {
        self.cache_states.is_one_forbidden()
    }

    /// Marks a cluster as stale, because its cached objects may be incomplete although its watch is up to date. Has no
    /// effect on a cluster that is not wanted.
    pub fn doubt(&mut self, cluster: ClusterName, stale: CacheState) {
        if self.cache_states.cache_state_of(&cluster).is_some() {
            Arc::make_mut(&mut self.cache_states).set(cluster, stale);
        }
    }
}

impl View {
    /// Returns the cluster states that are consistent with the data that was read. `snapshots` are the snapshots from
    /// which the response is made. Every response gets its states from this function.
    ///
    /// # Errors
    /// 429 if partial answers are denied and a wanted cluster is new, or has become unknown during the wait.
    pub fn cache_states_with(
        &self,
        before: EarlierCacheStates,
        snapshots: &ClusterSnapshots,
    ) -> Result<Arc<CacheStates>, Refusal> {
        let EarlierCacheStates { wanted, partial, cache_states } = before;
        // The states are read after the snapshots. A cluster gets the state `Unknown` before its objects leave the log.
        // So if a cluster does not have this state now, its objects were in the log.
        let now = self.cache_states_of(&wanted);
        let cache_states = match Arc::ptr_eq(&now, &cache_states) {
            true => now,
            false => now.advance_from(&cache_states, snapshots).worst_of(&cache_states),
        };
        match (partial, cache_state::refusal(&self.kind.resource, &cache_states)) {
            (Partial::Deny, Some(refusal)) => Err(refusal.into()),
            _ => Ok(cache_states),
        }
    }

    /// Updates the states between two waits, because the objects of a cluster may have been cached in the meantime.
    pub fn look_again(&self, before: &mut EarlierCacheStates) {
        let snapshots = Arc::clone(self.log().latest());
        before.cache_states = self.cache_states_of(&before.wanted).advance_from(&before.cache_states, &snapshots);
    }

    /// Finds the objects with a key in all clusters, and the cluster states that are consistent with these objects.
    ///
    /// # Errors
    /// As [`cache_states_with`](Self::cache_states_with).
    #[expect(clippy::type_complexity, reason = "as the log gives them")]
    pub fn find(
        &self,
        before: EarlierCacheStates,
        key: &ObjectKey,
    ) -> Result<(Vec<(ClusterName, Arc<Object>)>, Arc<CacheStates>), Refusal> {
        let log = self.log();
        let (found, snapshots) = (log.find(key.as_str()), Arc::clone(log.latest()));
        drop(log);
        Ok((found, self.cache_states_with(before, &snapshots)?))
    }
}
