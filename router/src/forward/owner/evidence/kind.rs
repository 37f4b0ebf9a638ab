//! Evidence for the ground `kind`: the clusters that serve the resource of a write.

use std::sync::Arc;

use tributary_fleet::topology::Cluster;

use crate::forward::owner::decision::Evidence;
use crate::request::ClientRequest;

/// Finds the clusters that serve or may serve the resource. For an unreachable cluster, the last known discovery
/// decides.
pub(in crate::forward) fn find_serving(request: ClientRequest<'_>) -> Evidence {
    let ClientRequest { configuration, served, .. } = request;
    let may = |cluster: &&Arc<Cluster>| {
        !configuration.has_discovery(cluster)
            || served.undescribed().any(|name| name == cluster.name())
            || (configuration.is_unserved(cluster, served) && !cluster.is_out_of_reach())
    };
    let may = request.clusters().iter().filter(may).map(|cluster| cluster.name().clone()).collect();
    Evidence { has: request.serving().cloned().collect(), may, ..Evidence::default() }
}
