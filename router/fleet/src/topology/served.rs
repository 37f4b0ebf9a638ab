//! Discovery of a cluster, with the address of the cluster that reported it.

use std::sync::Arc;

use super::address::ClusterAddress;
use crate::discovery::MemberDiscovery;

/// Discovery of a cluster, with the address of the cluster that reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Address at the time of the answer.
    pub address: ClusterAddress,
    /// Discovery documents of the cluster.
    pub discovery: Arc<MemberDiscovery>,
}
