//! Discovery of a cluster, with the address that the cluster had when it reported its discovery.

use std::sync::Arc;

use super::address::ClusterAddress;
use crate::discovery::MemberDiscovery;

/// Discovery of a cluster, with the address that the cluster had when it reported its discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Address of the cluster when it reported its discovery.
    pub address: ClusterAddress,
    /// Discovery documents of the cluster.
    pub discovery: Arc<MemberDiscovery>,
}
