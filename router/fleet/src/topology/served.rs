//! Discovery of a cluster, with the address of the cluster at that time.

use std::sync::Arc;

use super::address::ClusterAddress;
use crate::discovery::MemberDiscovery;

/// Discovery of a cluster, with the address of the cluster at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Address of the cluster when it reported its discovery.
    pub address: ClusterAddress,
    /// Discovery documents of the cluster.
    pub discovery: Arc<MemberDiscovery>,
}
