//! Authenticates the users of Open Cluster Management, in the order of its user-server: by the member in the path, and
//! then by the hub.

use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use tributary_apimachinery::Mount;
use tributary_router::AuthenticatedSender;

use super::client_chain::ClientChain;
use super::hub::HubAuthenticator;
use super::shared::SharedAuthenticator;
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
        // Open Cluster Management sends a token of the hub to the member, which could then act as the hub's user
        // elsewhere. A member that serves a copy of the hub's keys gets no such token either.
        if tokens.iter().any(|token| self.hub.has_signed(token)) {
            return self.hub.authenticate_token(tokens, client, Unauthenticated::default()).await;
        }
        // While the keys of the hub are unknown, any token may be a token of the hub, so the hub reviews it first.
        if !tokens.is_empty()
            && !self.hub.has_known_keys()
            && let Ok(sender) = self.hub.authenticate_token(tokens, client, Unauthenticated::default()).await
        {
            return Ok(sender);
        }
        match self.members.authenticate(head, mount, chain, tokens, client).await {
            Err(refused) => self.hub.authenticate_token(tokens, client, refused).await,
            known => known,
        }
    }
}
