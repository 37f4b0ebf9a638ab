//! Which impersonation clusters have, as it was found last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::sync::DropGuard;
use tributary_apimachinery::ClusterName;
use tributary_fleet::topology::Cluster;

use crate::impersonation::ImpersonationFilter;

/// What finds out which impersonation clusters have, those of which nothing is mirrored included. Until it is found it
/// is the older one.
#[derive(Default)]
pub(super) struct ImpersonationProbes(BTreeMap<ClusterName, ImpersonationProbe>);

/// Which impersonation a cluster has, as it was found last.
struct ImpersonationProbe {
    /// Of which cluster it is found: one whose configuration changes is another one.
    cluster: Arc<Cluster>,
    filter: ImpersonationFilter,
    _stop: Option<DropGuard>,
}

impl ImpersonationProbes {
    /// Finds it out of these clusters and of no others. `start` begins to ask one, until what it returns is dropped.
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

    /// Takes over what was found of a cluster. Gives whether that is news.
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
