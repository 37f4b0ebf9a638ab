//! The sources of the configuration beside the hub.

use tributary_sources::LoadedConfiguration;
use tributary_sources::clusters::indices::IndexOwners;

/// The sources beside the hub, which have priority over the hub.
pub struct OtherSources<'a> {
    /// The configuration of the kubeconfig and the files. It passes the check of the configuration.
    pub configuration: &'a LoadedConfiguration,
    /// The owners of present and former cluster indexes, from the data directory.
    pub indexes: IndexOwners,
}
