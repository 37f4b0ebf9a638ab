//! Address of a cluster.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tributary_apimachinery::text::hex;

/// Digest that identifies the servers of a cluster and the method by which Tributary authenticates them. State that was
/// stored for one address is never used for a different address. Renewed credentials, or a change of the configuration
/// of rights, do not change the digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterAddress(Arc<str>);

impl ClusterAddress {
    /// Computes the digest from a description of the cluster's servers and their authentication.
    pub fn from_description(description: &str) -> Self {
        Self(hex(Sha256::digest(description)).into())
    }
}
