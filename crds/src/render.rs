//! The CustomResourceDefinitions as YAML, for a hub cluster.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::{MergedEndpoint, ResourceRegistry, UpstreamCluster};

/// A CustomResourceDefinition in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The file's name in `deploy/crds`.
    pub file_name: String,
    /// Its text.
    pub yaml: String,
}

/// The CustomResourceDefinitions.
pub fn definitions() -> [CustomResourceDefinition; 3] {
    [UpstreamCluster::crd(), ResourceRegistry::crd(), MergedEndpoint::crd()]
}

/// The CustomResourceDefinitions as files.
///
/// # Errors
/// The serializer's; the definitions are constant, so a test that passes once always does.
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
