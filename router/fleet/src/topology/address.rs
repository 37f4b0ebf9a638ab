//! Address of a cluster.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tributary_apimachinery::text::hex;

/// Digest of a cluster's servers and of the method by which they are authenticated. State that is stored with one
/// address never counts for a different address. Renewed credentials, and the configuration of rights, do not change
/// the digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterAddress(Arc<str>);

impl ClusterAddress {
    /// Computes the digest from a description of the cluster's servers and their authentication.
    pub fn from_description(description: &str) -> Self {
        Self(hex(Sha256::digest(description)).into())
    }
}
