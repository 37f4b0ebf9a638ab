//! Which clusters serve what a write is of.

use std::sync::Arc;

use crate::grounds::Evidence;
use crate::request::ClientRequest;
use crate::topology::Cluster;

/// Which clusters serve the resource. One that has not told what it serves may do so, too, and so may one whose
/// aggregated server does not answer.
pub(in crate::forward) fn of_kind(request: ClientRequest<'_>) -> Evidence {
    let ClientRequest { router, served, .. } = request;
    let version = served.resource.group_version();
    let may = |cluster: &&Arc<Cluster>| cluster.discovery().is_none_or(|own| own.is_stale(&version));
    let clusters = router.fleet().clusters();
    let may = clusters.values().filter(may).map(|cluster| cluster.name().clone()).collect();
    Evidence { has: served.clusters.to_vec(), may, ..Evidence::default() }
}
