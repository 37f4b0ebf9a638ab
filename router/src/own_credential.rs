//! The token of a request, for the cluster that vouched for it.

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretSlice};
use tributary_apimachinery::ClusterName;
use tributary_proxy::{GivenIdentity, OwnToken};

/// The bearer token of a request. Only the cluster of the request's path gets the token, if it vouches for the token
/// and its configuration allows that. `Debug` does not show it.
#[derive(Clone)]
pub struct OwnCredential {
    cluster: ClusterName,
    token: Arc<SecretSlice<u8>>,
}

impl OwnCredential {
    /// A token that came with a path of this cluster's own view, and that this cluster vouches for.
    pub fn new(cluster: ClusterName, token: &[u8]) -> Self {
        Self { cluster, token: Arc::new(token.to_vec().into()) }
    }

    /// The token for this cluster; `None` for another cluster. `given` is the impersonated user.
    pub(crate) fn token_for(&self, cluster: &ClusterName, given: Option<GivenIdentity>) -> Option<OwnToken> {
        (self.cluster == *cluster).then(|| OwnToken::new(self.token.expose_secret(), given))?
    }
}

impl fmt::Debug for OwnCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnCredential").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}
