//! Which clusters serve what a write is of.

use std::sync::Arc;

use crate::grounds::Evidence;
use crate::request::ClientRequest;
use crate::topology::Cluster;

/// Which clusters serve the resource. One that has not told what it serves may do so, too, and so may one whose
/// aggregated server does not answer.
pub(in crate::forward) fn of_kind(request: ClientRequest<'_>) -> Evidence {
    let version = request.served.resource.group_version();
    let may = |cluster: &&Arc<Cluster>| cluster.discovery().is_none_or(|own| own.is_stale(&version));
    let may = request.clusters().iter().filter(may).map(|cluster| cluster.name().clone()).collect();
    Evidence { has: request.serving().cloned().collect(), may, ..Evidence::default() }
}
