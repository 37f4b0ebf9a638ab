//! Identity of the cluster that a name means.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_proxy::ClusterUid;

use super::address::ClusterAddress;

/// Shortest time between two replacements of a cluster under one name: 10 s, doubled with each, up to 43 minutes. A
/// load balancer that alternates between two clusters would otherwise drop all state again and again. Until then,
/// connections to the second cluster are refused.
const REPLACEMENT_INTERVAL: Duration = Duration::from_secs(10);

/// Number of doublings: 10 s become 43 min.
const DOUBLINGS_MAX: u32 = 8;

/// Time after which a replacement no longer lengthens the interval.
const COUNTED_TOGETHER: Duration = Duration::from_secs(2 * 60 * 60);

/// Identity of a cluster: valid while its namespace kube-system has the same uid. Objects, rights and tokens of one
/// incarnation never count for a second one. Clones are equal.
#[derive(Clone, Debug, Default)]
pub struct Incarnation(Arc<IncarnationState>);

#[derive(Debug, Default)]
struct IncarnationState {
    uid: OnceLock<ClusterUid>,
    /// The address of the last configuration that had a client.
    address: Mutex<Option<ClusterAddress>>,
    has_ended: AtomicBool,
    /// Present if the cluster took the place of a different cluster.
    replaced: Option<Replacement>,
}

#[derive(Clone, Copy, Debug)]
struct Replacement {
    at: Instant,
    /// The number of replacements within two hours before this one, each within two hours of the next.
    repeats: u32,
}

impl Incarnation {
    /// Makes the incarnation of the cluster that takes this cluster's place.
    pub(super) fn successor(&self) -> Self {
        let recent = self.0.replaced.filter(|before| before.at.elapsed() < COUNTED_TOGETHER);
        let replaced = Replacement { at: Instant::now(), repeats: recent.map_or(0, |before| before.repeats + 1) };
        Self(Arc::new(IncarnationState { replaced: Some(replaced), ..IncarnationState::default() }))
    }

    /// The cluster took the place of a different cluster.
    pub fn is_successor(&self) -> bool {
        self.0.replaced.is_some()
    }

    /// The time at which the cluster took the place of a different cluster.
    pub fn replaced_at(&self) -> Option<Instant> {
        self.0.replaced.map(|replaced| replaced.at)
    }

    /// The earliest time at which a different cluster may take the cluster's place; `None` for at once.
    pub(super) fn replaceable_at(&self) -> Option<Instant> {
        self.0.replaced.map(|own| own.at + REPLACEMENT_INTERVAL * 2_u32.pow(own.repeats.min(DOUBLINGS_MAX)))
    }

    /// uid of the cluster; `None` until it is known.
    pub(super) fn uid(&self) -> Option<ClusterUid> {
        self.0.uid.get().cloned()
    }

    /// Stores the uid that the cluster has reported.
    pub(super) fn set_uid(&self, uid: &ClusterUid) {
        self.0.uid.get_or_init(|| uid.clone());
    }

    /// The last configuration that had a client had this address.
    pub(super) fn is_reached_at(&self, address: &ClusterAddress) -> bool {
        self.0.address.lock().as_ref() == Some(address)
    }

    /// Notes the address of a configuration that has a client.
    pub(super) fn set_address(&self, address: &ClusterAddress) {
        *self.0.address.lock() = Some(address.clone());
    }

    /// A different cluster has taken the name, or the configuration has the name no more.
    pub fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::SeqCst)
    }

    /// Notes that the name means a different cluster, or none.
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
    async fn the_time_between_replacements_doubles_up_to_an_hour() {
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
