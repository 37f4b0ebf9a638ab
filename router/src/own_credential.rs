//! Bearer token of a request, for the cluster that verified the token.

use std::fmt;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretSlice};
use tributary_apimachinery::ClusterName;
use tributary_proxy::{ClientImpersonation, UserToken};

/// Bearer token of a request. Only the cluster in the request's path gets the token, if the cluster verified the token
/// and its configuration allows the forwarding. `Debug` does not show the token.
#[derive(Clone)]
pub struct OwnCredential {
    cluster: ClusterName,
    token: Arc<SecretSlice<u8>>,
}

impl OwnCredential {
    /// Wraps the token of a request to this cluster's own view. The cluster has verified the token.
    pub fn new(cluster: ClusterName, token: &[u8]) -> Self {
        Self { cluster, token: Arc::new(token.to_vec().into()) }
    }

    /// Returns the token if `cluster` verified the token; `None` for other clusters. `given` is the impersonated user.
    pub(crate) fn token_for(&self, cluster: &ClusterName, given: Option<ClientImpersonation>) -> Option<UserToken> {
        (self.cluster == *cluster).then(|| UserToken::new(self.token.expose_secret(), given))?
    }
}

impl fmt::Debug for OwnCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnCredential").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}
