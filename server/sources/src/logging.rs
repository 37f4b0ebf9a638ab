//! Converts the access log modes of configuration objects into settings of the access log. Without I/O.

use tributary_crds::{ConfigurationObjects, Logging};
use tributary_policy::{AccessLogSetting, LogMode, LoggingModes};

use crate::named_clusters::NamedCluster;

/// Returns the access log modes of the merged view and of each cluster. The objects are validated. A cluster without a
/// mode also gets an entry, because it does not inherit the mode of the merged view. `clusters` take the place of the
/// clusters in `objects`.
pub(super) fn logging_modes(objects: &ConfigurationObjects, clusters: &[NamedCluster<'_>]) -> LoggingModes {
    let place = |logging: &Logging| AccessLogSetting { mode: logging.mode.map(LogMode::from) };
    let merged = objects.merged_endpoints.first().map(|endpoint| place(&endpoint.spec.logging));
    let clusters = clusters.iter().map(|(name, cluster)| (name.clone(), place(&cluster.spec.logging)));
    LoggingModes { merged, clusters: clusters.collect() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tributary_apimachinery::ClusterName;

    use super::*;
    use crate::named_clusters::named_clusters;

    #[test]
    fn logging_mode_is_read_per_cluster_and_for_the_merged_view() {
        let text = "
{apiVersion: tributary.dev/v1alpha1, kind: UpstreamCluster, metadata: {name: eu}, spec: {logging: {mode: Disabled}}}
---
{apiVersion: tributary.dev/v1alpha1, kind: UpstreamCluster, metadata: {name: us}, spec: {}}
";
        let objects = tributary_crds::parse(text, Path::new("test.yaml")).unwrap();
        let modes = logging_modes(&objects, &named_clusters(&objects));
        let mode = |name: &str| modes.clusters.get(&ClusterName::new(name).unwrap()).map(|place| place.mode);
        assert_eq!([mode("eu"), mode("us"), mode("other")], [Some(Some(LogMode::Disabled)), Some(None), None]);
        assert_eq!(modes.merged, None);
    }
}
