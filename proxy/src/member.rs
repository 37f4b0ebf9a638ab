//! Shared state of one cluster's client: endpoints, user and name.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use tributary_apimachinery::ClusterName;

use crate::cluster_uid::KnownCluster;
use crate::credentials::CurrentCredentials;
use crate::credentials::identity::{Impersonation, NOBODY_UID, RequestIdentity};
use crate::credentials::user::{CurrentUser, MemberUser};
use crate::endpoints::Endpoints;
use crate::endpoints::endpoint_maker::EndpointMaker;
use crate::error::{ConnectError, ForwardError};
use crate::exhaustion::Exhaustion;
use crate::failed_upgrades::UpgradeLimiter;
use crate::health::observer::Observer;
use crate::pool::dial::Connector;
use crate::pool::server_identities::ServerIdentities;
use crate::retry_budget::RetryBudget;
use crate::target::{Address, targets};
use crate::tuning::ClientTuning;

/// State of one cluster's client, which all clones of the client share.
pub(crate) struct ClientInner {
    pub(crate) name: ClusterName,
    pub(crate) endpoints: Endpoints,
    pub(crate) tuning: ClientTuning,
    /// Headers that the member's configuration adds to every request.
    pub(crate) extra_headers: HeaderMap,
    pub(crate) user: CurrentUser,
    /// `Authorization` header of the member's impersonator; `None` if the member has no impersonator.
    pub(crate) impersonator: ArcSwapOption<HeaderValue>,
    pub(crate) observer: Arc<Observer>,
    pub(crate) retries: RetryBudget,
    pub(crate) server_identities: Arc<ServerIdentities>,
    /// Whether this client forwards users' own tokens. If so, Tributary's requests through this client carry no
    /// credentials.
    pub(crate) passes_tokens: bool,
    /// Limits upgrade requests that end without a 101.
    pub(crate) upgrades: UpgradeLimiter,
    /// Opens byte streams to the addresses, instead of TCP.
    pub(crate) connector: Option<Connector>,
    /// The expected cluster behind the addresses. `None` for users' own tokens, which the cluster authenticates.
    pub(crate) known: Option<Arc<KnownCluster>>,
}

impl ClientInner {
    /// Returns the current user for a request with this identity: its credentials and `as` fields.
    pub(crate) fn user_for(&self, identity: &RequestIdentity) -> Arc<MemberUser> {
        let user = self.user.load_full();
        match (identity, &*self.impersonator.load()) {
            (RequestIdentity::UserToken { authorization, .. }, _) => Arc::new(user.with_token(authorization)),
            (RequestIdentity::ByImpersonator(_), Some(own)) => Arc::new(user.with_impersonator(own)),
            _ => user,
        }
    }

    /// Sets the identity headers of a request. Requires that [`crate::headers::prepare_request`] has removed the
    /// client's identity headers.
    pub(crate) fn set_identity(
        &self,
        headers: &mut HeaderMap,
        identity: &RequestIdentity,
        user: &MemberUser,
    ) -> Result<(), ForwardError> {
        for (name, value) in &self.extra_headers {
            headers.append(name, value.clone());
        }
        let own = user.impersonation.as_ref().map(Impersonation::headers);
        match identity {
            RequestIdentity::Member => append(headers, own.into_iter().flatten()),
            RequestIdentity::ClientImpersonation(client_impersonation) => {
                append(headers, client_impersonation.headers())
            }
            RequestIdentity::Impersonate(_) | RequestIdentity::ByImpersonator(_) if own.is_some() => {
                return Err(ForwardError::ImpersonationConflict { cluster: self.name.clone() });
            }
            RequestIdentity::Impersonate(user) | RequestIdentity::ByImpersonator(user) => {
                append(headers, user.headers())
            }
            RequestIdentity::UidOnly => {
                let uid = HeaderName::from_static("impersonate-uid");
                headers.append(uid, HeaderValue::from_static(NOBODY_UID));
            }
            RequestIdentity::UserToken { impersonation, .. } => {
                append(headers, impersonation.iter().flat_map(Impersonation::headers))
            }
        }
        Ok(())
    }

    pub(crate) fn generation(&self) -> u64 {
        self.known.as_ref().map_or(0, |known| known.generation())
    }

    /// Refuses a request that was meant for a previous cluster of the same name, because the sender may have rights in
    /// the previous cluster only. `requested` is the generation of the name when the request arrived.
    ///
    /// # Errors
    /// [`ForwardError::AnotherCluster`].
    pub(crate) fn check_generation(&self, requested: u64) -> Result<(), ForwardError> {
        match self.generation() == requested {
            true => Ok(()),
            false => Err(ForwardError::AnotherCluster { cluster: self.name.clone() }),
        }
    }

    /// Removes the identity headers of a request, before a retry with another user.
    pub(crate) fn clear_identity(&self, headers: &mut HeaderMap) {
        let is_claim = |name: &&HeaderName| name.as_str().starts_with("impersonate-");
        let claims: Vec<HeaderName> = headers.keys().filter(is_claim).cloned().collect();
        for name in claims.iter().chain(self.extra_headers.keys()) {
            headers.remove(name);
        }
    }

    pub(crate) async fn set_addresses(&self, config: &kube::Config, further: &[Address]) -> Result<bool, ConnectError> {
        if !self.endpoints.has_endpoint_list() {
            return Ok(false);
        }
        let targets = targets(&self.name, config, further)?;
        let (before, user) = (self.endpoints.all(), self.user.load_full());
        let maker = EndpointMaker {
            cluster: &self.name,
            config,
            tuning: &self.tuning,
            certificate: user.credentials.configured_certificate(),
            uid: self.known.as_ref().zip(Some(&self.user)),
            server_identities: &self.server_identities,
            connector: self.connector.as_ref(),
            member: &self.observer,
            is_one_of_several: true,
        };
        let (mut endpoints, mut stay) = (Vec::new(), 0);
        for target in targets.clone() {
            match before.iter().find(|known| known.is_at(&target)) {
                Some(known) => {
                    stay += 1;
                    endpoints.push(Arc::clone(known));
                }
                None => endpoints.push(maker.make(target).await?),
            }
        }
        if stay == 0 {
            return Ok(false);
        }
        self.server_identities.set_addresses(&targets);
        self.endpoints.replace(endpoints);
        Ok(true)
    }

    /// Returns the credentials of the user. Cancel-safe: a running plugin continues.
    ///
    /// # Errors
    /// [`ForwardError::Credentials`] or [`ForwardError::CredentialsExhausted`].
    pub(crate) async fn credentials(&self, user: &MemberUser) -> Result<Arc<CurrentCredentials>, ForwardError> {
        user.credentials.get().await.map_err(|message| {
            // The stored text is all that remains of the plugin's failure until the plugin's next run. So the missing
            // resource is recognized by the text.
            Exhaustion::without_credentials(Exhaustion::from_text(&message), &self.name, message)
        })
    }

    pub(crate) fn bad_path(&self, uri: &Uri, problem: &'static str) -> ForwardError {
        ForwardError::Path { cluster: self.name.clone(), path: uri.path().to_owned(), problem }
    }
}

fn append<'a>(headers: &mut HeaderMap, more: impl IntoIterator<Item = (&'a HeaderName, &'a HeaderValue)>) {
    for (name, value) in more {
        headers.append(name, value.clone());
    }
}
