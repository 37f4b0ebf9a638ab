//! Past states of a view, which are rebuilt from the log. All pages of a list must show the same state. The latest
//! states are cached, so that not every page needs a rebuild.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_merge::{ClusterSnapshots, CompositeResourceVersion};

use tributary_sharing::limits::PAST_STATES;

/// Time for which a state is cached after its last use. 60 s: a program requests the next page of a list immediately. A
/// person who continues later can wait until the state is rebuilt.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Past states of the latest lists. Each snapshot is at the exact version of its state.
#[derive(Default)]
pub(super) struct PastStates {
    inner: Mutex<RememberedStates>,
}

#[derive(Default)]
struct RememberedStates {
    /// Cached states, sorted by last use. The most recently used state is the last.
    states: VecDeque<(ClusterSnapshots, Instant)>,
    clear_count: u64,
}

impl PastStates {
    /// Returns the snapshots of the clusters at a composite version, if a cached state contains all of them.
    pub(super) fn find(&self, vector: &CompositeResourceVersion) -> Option<ClusterSnapshots> {
        let mut inner = self.inner.lock();
        let mut states = inner.states.iter().enumerate();
        let (at, found) = states.find_map(|(at, (state, _))| Some((at, part(state, vector)?)))?;
        let (state, _) = inner.states.remove(at)?;
        inner.states.push_back((state, Instant::now()));
        Some(found)
    }

    pub(super) fn clear_count(&self) -> u64 {
        self.inner.lock().clear_count
    }

    /// Caches a state. `clear_count` is the number of times that the cache had been emptied when the rebuild of the
    /// state began. If the cache has been emptied since, the state may mix two incarnations of a cluster, and is not
    /// cached.
    pub(super) fn remember(&self, state: ClusterSnapshots, clear_count: u64) {
        let mut inner = self.inner.lock();
        if inner.clear_count == clear_count {
            inner.states.push_back((state, Instant::now()));
            let beyond = inner.states.len().saturating_sub(PAST_STATES);
            inner.states.drain(..beyond);
        }
    }

    /// Removes all states, because the same versions may mean different states from now on. Call this function while
    /// the log is locked for writing.
    pub(super) fn forget(&self) {
        let mut inner = self.inner.lock();
        inner.states.clear();
        inner.clear_count += 1;
    }

    pub(super) fn trim(&self) {
        self.inner.lock().states.retain(|(_, used)| used.elapsed() < REMEMBERED);
    }
}

/// Takes the snapshots of a composite version from `state`. Returns `None` if `state` lacks a cluster of the version,
/// or has the cluster at a different version.
fn part(state: &ClusterSnapshots, vector: &CompositeResourceVersion) -> Option<ClusterSnapshots> {
    let mut snapshots = state.iter();
    let mut part = Vec::with_capacity(vector.len());
    for (cluster, version) in vector.iter() {
        let found = snapshots.find(|(name, _)| name >= cluster);
        part.push(found.filter(|(name, snapshot)| name == cluster && snapshot.resource_version() == version)?.clone());
    }
    Some(Arc::new(part))
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::{ClusterName, CollectionVersion, ResourceVersion, Snapshot};

    use super::*;

    fn vector(components: &[(&str, u64)]) -> CompositeResourceVersion {
        let component = |(name, version): &(&str, u64)| (ClusterName::new(name).unwrap(), ResourceVersion(*version));
        components.iter().map(component).collect()
    }

    fn state(components: &[(&str, u64)]) -> ClusterSnapshots {
        let snapshot = |(cluster, version): (&ClusterName, CollectionVersion)| {
            let mut snapshot = Snapshot::default();
            snapshot.set_resource_version(version);
            (cluster.clone(), snapshot)
        };
        Arc::new(vector(components).iter().map(snapshot).collect())
    }

    fn found(past: &PastStates, components: &[(&str, u64)]) -> Option<CompositeResourceVersion> {
        past.find(&vector(components)).map(|heads| CompositeResourceVersion::from_snapshots(&heads))
    }

    #[tokio::test(start_paused = true)]
    async fn cached_past_state_also_serves_lists_of_some_of_its_clusters() {
        let past = PastStates::default();
        past.remember(state(&[("a", 1), ("b", 2), ("c", 3)]), 0);
        for rest in [&[("a", 1), ("b", 2), ("c", 3)][..], &[("b", 2), ("c", 3)], &[("c", 3)], &[]] {
            assert_eq!(found(&past, rest), Some(vector(rest)));
        }
        for other in [&[("b", 2), ("c", 4)][..], &[("b", 2), ("d", 3)], &[("a", 1), ("aa", 1), ("b", 2)]] {
            assert_eq!(found(&past, other), None, "{other:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cached_past_states_are_limited_in_number_and_age() {
        let past = PastStates::default();
        for version in 0..=PAST_STATES as u64 {
            past.remember(state(&[("a", version)]), 0);
            assert!(found(&past, &[("a", 1)]).is_some() || version == 0, "the one in use stays");
        }
        assert!(found(&past, &[("a", 0)]).is_none(), "the least recently used state is dropped");
        tokio::time::advance(REMEMBERED).await;
        past.remember(state(&[("a", 99)]), 0);
        past.trim();
        assert!(found(&past, &[("a", 1)]).is_none() && found(&past, &[("a", 99)]).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn past_state_is_not_cached_if_the_cache_was_cleared_meanwhile() {
        let past = PastStates::default();
        let clear_count = past.clear_count();
        past.remember(state(&[("a", 1)]), clear_count);
        past.forget();
        assert!(found(&past, &[("a", 1)]).is_none());
        past.remember(state(&[("a", 1)]), clear_count);
        assert!(found(&past, &[("a", 1)]).is_none());
    }
}
