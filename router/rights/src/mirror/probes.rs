use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::sync::DropGuard;
use tributary_apimachinery::ClusterName;
use tributary_fleet::topology::Cluster;

use crate::impersonation::ImpersonationFilter;

/// Detected impersonation filters of all clusters, also of clusters without mirrored roles. A cluster has the legacy
/// filter until its first result.
#[derive(Default)]
pub(super) struct ImpersonationProbes(BTreeMap<ClusterName, ImpersonationProbe>);

struct ImpersonationProbe {
    /// Cluster that is probed. A changed configuration creates a new [`Cluster`].
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

    /// Stores the detected filter. Returns whether it differs from the filter before.
    pub(super) fn found(&mut self, cluster: &Arc<Cluster>, filter: ImpersonationFilter) -> bool {
        let probe = self.0.get_mut(cluster.name()).filter(|own| Arc::ptr_eq(&own.cluster, cluster));
        probe.is_some_and(|own| std::mem::replace(&mut own.filter, filter) != filter)
    }

    pub(super) fn constrained(&self) -> BTreeSet<ClusterName> {
        let constrained = self.0.iter().filter(|(_, probe)| probe.filter == ImpersonationFilter::Constrained);
        constrained.map(|(name, _)| name.clone()).collect()
    }
}
