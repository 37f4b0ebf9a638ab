//! The kinds of lists.

use serde::{Deserialize, Serialize};

/// The kind of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceKind {
    /// Secrets of cluster-gateway.
    ClusterGatewaySecrets,
    /// Clusters of Karmada.
    KarmadaClusters,
    /// Kubeconfig Secrets of multicluster-runtime.
    KubeconfigSecrets,
    /// Cluster Secrets of Argo CD.
    ArgoCdSecrets,
    /// ManagedClusters of Open Cluster Management.
    ManagedClusters,
    /// UpstreamClusters of KubeGateway.
    KubeGatewayClusters,
}

impl SourceKind {
    /// Returns the field of `spec` with the list.
    pub fn field(self) -> &'static str {
        match self {
            Self::ClusterGatewaySecrets => "clusterGatewaySecrets",
            Self::KarmadaClusters => "karmadaClusters",
            Self::KubeconfigSecrets => "kubeconfigSecrets",
            Self::ArgoCdSecrets => "argoCDSecrets",
            Self::ManagedClusters => "managedClusters",
            Self::KubeGatewayClusters => "kubeGatewayClusters",
        }
    }
}
