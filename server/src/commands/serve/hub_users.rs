//! The users of the hub, whom the aggregated entry and the entry of Open Cluster Management authenticate.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tributary_hub::{HubClient, HubTrust};
use tributary_router::Router;

use crate::authentication::HubAuthenticator;
use crate::authentication::token_review::review_followed_tokens;
use crate::exit::Failure;

/// The authenticator of the hub's users. All entries share its cache of token reviews.
pub(super) struct HubUsers {
    pub(super) authenticator: Arc<HubAuthenticator>,
    /// The hub's rules for client certificates and front proxies. They are empty until the aggregated entry follows
    /// them.
    pub(super) trust: Arc<HubTrust>,
}

impl HubUsers {
    /// Starts to follow the hub's keys, and the tokens of open streams. Cancelling `stop` ends both.
    ///
    /// # Errors
    /// None in practice, as for [`HubAuthenticator::new`].
    pub(super) fn start(
        hub: &Arc<HubClient>,
        audiences: Vec<String>,
        router: &Arc<Router>,
        stop: &CancellationToken,
    ) -> Result<Self, Failure> {
        let trust = Arc::<HubTrust>::default();
        let authenticator = HubAuthenticator::new(hub, Arc::clone(&trust), audiences).map_err(Failure::runtime)?;
        let authenticator = Arc::new(authenticator);
        let tokens = review_followed_tokens(Arc::clone(router), Arc::clone(authenticator.tokens()));
        tokio::spawn(stop.clone().run_until_cancelled_owned(tokens));
        let keys = Arc::clone(&authenticator).follow_keys(Arc::clone(hub));
        tokio::spawn(stop.clone().run_until_cancelled_owned(keys));
        Ok(Self { authenticator, trust })
    }
}
