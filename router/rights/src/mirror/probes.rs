//! Detected impersonation filters of the clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::sync::DropGuard;
use tributary_apimachinery::ClusterName;
use tributary_fleet::topology::Cluster;

use crate::impersonation::ImpersonationFilter;

/// Probes of all clusters, also of those without a mirror. The older filter counts before the first result.
#[derive(Default)]
pub(super) struct ImpersonationProbes(BTreeMap<ClusterName, ImpersonationProbe>);

/// Detected impersonation filter of a cluster.
struct ImpersonationProbe {
    /// The cluster of the result. A changed configuration is a new cluster.
    cluster: Arc<Cluster>,
    filter: ImpersonationFilter,
    _stop: Option<DropGuard>,
}

impl ImpersonationProbes {
    /// Probes exactly these clusters. `start` starts a probe and returns its guard.
    pub(super) fn follow(
        &mut self,
        clusters: &BTreeMap<ClusterName, Arc<Cluster>>,
        start: impl Fn(&Arc<Cluster>) -> Option<DropGuard>,
    ) {
        self.0.retain(|name, probe| clusters.get(name).is_some_and(|own| Arc::ptr_eq(own, &probe.cluster)));
        for (name, cluster) in clusters {
            self.0.entry(name.clone()).or_insert_with(|| ImpersonationProbe {
                cluster: Arc::clone(cluster),
                filter: ImpersonationFilter::default(),
                _stop: start(cluster),
            });
        }
    }

    /// Stores a result, and returns whether it is new.
    pub(super) fn found(&mut self, cluster: &Arc<Cluster>, filter: ImpersonationFilter) -> bool {
        let probe = self.0.get_mut(cluster.name()).filter(|own| Arc::ptr_eq(&own.cluster, cluster));
        probe.is_some_and(|own| std::mem::replace(&mut own.filter, filter) != filter)
    }

    /// The clusters that have constrained impersonation.
    pub(super) fn constrained(&self) -> BTreeSet<ClusterName> {
        let constrained = self.0.iter().filter(|(_, probe)| probe.filter == ImpersonationFilter::Constrained);
        constrained.map(|(name, _)| name.clone()).collect()
    }
}
