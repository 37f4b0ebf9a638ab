//! Authenticates the users of Open Cluster Management, in the order of its user-server: by the member in the path, and
//! then by the hub.

use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use tributary_apimachinery::Mount;
use tributary_router::AuthenticatedSender;

use super::client_chain::ClientChain;
use super::hub::HubAuthenticator;
use super::shared::{SharedAuthenticator, addressed_cluster};
use super::unauthenticated::Unauthenticated;

/// The authenticator of the entry of Open Cluster Management.
#[derive(Debug)]
pub struct ManagedAuthenticator {
    /// The users of members and of the configured authorities.
    pub members: SharedAuthenticator,
    /// The users of the hub. Only bearer tokens count.
    pub hub: Arc<HubAuthenticator>,
}

impl ManagedAuthenticator {
    /// Authenticates a request by the first valid credential.
    ///
    /// # Errors
    /// [`Unauthenticated`] without a valid credential.
    pub(super) async fn authenticate(
        &self,
        head: &mut Parts,
        mount: &Mount,
        chain: &Arc<ClientChain>,
        tokens: &[Vec<u8>],
        client: IpAddr,
    ) -> Result<AuthenticatedSender, Unauthenticated> {
        if self.are_for_hub_alone(tokens, mount, head.uri.path()) {
            return self.hub.authenticate_token(tokens, client, Unauthenticated::default()).await;
        }
        match self.members.authenticate(head, mount, chain, tokens, client).await {
            Err(refused) => self.hub.authenticate_token(tokens, client, refused).await,
            known => known,
        }
    }

    /// Returns whether no member may review the tokens, because the hub has signed one. Open Cluster Management sends
    /// such a token to the member, which could then act as the hub's user elsewhere.
    fn are_for_hub_alone(&self, tokens: &[Vec<u8>], mount: &Mount, path: &str) -> bool {
        let Some((members, cluster)) = self.members.tokens.as_ref().zip(addressed_cluster(mount, path)) else {
            return false;
        };
        // The keys are tried only for members that review tokens, because a signature check costs up to 0.3 ms.
        members.has_reviewing_member(&cluster)
            && tokens.iter().any(|token| self.hub.has_signed(token) && !members.has_signed(&cluster, token))
    }
}
