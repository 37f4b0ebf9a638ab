//! The kinds of lists.

use serde::{Deserialize, Serialize};
use tributary_apimachinery::ForeignSystem;

/// The kind of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceKind {
    /// Secrets of cluster-gateway.
    ClusterGatewaySecrets,
    /// Clusters of Karmada.
    KarmadaClusters,
    /// ClusterProfiles of SIG Multicluster.
    ClusterProfiles,
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
    /// Returns the foreign system whose door finds members by the foreign names of this list; `None` for systems
    /// without a door.
    pub fn foreign_system(self) -> Option<ForeignSystem> {
        match self {
            Self::ClusterGatewaySecrets => Some(ForeignSystem::ClusterGateway),
            Self::KarmadaClusters => Some(ForeignSystem::Karmada),
            Self::ManagedClusters => Some(ForeignSystem::OpenClusterManagement),
            Self::ClusterProfiles | Self::KubeconfigSecrets | Self::ArgoCdSecrets | Self::KubeGatewayClusters => None,
        }
    }

    /// Returns the name of the field of `spec` that contains the list.
    pub fn field(self) -> &'static str {
        match self {
            Self::ClusterGatewaySecrets => "clusterGatewaySecrets",
            Self::KarmadaClusters => "karmadaClusters",
            Self::ClusterProfiles => "clusterProfiles",
            Self::KubeconfigSecrets => "kubeconfigSecrets",
            Self::ArgoCdSecrets => "argoCDSecrets",
            Self::ManagedClusters => "managedClusters",
            Self::KubeGatewayClusters => "kubeGatewayClusters",
        }
    }
}
