//! States of all clusters of a view ([`CacheState`]), kept up to date.
//!
//! ```text
//! cacher's state ──▶ CacheStateTracker::set ──▶ counts ──▶ wakes waiting readers when enough clusters are known
//!                                └─▶ published: a list made by the next reader and shared until the next change
//! ```
//!
//! In a fleet of a thousand clusters, a new view gets thousands of state changes while all its readers wait. The counts
//! let readers sleep through these changes, and no reader has to visit all clusters.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use tokio::sync::watch;
use tributary_apimachinery::{ClusterName, ClusterSelector, Partial};

use super::cache_state::{CacheState, CacheStateCounts, CacheStates};

#[derive(Default)]
pub(super) struct CacheStateTracker {
    known: Mutex<TrackerState>,
    /// Published list of states for readers. `None` after a change, until a reader needs the list. Only written while
    /// `known` is locked.
    published: ArcSwapOption<CacheStates>,
    /// Number of clusters that forbid Tributary to read the whole collection. Each watch reads this number at each
    /// event.
    forbidden: AtomicUsize,
    /// Number of times that a cluster began to forbid reads of the whole collection.
    times_forbidden: AtomicUsize,
    changes: watch::Sender<u64>,
    names: watch::Sender<Arc<[ClusterName]>>,
    /// Whether the states suffice for a response, first with `partial: Deny`, then with `partial: Allow`.
    enough: watch::Sender<[bool; 2]>,
}

#[derive(Default)]
struct TrackerState {
    by_name: BTreeMap<ClusterName, CacheState>,
    counts: CacheStateCounts,
    times_forbidden: usize,
    /// Whether clusters have joined or left since the last update of `names`.
    has_others: bool,
}

impl CacheStateTracker {
    pub(super) fn set(&self, cluster: &ClusterName, cache_state: CacheState) {
        let mut known = self.known.lock();
        if known.set(cluster, cache_state) {
            self.notify_waiters(&mut known);
        }
    }

    /// Sets the states of all clusters, and removes clusters that are not in `all`.
    pub(super) fn set_all<'a>(&self, all: impl Iterator<Item = (&'a ClusterName, CacheState)>) {
        let mut known = self.known.lock();
        let (mut changed, mut count) = (false, 0);
        let mut now = Vec::new();
        for (cluster, cache_state) in all {
            changed |= known.set(cluster, cache_state);
            count += 1;
            now.push(cluster);
        }
        if known.by_name.len() > count {
            // `now` and `by_name` are sorted by cluster name.
            let mut now = now.into_iter().peekable();
            let by_name = std::mem::take(&mut known.by_name);
            let (remaining, removed): (BTreeMap<_, _>, BTreeMap<_, _>) =
                by_name.into_iter().partition(|(cluster, _)| now.next_if_eq(&cluster).is_some());
            removed.values().for_each(|cache_state| known.counts.remove(cache_state));
            known.by_name = remaining;
            (known.has_others, changed) = (true, true);
        }
        if changed {
            self.notify_waiters(&mut known);
        }
    }

    /// Wakes the receivers of state changes although no state has changed, because a cluster has a new cacher.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn notify_waiters(&self, known: &mut TrackerState) {
        self.published.store(None);
        if std::mem::take(&mut known.has_others) {
            self.names.send_replace(known.by_name.keys().cloned().collect());
        }
        self.forbidden.store(known.counts.forbidden(), Ordering::Relaxed);
        self.times_forbidden.store(known.times_forbidden, Ordering::Relaxed);
        let enough = [Partial::Deny, Partial::Allow].map(|partial| known.counts.suffice(partial));
        self.enough.send_if_modified(|last| std::mem::replace(last, enough) != enough);
        self.changed();
    }

    /// Returns the states of all clusters. Only clones a reference, unless a state has changed.
    pub(super) fn cache_states(&self) -> Arc<CacheStates> {
        if let Some(published) = self.published.load_full() {
            return published;
        }
        let known = self.known.lock();
        let cache_states: Arc<CacheStates> = Arc::new(
            known.by_name.iter().map(|(cluster, cache_state)| (cluster.clone(), cache_state.clone())).collect(),
        );
        self.published.store(Some(Arc::clone(&cache_states)));
        cache_states
    }

    /// Returns the states of the wanted clusters if they suffice to answer a list or watch at once, else `None`. Costs
    /// as much as [`cache_states`](Self::cache_states). If all clusters are wanted and the states do not suffice, the
    /// function builds no list of states.
    pub(super) fn enough(&self, partial: Partial, wanted: &ClusterSelector) -> Option<Arc<CacheStates>> {
        let cache_states = match self.published.load_full() {
            Some(published) => published,
            None if wanted.is_everything() && !self.known.lock().counts.suffice(partial) => return None,
            None => self.cache_states(),
        };
        Some(cache_states.of_wanted(wanted)).filter(|cache_states| cache_states.suffice(partial))
    }

    /// Subscribes to changes of the result of [`enough`](Self::enough). If not all clusters are wanted, the receiver
    /// wakes at each state change.
    pub(super) fn enough_changes(&self, wanted: &ClusterSelector) -> CacheStateChanges {
        match wanted.is_everything() {
            true => CacheStateChanges::Enough(self.enough.subscribe()),
            false => CacheStateChanges::Each(self.changes.subscribe()),
        }
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn names(&self) -> watch::Receiver<Arc<[ClusterName]>> {
        self.names.subscribe()
    }

    pub(super) fn forbidden(&self) -> usize {
        self.forbidden.load(Ordering::Relaxed)
    }

    /// Number of times that a cluster began to forbid reads of the whole collection.
    pub(super) fn times_forbidden(&self) -> usize {
        self.times_forbidden.load(Ordering::Relaxed)
    }

    pub(super) fn has(&self, cluster: &ClusterName) -> bool {
        self.known.lock().by_name.contains_key(cluster)
    }
}

impl TrackerState {
    /// Sets the state of a cluster. Returns whether the state changed.
    fn set(&mut self, cluster: &ClusterName, cache_state: CacheState) -> bool {
        let before = self.by_name.get_mut(cluster);
        let forbade = before.as_ref().is_some_and(|before| before.is_forbidden());
        self.times_forbidden += usize::from(cache_state.is_forbidden() && !forbade);
        match before {
            Some(before) if *before == cache_state => return false,
            Some(before) => {
                self.counts.add(&cache_state);
                self.counts.remove(&std::mem::replace(before, cache_state));
            }
            None => {
                self.has_others = true;
                self.counts.add(&cache_state);
                self.by_name.insert(cluster.clone(), cache_state);
            }
        }
        true
    }
}

pub(super) enum CacheStateChanges {
    Enough(watch::Receiver<[bool; 2]>),
    Each(watch::Receiver<u64>),
}

impl CacheStateChanges {
    /// Marks all previous changes as seen. Call this function before you read the states.
    pub(super) fn look(&mut self) {
        match self {
            Self::Enough(changes) => changes.mark_unchanged(),
            Self::Each(changes) => changes.mark_unchanged(),
        }
    }

    pub(super) async fn changed(&mut self) {
        // The channel is open, because the tracker outlives the readers that wait.
        let _ = match self {
            Self::Enough(changes) => changes.changed().await,
            Self::Each(changes) => changes.changed().await,
        };
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::Instant;
    use tributary_apimachinery::LabelSelector;

    use super::*;
    use crate::view::UncachedReason;

    fn name(number: usize) -> ClusterName {
        ClusterName::new(&format!("c{number:04}")).unwrap()
    }

    fn syncing() -> CacheState {
        CacheState::Unknown { since: Instant::now(), reason: None, uncached_reason: UncachedReason::Transient }
    }

    fn failed() -> CacheState {
        CacheState::Unknown {
            since: Instant::now(),
            reason: Some("unreachable".into()),
            uncached_reason: UncachedReason::Transient,
        }
    }

    /// The reader sleeps through 999 state changes before the last cluster is known.
    #[tokio::test]
    async fn waiting_read_wakes_once_after_the_last_cluster_is_known() {
        let cache_state_tracker = CacheStateTracker::default();
        (0..1000).for_each(|number| cache_state_tracker.set(&name(number), syncing()));
        let everything = ClusterSelector::default();
        let mut changes = cache_state_tracker.enough_changes(&everything);
        changes.look();
        assert!(cache_state_tracker.enough(Partial::Allow, &everything).is_none());
        for number in 0..999 {
            cache_state_tracker.set(&name(number), CacheState::Fresh);
            assert!(changes.changed().now_or_never().is_none(), "woken by {number}");
        }
        cache_state_tracker.set(&name(999), failed());
        assert!(changes.changed().now_or_never().is_some(), "not woken by the last");
        assert!(
            cache_state_tracker
                .enough(Partial::Allow, &everything)
                .is_some_and(|cache_states| !cache_states.are_known())
        );
        assert!(cache_state_tracker.enough(Partial::Deny, &everything).is_none());
        changes.look();
        cache_state_tracker.set(&name(999), CacheState::Fresh);
        assert!(changes.changed().now_or_never().is_some());
        assert!(
            cache_state_tracker.enough(Partial::Deny, &everything).is_some_and(|cache_states| cache_states.are_fresh())
        );
    }

    #[tokio::test]
    async fn published_cluster_names_change_only_when_clusters_join_or_leave() {
        let cache_state_tracker = CacheStateTracker::default();
        let mut names = cache_state_tracker.names();
        let new_names = |names: &mut watch::Receiver<Arc<[ClusterName]>>| {
            let has_changed = names.has_changed().unwrap();
            has_changed
                .then(|| names.borrow_and_update().iter().map(|name| name.as_str().to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(new_names(&mut names), None);
        cache_state_tracker.set_all([(&name(0), syncing()), (&name(2), syncing())].into_iter());
        assert_eq!(new_names(&mut names), Some(vec!["c0000".to_owned(), "c0002".to_owned()]));
        cache_state_tracker.set(&name(0), CacheState::Fresh);
        cache_state_tracker.set_all([(&name(0), failed()), (&name(2), CacheState::Fresh)].into_iter());
        assert_eq!(new_names(&mut names), None);
        cache_state_tracker.set(&name(1), syncing());
        assert_eq!(new_names(&mut names).map(|names| names.len()), Some(3));
        cache_state_tracker.set_all([(&name(1), syncing())].into_iter());
        assert_eq!(new_names(&mut names), Some(vec!["c0001".to_owned()]));
    }

    #[tokio::test]
    async fn readers_share_one_list_of_cluster_states_until_a_change() {
        let cache_state_tracker = CacheStateTracker::default();
        (0..3).for_each(|number| cache_state_tracker.set(&name(number), CacheState::Fresh));
        let first = cache_state_tracker.cache_states();
        assert!(Arc::ptr_eq(&first, &cache_state_tracker.cache_states()));
        let mut each = cache_state_tracker.changes();
        each.mark_unchanged();
        cache_state_tracker.set(&name(1), CacheState::Fresh);
        assert!(!each.has_changed().unwrap(), "the same again is no change");
        assert!(Arc::ptr_eq(&first, &cache_state_tracker.cache_states()));
        cache_state_tracker.set_all([(&name(0), CacheState::Fresh), (&name(2), failed())].into_iter());
        assert!(each.has_changed().unwrap());
        let now = cache_state_tracker.cache_states();
        let named: Vec<_> = now.iter().map(|(cluster, _)| cluster.as_str()).collect();
        assert_eq!((named, now.are_known()), (vec!["c0000", "c0002"], false));
        cache_state_tracker.set_all([(&name(0), CacheState::Fresh)].into_iter());
        assert!(cache_state_tracker.cache_states().are_fresh() && !cache_state_tracker.has(&name(2)));
    }

    #[tokio::test]
    async fn read_waits_only_for_clusters_that_its_selector_matches() {
        let cache_state_tracker = CacheStateTracker::default();
        (0..2).for_each(|number| cache_state_tracker.set(&name(number), syncing()));
        let selector = LabelSelector::parse("tributary.dev/cluster=c0001").unwrap();
        let (_, wanted) = ClusterSelector::split(&selector).unwrap();
        let mut changes = cache_state_tracker.enough_changes(&wanted);
        changes.look();
        assert!(cache_state_tracker.enough(Partial::Deny, &wanted).is_none());
        cache_state_tracker.set(&name(1), CacheState::Fresh);
        assert!(changes.changed().now_or_never().is_some());
        assert!(
            cache_state_tracker
                .enough(Partial::Deny, &wanted)
                .is_some_and(|cache_states| cache_states.iter().count() == 1)
        );
    }
}
