//! Identity of the cluster to which a name belongs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_proxy::ClusterUid;

use super::address::ClusterAddress;

/// Minimum time between two replacements of the cluster under one name. 10 s, doubled with each replacement, up to 43
/// minutes. Without this limit, a load balancer that alternates between two clusters would cause the loss of all state
/// again and again. Until the time is over, connections to the second cluster are refused.
const REPLACEMENT_INTERVAL: Duration = Duration::from_secs(10);

/// Maximum number of doublings of [`REPLACEMENT_INTERVAL`]: 10 s become 43 min.
const DOUBLINGS_MAX: u32 = 8;

/// A replacement of a cluster does not lengthen the interval before the next replacement if the next one comes later
/// than this time.
const COUNTED_TOGETHER: Duration = Duration::from_secs(2 * 60 * 60);

/// Identity of a cluster, valid while its namespace kube-system has the same uid. Objects, rights and tokens of one
/// incarnation are never used for a different incarnation. A clone is the same incarnation.
#[derive(Clone, Debug, Default)]
pub struct Incarnation(Arc<IncarnationState>);

#[derive(Debug, Default)]
struct IncarnationState {
    uid: OnceLock<ClusterUid>,
    /// Address of the last configuration that had a client.
    address: Mutex<Option<ClusterAddress>>,
    has_ended: AtomicBool,
    /// Time and number of replacements. `None` if the cluster did not replace a different cluster.
    replaced: Option<Replacement>,
}

#[derive(Clone, Copy, Debug)]
struct Replacement {
    at: Instant,
    /// Number of consecutive earlier replacements under this name. Replacements are consecutive if less than two hours
    /// lie between them.
    repeats: u32,
}

impl Incarnation {
    /// Creates the incarnation of the cluster that replaces this cluster.
    pub(super) fn successor(&self) -> Self {
        let recent = self.0.replaced.filter(|before| before.at.elapsed() < COUNTED_TOGETHER);
        let replaced = Replacement { at: Instant::now(), repeats: recent.map_or(0, |before| before.repeats + 1) };
        Self(Arc::new(IncarnationState { replaced: Some(replaced), ..IncarnationState::default() }))
    }

    /// Returns whether the cluster replaced a different cluster.
    pub fn is_successor(&self) -> bool {
        self.0.replaced.is_some()
    }

    /// Returns the time at which the cluster replaced a different cluster.
    pub fn replaced_at(&self) -> Option<Instant> {
        self.0.replaced.map(|replaced| replaced.at)
    }

    /// Earliest time at which a different cluster may replace this cluster. `None` if this cluster has replaced no
    /// other cluster, so that the first replacement needs no wait.
    pub(super) fn replaceable_at(&self) -> Option<Instant> {
        self.0.replaced.map(|own| own.at + REPLACEMENT_INTERVAL * 2_u32.pow(own.repeats.min(DOUBLINGS_MAX)))
    }

    pub(super) fn uid(&self) -> Option<ClusterUid> {
        self.0.uid.get().cloned()
    }

    pub(super) fn set_uid(&self, uid: &ClusterUid) {
        self.0.uid.get_or_init(|| uid.clone());
    }

    /// Returns whether this is the address of the last configuration that had a client.
    pub(super) fn is_reached_at(&self, address: &ClusterAddress) -> bool {
        self.0.address.lock().as_ref() == Some(address)
    }

    /// Records the address of a configuration that has a client.
    pub(super) fn set_address(&self, address: &ClusterAddress) {
        *self.0.address.lock() = Some(address.clone());
    }

    /// Returns whether the name now belongs to a different cluster, or to no cluster.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::SeqCst)
    }

    /// Records that the name now belongs to a different cluster, or to no cluster.
    pub(super) fn end(&self) {
        self.0.has_ended.store(true, Ordering::SeqCst);
    }
}

impl PartialEq for Incarnation {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Incarnation {}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn interval_between_cluster_replacements_doubles_up_to_a_maximum() {
        let mut incarnation = Incarnation::default();
        assert_eq!(incarnation.replaceable_at(), None);
        let mut waited = Vec::new();
        for _ in 0..12 {
            incarnation = incarnation.successor();
            waited.push(incarnation.replaceable_at().unwrap() - Instant::now());
            tokio::time::advance(*waited.last().unwrap()).await;
        }
        assert_eq!(waited[..3], [10, 20, 40].map(Duration::from_secs));
        assert!(waited.iter().all(|wait| *wait < Duration::from_secs(3600)), "{waited:?}");
        tokio::time::advance(COUNTED_TOGETHER).await;
        let later = incarnation.successor();
        assert_eq!(later.replaceable_at().unwrap() - Instant::now(), REPLACEMENT_INTERVAL);
    }
}
