//! The token that a user came with, for the one cluster that vouched for it.

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretSlice};
use tributary_apimachinery::ClusterName;
use tributary_proxy::{GivenIdentity, OwnToken};

/// The bearer token of a request. It is sent on to the cluster whose path the
/// request has and which vouches for the token, where its configuration says so, and to no other. `Debug` does not show
/// it.
#[derive(Clone)]
pub struct OwnCredential {
    cluster: ClusterName,
    token: Arc<SecretSlice<u8>>,
}

impl OwnCredential {
    /// A token for which this cluster vouches, under whose own path it came.
    pub fn new(cluster: ClusterName, token: &[u8]) -> Self {
        Self { cluster, token: Arc::new(token.to_vec().into()) }
    }

    /// The token, as this cluster is sent it; `None` where it is not this cluster's. `given` is whom the user asks to
    /// be.
    pub(crate) fn token_for(&self, cluster: &ClusterName, given: Option<GivenIdentity>) -> Option<OwnToken> {
        (self.cluster == *cluster).then(|| OwnToken::new(self.token.expose_secret(), given))?
    }
}

impl fmt::Debug for OwnCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnCredential").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}
