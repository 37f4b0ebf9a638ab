//! The CustomResourceDefinitions as YAML, for a hub cluster.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::{ClusterSource, MergedEndpoint, ResourceRegistry, UpstreamCluster, denied_users};

/// A file with a CustomResourceDefinition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The name of the file in `deploy/crds`.
    pub file_name: String,
    /// The text of the file.
    pub yaml: String,
}

/// Returns the CustomResourceDefinitions of the five kinds.
pub fn definitions() -> [CustomResourceDefinition; 5] {
    [
        UpstreamCluster::crd(),
        ResourceRegistry::crd(),
        MergedEndpoint::crd(),
        denied_users::definition(),
        ClusterSource::crd(),
    ]
}

/// Returns the CustomResourceDefinitions as files.
///
/// # Errors
/// Errors of the serializer. The definitions are constant, so a test rules them out.
pub fn manifests() -> Result<Vec<Manifest>, serde_saphyr::SerializeError> {
    definitions()
        .iter()
        .map(|definition| {
            Ok(Manifest {
                file_name: format!("{}_{}.yaml", definition.spec.group, definition.spec.names.plural),
                yaml: format!("---\n{}", serde_saphyr::to_string(definition)?),
            })
        })
        .collect()
}
