//! How a cluster is reached.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tributary_apimachinery::text::hex;

/// How a cluster is reached, as a digest. What one cluster said is not taken for the words of another that is given its
/// name; a renewed credential makes no other cluster of it, and neither does what is told to it, or decided for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterAddress(Arc<str>);

impl ClusterAddress {
    /// That of a description that says by which servers the cluster is reached, and how it is known to be the one.
    pub fn from_description(description: &str) -> Self {
        Self(hex(Sha256::digest(description)).into())
    }
}
