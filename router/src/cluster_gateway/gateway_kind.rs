//! The kinds of cluster-gateway's API group.

use tributary_fleet::foreign_groups::{CLUSTER_GATEWAY_GROUP, CLUSTER_GATEWAY_VERSION};

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GatewayKind {
    ClusterGateway,
    VirtualCluster,
}

impl GatewayKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ClusterGateway => "ClusterGateway",
            Self::VirtualCluster => "VirtualCluster",
        }
    }
}

pub(super) fn api_version() -> String {
    format!("{CLUSTER_GATEWAY_GROUP}/{CLUSTER_GATEWAY_VERSION}")
}
