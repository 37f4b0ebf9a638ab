//! What a cluster serves, and which cluster said so.

use std::sync::Arc;

use super::address::ClusterAddress;
use crate::discovery::MemberDiscovery;

/// What a cluster serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// How it was reached when it said so.
    pub address: ClusterAddress,
    /// What it said.
    pub discovery: Arc<MemberDiscovery>,
}
