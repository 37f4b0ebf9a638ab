//! Authenticates the users of the hub at the aggregated entry: by the headers of the hub's front proxy, by a client
//! certificate of the hub, or by a TokenReview at the hub. Members are not asked.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::request::Parts;
use rustls_pki_types::UnixTime;
use tokio::time::Instant;
use tributary_apimachinery::{ANONYMOUS_USER, ClusterName, Status, UNAUTHENTICATED_GROUP};
use tributary_authentication::{
    Authority, FrontProxyError, TokenAuthenticationError, TokenAuthenticator, TokenReviews, UserInfo,
};
use tributary_hub::{DoorAttributes, DoorReviews, FrontProxy, FrontProxyTrust, HubClient, HubTokenReviewer, HubTrust};
use tributary_listener::tls::RequestedAuthorities;
use tributary_router::{AUDIT_ID, AuthenticatedSender, CredentialValidity, User};

use super::client_chain::ClientChain;
use super::cross_origin::is_cross_origin;
use super::issuer_documents::IssuerDocuments;
use super::shared::still_known_by_token;
use super::token_review::{ReviewErrorLog, follow_hub_keys};
use super::unauthenticated::{RefusedCertificate, Unauthenticated};

/// The name of the hub in the limits and the log of token reviews. This authenticator asks no member, so a member may
/// have the same name.
const HUB: &str = "hub";

/// The authenticator of the aggregated entry. All its users belong to the hub and are valid in all members.
#[derive(Debug)]
pub struct HubAuthenticator {
    /// The name of the hub in the limits and the log of token reviews.
    name: ClusterName,
    trust: Arc<HubTrust>,
    tokens: Arc<TokenAuthenticator>,
    doors: DoorReviews,
    review_errors: ReviewErrorLog,
}

impl HubAuthenticator {
    /// Creates the authenticator. `audiences` are the accepted audiences of tokens; without any, a token must be for
    /// the hub itself. Sends nothing.
    ///
    /// # Errors
    /// None in practice, because `HUB` is a valid cluster name.
    pub fn new(hub: &Arc<HubClient>, trust: Arc<HubTrust>, audiences: Vec<String>) -> anyhow::Result<Self> {
        let name = ClusterName::new(HUB)?;
        let reviews = TokenReviews { cluster: Some(name.clone()), audiences, ..TokenReviews::default() };
        let reviewer = Arc::new(HubTokenReviewer(Arc::clone(hub)));
        let tokens = Arc::new(TokenAuthenticator::new(reviews, Arc::new(IssuerDocuments), reviewer));
        let (doors, review_errors) = (DoorReviews::new(Arc::clone(hub)), ReviewErrorLog::default());
        Ok(Self { name, trust, tokens, doors, review_errors })
    }

    /// Returns the authenticator of tokens. The caller must pass it to
    /// [`review_followed_tokens`](super::token_review::review_followed_tokens), so that open streams end when their
    /// token is revoked.
    pub fn tokens(&self) -> &Arc<TokenAuthenticator> {
        &self.tokens
    }

    /// Follows the keys with which the hub signs the tokens of its ServiceAccounts. Never completes. Cancel: safe.
    pub async fn follow_keys(self: Arc<Self>, hub: Arc<HubClient>) {
        follow_hub_keys(&hub, &self.tokens, self.name.clone()).await;
    }

    /// Returns the names of the hub's current authorities for the TLS handshake. The handshake must request
    /// certificates of new authorities after each change of [`HubTrust`], because clients choose their certificate by
    /// these names.
    pub fn subjects(&self) -> RequestedAuthorities {
        let trust = self.trust.current();
        let clients = trust.clients.as_ref().map(|own| own.subjects()).unwrap_or_default();
        let proxies = trust.front_proxy.rules().map(|rules| rules.authorities.subjects()).unwrap_or_default();
        RequestedAuthorities { clients, proxies }
    }

    /// Removes the client's audit ID, unless the request comes from the front proxy of the hub. Must be called before
    /// the audit ID is used.
    pub fn remove_untrusted_audit_id(&self, head: &mut Parts, chain: &ClientChain) {
        if head.headers.contains_key(AUDIT_ID) && !is_front_proxy(&self.trust.current(), chain) {
            head.headers.remove(AUDIT_ID);
        }
    }

    /// Authenticates a request by the first valid credential, in the order of a delegating API server: the front
    /// proxy's headers, a client certificate of the hub, a TokenReview at the hub of `tokens`. Removes all headers that
    /// name a user, whoever sent them. `client` is the address of the sender. Must be called within a tokio runtime.
    /// Cancel: safe.
    ///
    /// # Errors
    /// [`Unauthenticated`] without a valid credential.
    pub async fn authenticate(
        &self,
        head: &mut Parts,
        chain: &Arc<ClientChain>,
        tokens: &[Vec<u8>],
        client: IpAddr,
    ) -> Result<AuthenticatedSender, Unauthenticated> {
        // One snapshot of the authorities and the header names serves the whole request, because the hub may change
        // them at any time.
        let (trust, now, mut refused) = (self.trust.current(), UnixTime::now(), Unauthenticated::default());
        let named = self.header_user(&trust, head, (chain, now), &mut refused);
        trust.front_proxy.user_headers().remove_from(&mut head.headers);
        // The front proxy's own certificate is not tried after malformed headers, because it would authenticate the
        // proxy in place of the user.
        let Ok(named) = named else { return Err(refused) };
        if let Some((user, until)) = named {
            let sender = hub_sender(Authority::HubFrontProxy, user, left(until, now));
            return Ok(AuthenticatedSender { credential_validity: Some(self.proxy_validity(chain)), ..sender });
        }
        if let Some((user, until)) = certificate_user(&trust, chain, now, &mut refused) {
            let sender = hub_sender(Authority::Hub, user, left(until, now));
            let credential_validity = Some(self.certificate_validity(chain));
            return Ok(AuthenticatedSender { credential_validity, is_cross_origin: is_cross_origin(head), ..sender });
        }
        self.authenticate_token(tokens, client, refused).await
    }

    /// Returns the user in the headers, and the end of the front proxy's certificate. `None` if the client names no
    /// user, or is no front proxy of the hub: the client's own credentials are used instead.
    ///
    /// # Errors
    /// [`FrontProxyError`] for malformed or repeated headers of a front proxy.
    fn header_user(
        &self,
        trust: &FrontProxyTrust,
        head: &Parts,
        (chain, now): (&ClientChain, UnixTime),
        refused: &mut Unauthenticated,
    ) -> Result<Option<(UserInfo, UnixTime)>, FrontProxyError> {
        let user_headers = trust.front_proxy.user_headers();
        if chain.is_empty() || !user_headers.has_user_header(&head.headers) {
            return Ok(None);
        }
        let verified = match &trust.front_proxy {
            FrontProxy::Trusted { rules, .. } => chain.verify_front_proxy(rules, now).map_err(|error| {
                if matches!(error, FrontProxyError::Certificate(_)) {
                    self.trust.request_read();
                }
                error.to_string()
            }),
            FrontProxy::Untrusted { reason, .. } => {
                self.trust.request_read();
                Err(reason.clone())
            }
        };
        let mut refuse = |why: String| {
            tracing::debug!(why, "the user headers of the hub's front proxy are rejected");
            refused.front_proxy = Some(format!("the user headers of the hub's front proxy are rejected: {why}"));
        };
        match verified {
            Ok(until) => {
                let user = user_headers.read(&head.headers).inspect_err(|error| refuse(error.to_string()))?;
                Ok(user.map(|user| (user, until)))
            }
            Err(why) => {
                refuse(why);
                Ok(None)
            }
        }
    }

    /// Authenticates a request by its bearer tokens. The origin is not checked, because a page of another origin cannot
    /// send a token. No member receives the token.
    pub(super) async fn authenticate_token(
        &self,
        tokens: &[Vec<u8>],
        client: IpAddr,
        mut refused: Unauthenticated,
    ) -> Result<AuthenticatedSender, Unauthenticated> {
        for token in tokens {
            match self.tokens.authenticate(token, None, client).await {
                Ok(known) => {
                    let left = known.expires.map(|until| until.duration_since(SystemTime::now()).unwrap_or_default());
                    let credential_validity = Some(still_known_by_token(&self.tokens, &known, token));
                    let sender = hub_sender(Authority::Hub, known.user.clone(), left);
                    return Ok(AuthenticatedSender { credential_validity, ..sender });
                }
                Err(error) => {
                    self.log_refused_token(&error, client);
                    refused.token = Some(error.to_string());
                }
            }
        }
        Err(refused)
    }

    /// Returns whether a key of the hub verifies the signature of a token. Sends no request.
    pub(super) fn has_signed(&self, token: &[u8]) -> bool {
        self.tokens.has_signed(&self.name, token)
    }

    /// Returns whether the keys of the hub for ServiceAccount tokens are known.
    pub(super) fn has_known_keys(&self) -> bool {
        self.tokens.has_known_keys(&self.name)
    }

    /// Logs a refused token. A failed review is logged as a warning, because an administrator can fix its cause.
    fn log_refused_token(&self, error: &TokenAuthenticationError, client: IpAddr) {
        match error {
            TokenAuthenticationError::NotReviewed { cluster, problem } if self.review_errors.is_line_due(cluster) => {
                tracing::warn!(%problem, "the hub does not review tokens: requests with a token are refused");
            }
            error => tracing::debug!(%error, %client, "a token is rejected"),
        }
    }

    /// Checks that the hub allows a request for a resource of Tributary's own API group. The kube-apiserver of the hub
    /// has already checked the requests that it forwards. A request inside `views/proxy` or `clusters/proxy` also needs
    /// the user's rights in the members. Must be called within a tokio runtime. Cancel: safe.
    ///
    /// # Errors
    /// 401 for a sender whom the hub has not authenticated; 403 if the hub denies the request; 429 if too many reviews
    /// are in flight; 503 if the hub does not decide.
    pub async fn authorize_door(
        &self,
        sender: &AuthenticatedSender,
        attributes: &DoorAttributes,
    ) -> Result<(), Status> {
        match &sender.user.authority {
            Authority::HubFrontProxy => Ok(()),
            Authority::Hub => self.doors.review(&sender.user, attributes).await,
            _ => Err(Status::unauthorized()),
        }
    }

    /// Checks that the hub allows the request inside a door. The kube-apiserver of the hub has checked only the right
    /// to `proxy` of the requests that it forwards. Must be called within a tokio runtime. Cancel: safe.
    ///
    /// # Errors
    /// As for [`authorize_door`](Self::authorize_door).
    pub async fn authorize_inner(
        &self,
        sender: &AuthenticatedSender,
        attributes: &DoorAttributes,
    ) -> Result<(), Status> {
        if !sender.user.authority.is_hub() {
            return Err(Status::unauthorized());
        }
        self.doors.review(&sender.user, attributes).await
    }

    /// Creates the check whether the front proxy's certificate is still accepted, because the hub may replace its
    /// authorities during a long-running request.
    fn proxy_validity(&self, chain: &Arc<ClientChain>) -> CredentialValidity {
        let (trust, chain) = (Arc::clone(&self.trust), Arc::clone(chain));
        CredentialValidity::new(move || is_front_proxy(&trust.current(), &chain))
    }

    /// Creates the check whether a client's certificate is still accepted.
    fn certificate_validity(&self, chain: &Arc<ClientChain>) -> CredentialValidity {
        let (trust, chain) = (Arc::clone(&self.trust), Arc::clone(chain));
        CredentialValidity::new(move || {
            let trust = trust.current();
            trust.clients.as_ref().is_some_and(|clients| chain.user(clients, UnixTime::now()).is_ok())
        })
    }
}

fn is_front_proxy(trust: &FrontProxyTrust, chain: &ClientChain) -> bool {
    !chain.is_empty()
        && trust.front_proxy.rules().is_some_and(|rules| chain.verify_front_proxy(rules, UnixTime::now()).is_ok())
}

fn certificate_user(
    trust: &FrontProxyTrust,
    chain: &ClientChain,
    now: UnixTime,
    refused: &mut Unauthenticated,
) -> Option<(UserInfo, UnixTime)> {
    if chain.is_empty() {
        return None;
    }
    let known = match &trust.clients {
        Some(clients) => chain.user(clients, now).map_err(|error| error.to_string()),
        None => Err("the hub has no authority for client certificates".to_owned()),
    };
    let known = known.inspect_err(|why| {
        tracing::debug!(why, "a client certificate is rejected");
        refused.certificate = Some(Box::new(RefusedCertificate { subject: chain.subject(), why: why.clone() }));
    });
    known.ok()
}

/// Makes the sender for a user of the hub, who is valid in all members.
fn hub_sender(authority: Authority, user: UserInfo, left: Option<Duration>) -> AuthenticatedSender {
    // The hub may forward anonymous requests. As in kube-apiserver, their user is not in `system:authenticated`.
    let is_anonymous =
        user.username == ANONYMOUS_USER || user.groups.iter().any(|group| group == UNAUTHENTICATED_GROUP);
    let info = if is_anonymous { user } else { user.authenticated() };
    let until = left.and_then(|left| Instant::now().checked_add(left));
    AuthenticatedSender { until, ..User { info, authority }.into() }
}

fn left(until: UnixTime, now: UnixTime) -> Option<Duration> {
    Some(Duration::from_secs(until.as_secs().saturating_sub(now.as_secs())))
}

#[cfg(test)]
mod tests;
