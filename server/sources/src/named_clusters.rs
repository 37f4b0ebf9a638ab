//! The clusters among configuration objects.

use tributary_apimachinery::ClusterName;
use tributary_crds::{ConfigurationObjects, UpstreamCluster};

/// A cluster with its name.
pub(crate) type NamedCluster<'a> = (ClusterName, &'a UpstreamCluster);

/// Returns the clusters among the objects. A cluster with an invalid name is skipped, because a separate check refuses
/// the name.
pub(crate) fn named_clusters(objects: &ConfigurationObjects) -> Vec<NamedCluster<'_>> {
    let name = |cluster: &UpstreamCluster| ClusterName::new(cluster.metadata.name.as_deref().unwrap_or_default()).ok();
    objects.clusters.iter().filter_map(|cluster| Some((name(cluster)?, cluster))).collect()
}
