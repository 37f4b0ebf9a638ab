//! The way by which a client reaches the clusters, with the consequences for answers.

use std::fmt::Display;

use super::ForeignSystem;
use crate::ClusterAnnotations;

/// The way by which a client reaches the merged view and the clusters. Messages name commands and paths that work for a
/// client of the same door.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Door {
    /// The client connects to Tributary, with a kubeconfig that has a context for each cluster.
    #[default]
    Direct,
    /// The client sends its requests to the kube-apiserver of the hub, which forwards them.
    Aggregated,
    /// The client uses the paths of cluster-gateway, directly or through the hub.
    ClusterGateway,
    /// The client uses the path of Karmada's aggregated apiserver for one or all clusters.
    KarmadaClusters,
    /// The client uses the path of Karmada's search proxy.
    KarmadaSearch,
    /// The client uses the paths of Open Cluster Management's user-server, at an address of their own.
    OpenClusterManagement,
}

/// A placeholder for the hub's address in a command, because Tributary does not know the address.
const HUB_ADDRESS: &str = "https://HUB";

/// The address of the entry of Open Cluster Management in a command.
const USER_SERVER_ADDRESS: &str = "https://USER-SERVER";

impl Door {
    /// Returns the foreign system whose clients use the door.
    pub fn foreign_system(self) -> Option<ForeignSystem> {
        match self {
            Self::Direct | Self::Aggregated => None,
            Self::ClusterGateway => Some(ForeignSystem::ClusterGateway),
            Self::KarmadaClusters | Self::KarmadaSearch => Some(ForeignSystem::Karmada),
            Self::OpenClusterManagement => Some(ForeignSystem::OpenClusterManagement),
        }
    }

    /// Returns whether the authentication of the door can send a request to the member in the path.
    pub fn asks_members_about_users(self) -> bool {
        match self {
            Self::Direct | Self::OpenClusterManagement => true,
            Self::Aggregated | Self::ClusterGateway | Self::KarmadaClusters | Self::KarmadaSearch => false,
        }
    }

    /// Returns whether clients of the door may get redirects. The aggregator of a kube-apiserver answers 502 instead of
    /// a redirect (kubernetes/kubernetes#112193).
    pub fn allows_redirects(self) -> bool {
        match self {
            Self::Direct | Self::OpenClusterManagement => true,
            Self::Aggregated | Self::ClusterGateway | Self::KarmadaClusters | Self::KarmadaSearch => false,
        }
    }

    /// Returns whether Tributary sends the request with the credentials of Karmada's impersonator in the member, if the
    /// member has one. The impersonator may impersonate exactly the users and groups with the right to `clusters/proxy`
    /// (Karmada's `pkg/util/rbac.go`), but no uids and extra fields. So the member receives only the name and the
    /// groups of the user.
    pub fn uses_impersonator(self) -> bool {
        match self {
            Self::Direct | Self::Aggregated | Self::ClusterGateway | Self::OpenClusterManagement => false,
            Self::KarmadaClusters | Self::KarmadaSearch => true,
        }
    }

    /// Returns the annotations that name the cluster of each object.
    pub fn cluster_annotations(self) -> ClusterAnnotations {
        match self {
            Self::Direct | Self::Aggregated | Self::ClusterGateway | Self::OpenClusterManagement => {
                ClusterAnnotations::Own
            }
            Self::KarmadaClusters | Self::KarmadaSearch => ClusterAnnotations::WithKarmada,
        }
    }

    /// Returns the path of a cluster's own API, relative to the address to which clients of the door connect.
    pub fn cluster_path(self, cluster: impl Display) -> String {
        match self {
            Self::Direct => format!("/clusters/{cluster}"),
            Self::Aggregated => format!("/apis/aggregation.tributary.dev/v1alpha1/clusters/{cluster}/proxy"),
            Self::ClusterGateway => {
                format!("/apis/cluster.core.oam.dev/v1alpha1/clustergateways/{cluster}/proxy")
            }
            Self::KarmadaClusters | Self::KarmadaSearch => {
                format!("/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}/proxy")
            }
            Self::OpenClusterManagement => format!("/{cluster}"),
        }
    }

    /// Returns the address in a command.
    fn address(self) -> &'static str {
        if self == Self::OpenClusterManagement { USER_SERVER_ADDRESS } else { HUB_ADDRESS }
    }

    /// Returns the beginning of a `kubectl` command for a cluster's own API.
    pub fn kubectl(self, cluster: impl Display) -> String {
        match self {
            Self::Direct => format!("kubectl --context {cluster}"),
            _ => format!("kubectl --server {}{}", self.address(), self.cluster_path(cluster)),
        }
    }

    /// Returns the beginning of a `helm` command for a cluster's own API.
    pub fn helm(self, cluster: impl Display) -> String {
        match self {
            Self::Direct => format!("helm --kube-context {cluster}"),
            _ => format!("helm --kube-apiserver {}{}", self.address(), self.cluster_path(cluster)),
        }
    }

    /// Returns the `kubectl` flag that selects a cluster's own API.
    pub fn kubectl_flag(self, cluster: impl Display) -> String {
        match self {
            Self::Direct => format!("--context {cluster}"),
            _ => format!("--server …{}", self.cluster_path(cluster)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggested_commands_contain_the_path_of_direct_or_aggregated_access() {
        const PATH: &str = "/apis/aggregation.tributary.dev/v1alpha1/clusters/eu/proxy";
        assert_eq!(Door::Direct.cluster_path("eu"), "/clusters/eu");
        assert_eq!(Door::Direct.kubectl("eu"), "kubectl --context eu");
        assert_eq!(Door::Direct.helm("eu"), "helm --kube-context eu");
        assert_eq!(Door::Aggregated.cluster_path("eu"), PATH);
        assert_eq!(Door::Aggregated.kubectl("eu"), format!("kubectl --server https://HUB{PATH}"));
        assert_eq!(Door::Aggregated.helm("eu"), format!("helm --kube-apiserver https://HUB{PATH}"));
        assert_eq!(Door::OpenClusterManagement.kubectl("eu"), "kubectl --server https://USER-SERVER/eu");
    }
}
