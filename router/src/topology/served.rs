//! What a cluster serves, and which cluster said so.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::discovery::MemberDiscovery;

/// How a cluster is reached, as a digest. What one cluster said is not taken for the words of another that is given its
/// name; a renewed credential makes no other cluster of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterAddress(Arc<str>);

/// What a cluster serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// How it was reached when it said so.
    pub address: ClusterAddress,
    /// What it said.
    pub discovery: Arc<MemberDiscovery>,
}

impl ClusterAddress {
    /// That of a [`fingerprint`](super::ClusterSetup::fingerprint).
    pub(crate) fn of(fingerprint: &str) -> Self {
        let digest: String = Sha256::digest(fingerprint).iter().map(|byte| format!("{byte:02x}")).collect();
        Self(digest.into())
    }
}
