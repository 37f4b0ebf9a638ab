//! The authentication of bearer tokens.
//!
//! ```text
//! token ─▶ cached? ─▶ format and expiry ─▶ VerifierRules::order ─┬─▶ issuer: IssuerKeys verifies the token here
//!          (CheckCache)                    (pure)                └─▶ clusters: ReviewBounds ─▶ TokenReviewer
//! ```
//!
//! A malformed or expired token causes no request. The token of an open stream is [reviewed repeatedly](FollowedToken).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use futures::future::join_all;
use futures::{FutureExt, StreamExt, stream};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tributary_apimachinery::ClusterName;

use crate::authority::Authority;
use crate::check_cache::{CachedCheck, CheckCache, CheckKey};
use crate::configuration::{AuthenticationConfiguration, JwtAuthenticator};
use crate::followed_tokens::{FollowedToken, FollowedTokens};
use crate::issuer_keys::{FetchDocument, IssuerError, IssuerKeys};
use crate::jwt::{MAX_TOKEN, Token, TokenError};
use crate::member_keys::MemberKeys;
use crate::review_bounds::{AdmittedReview, ReviewBounds, TooManyReviews};
use crate::token_review::{TokenReviewer, bytes, parse_review, review_request};
use crate::user::UserInfo;
use crate::verifiers::{AddressedCluster, BearerToken, TokenRefused, Verifier, VerifierRules};

/// The time for which the result for a token that this process verified itself is cached: kube-apiserver's
/// `TokenSuccessCacheTTL`. Invalid tokens are not cached (kube-apiserver's `TokenFailureCacheTTL` is 0), because
/// verifying them again costs no request.
const VERIFIED_TTL: Duration = Duration::from_secs(10);
/// The timeout for a review by one cluster.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of attempts to authenticate a token. An attempt is repeated if the configuration of the verifiers
/// changed in the meantime. Three attempts are enough, because the configuration changes a few times a minute at most.
const TRIES: usize = 3;
/// The maximum number of concurrent reviews of followed tokens per cluster. The number is small, so that reviews for
/// waiting clients are not delayed.
const FOLLOWED_AT_ONCE: usize = 8;

/// The user of an authenticated token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// The user with the attributes from the verifier's response or the token.
    pub user: UserInfo,
    /// The authority that vouches for the user.
    pub authority: Authority,
    /// The expiry of the token, if it has one.
    pub expires: Option<SystemTime>,
    /// The configuration of the issuer; `None` if a cluster reviewed the token.
    issuer: Option<Arc<JwtAuthenticator>>,
    /// The cluster's value in `Rules::forgotten` at the time of the review. If the present value differs, the cluster's
    /// name was reassigned, and this result is no longer valid.
    forgotten: u64,
}

/// The reason for a 401 response to a request with a token. The reason may be logged: it contains no text of the token
/// except names of claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenAuthenticationError {
    /// The token is malformed or expired.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The keys or the configuration of the issuer reject the token.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// The configuration allows no verifier for this token.
    #[error(transparent)]
    Refused(#[from] TokenRefused),
    /// A limit for TokenReviews is reached.
    #[error(transparent)]
    TooManyReviews(#[from] TooManyReviews),
    /// The TokenReview could not be sent to the cluster, or the cluster did not answer.
    #[error("cluster {cluster} could not review the token: {problem}")]
    NotReviewed {
        /// The name of the cluster that was to review the token.
        cluster: ClusterName,
        /// The reason why the cluster sent no response.
        problem: Arc<str>,
    },
    /// No verifier accepts the token.
    #[error("invalid bearer token")]
    Unknown,
    /// The review ended without a result: it failed in this process, or the configuration changed during each attempt.
    #[error("the review of the token was interrupted; try again")]
    BrokenOff,
}

/// The settings for reviews of tokens by clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenReviews {
    /// The cluster of `--token-review-cluster`.
    pub cluster: Option<ClusterName>,
    /// The audiences of `--api-audiences`. A reviewed token must be for one of them. If the list is empty, the token
    /// must be for the cluster itself.
    pub audiences: Vec<String>,
    /// The time for which the result of a review is cached, positive or negative:
    /// `--authentication-token-webhook-cache-ttl`.
    pub cache_ttl: Duration,
}

impl Default for TokenReviews {
    fn default() -> Self {
        // The default of API servers that delegate authentication (apiserver
        // `options.NewDelegatingAuthenticationOptions`). kube-apiserver's own webhook caches for 2 min, in which a
        // deleted ServiceAccount would stay valid.
        Self { cluster: None, audiences: Vec::new(), cache_ttl: Duration::from_secs(10) }
    }
}

type ReviewOutcome = Result<Arc<Authenticated>, TokenAuthenticationError>;

/// Authenticates users by bearer tokens. A process has one authenticator.
pub struct TokenAuthenticator {
    reviews: TokenReviews,
    documents: Arc<dyn FetchDocument>,
    reviewer: Arc<dyn TokenReviewer>,
    rules: ArcSwap<Rules>,
    cache: Arc<CheckCache<ReviewOutcome>>,
    bounds: Arc<ReviewBounds>,
    followed: FollowedTokens,
    unknown_key: Notify,
}

/// The configured verifiers. An update replaces the whole value. A result that was computed with a previous value is
/// not cached.
#[derive(Clone, Default)]
struct Rules {
    generation: u64,
    issuers: Vec<JwtAuthenticator>,
    keys: Vec<Arc<IssuerKeys>>,
    members: Arc<MemberKeys>,
    /// The members that review the tokens of requests to their own path or host.
    reviewing: Arc<BTreeSet<ClusterName>>,
    /// For each member, the number of times that its name was reassigned to another cluster.
    forgotten: Arc<BTreeMap<ClusterName, u64>>,
}

impl fmt::Debug for TokenAuthenticator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenAuthenticator").field("reviews", &self.reviews).finish_non_exhaustive()
    }
}

impl TokenAuthenticator {
    /// Creates an authenticator without issuers and members.
    pub fn new(reviews: TokenReviews, documents: Arc<dyn FetchDocument>, reviewer: Arc<dyn TokenReviewer>) -> Self {
        let bytes_of = |outcome: &ReviewOutcome| outcome.as_ref().map_or(0, |authenticated| bytes(&authenticated.user));
        let (cache, bounds, followed) = (CheckCache::new(bytes_of), ReviewBounds::new(), FollowedTokens::default());
        let (rules, unknown_key) = (ArcSwap::default(), Notify::new());
        Self { reviews, documents, reviewer, rules, cache, bounds, followed, unknown_key }
    }

    /// Replaces the issuers by the issuers of a configuration. The cached keys of unchanged issuers stay.
    pub fn set_issuers(&self, configuration: &AuthenticationConfiguration) {
        self.exchange(|rules| {
            let keys_of = |issuer: &JwtAuthenticator| rules.keys.iter().find(|keys| *keys.issuer == *issuer).cloned();
            let new = |issuer: &JwtAuthenticator| IssuerKeys::new(issuer.clone(), Arc::clone(&self.documents));
            let keys = configuration.jwt.iter().map(|issuer| keys_of(issuer).unwrap_or_else(|| new(issuer))).collect();
            Rules { issuers: configuration.jwt.clone(), keys, ..rules.clone() }
        });
    }

    /// Replaces the keys with which members sign the tokens of their ServiceAccounts.
    pub fn set_member_keys(&self, members: MemberKeys) {
        let members = Arc::new(members);
        self.exchange(|rules| Rules { members: Arc::clone(&members), ..rules.clone() });
    }

    /// Removes the cached reviews and the keys of a cluster, because its name now stands for another cluster. Returns
    /// whether a stream with a token of the previous cluster is open. Such a token becomes invalid.
    pub fn forget_cluster(&self, cluster: &ClusterName) -> bool {
        self.exchange(|rules| {
            let mut members = (*rules.members).clone();
            members.forget(cluster);
            let mut forgotten = (*rules.forgotten).clone();
            *forgotten.entry(cluster.clone()).or_default() += 1;
            Rules { members: Arc::new(members), forgotten: Arc::new(forgotten), ..rules.clone() }
        });
        self.followed.mark_lost(cluster)
    }

    /// Replaces the set of members that review tokens of requests to their own path or host.
    pub fn set_reviewing_members(&self, members: BTreeSet<ClusterName>) {
        if *self.rules.load().reviewing != members {
            let reviewing = Arc::new(members);
            self.exchange(|rules| Rules { reviewing: Arc::clone(&reviewing), ..rules.clone() });
        }
    }

    /// Returns whether the keys of a cluster for ServiceAccount tokens are known.
    pub fn has_known_keys(&self, cluster: &ClusterName) -> bool {
        self.rules.load().members.has_known_keys(cluster)
    }

    /// Returns whether a key of a cluster verifies the signature of a token. Sends no request. Costs 0.03 to 0.3 ms for
    /// each key with the token's key id.
    pub fn has_signed(&self, cluster: &ClusterName, token: &[u8]) -> bool {
        match token_text(token).ok().map(BearerToken::parse) {
            Some(Ok(BearerToken::Jwt(token))) => self.rules.load().members.has_signed(cluster, &token),
            _ => false,
        }
    }

    fn exchange(&self, change: impl Fn(&Rules) -> Rules) {
        self.rules.rcu(|rules| Rules { generation: rules.generation + 1, ..change(rules) });
    }

    /// Waits until a request has a token whose key id is unknown. A member may then have a new key, which the caller
    /// should fetch. Cancel: safe.
    pub async fn unknown_key(&self) {
        self.unknown_key.notified().await;
    }

    /// Returns whether the configuration of a user's verifier is unchanged. For a user of an issuer, the configuration
    /// must still contain this issuer. For a user that a cluster reviewed, the cluster's name must not have been
    /// reassigned; [review rounds](Self::follow) check the token itself.
    pub fn is_verifier_unchanged(&self, authenticated: &Authenticated) -> bool {
        let rules = self.rules.load();
        let home = authenticated.authority.home().and_then(|home| rules.forgotten.get(home));
        if authenticated.issuer.is_none() && home.copied().unwrap_or_default() != authenticated.forgotten {
            return false;
        }
        authenticated.issuer.as_ref().is_none_or(|issuer| rules.issuers.contains(issuer))
    }

    /// Follows the token of a new stream, if a cluster reviewed the token. Each [round](Self::review_followed) sends
    /// the token to the cluster again, until the returned value is dropped. Costs some 2 µs.
    pub fn follow(&self, token: &[u8], authenticated: &Authenticated) -> Option<Arc<FollowedToken>> {
        let cluster = authenticated.authority.home().filter(|_| authenticated.issuer.is_none())?;
        let text = std::str::from_utf8(token).ok()?;
        let user = serde_json::to_vec(&authenticated.user).ok()?;
        let key = self.cache.key(&[cluster.as_str().as_bytes(), &user], token);
        let review_body = || review_request(text, &self.reviews.audiences);
        Some(self.followed.follow(key, cluster, &authenticated.user, review_body))
    }

    /// Reviews the followed tokens again, each at most once a minute. Returns whether a token has become invalid or has
    /// another user. In each round, a cluster gets no more requests after the first request without a response, or
    /// after 10 s. The round takes at most 20 s. Cancel: safe.
    pub async fn review_followed(&self) -> bool {
        let due = self.followed.due().into_iter();
        join_all(due.map(|(cluster, tokens)| self.review_tokens(cluster, tokens))).await.contains(&true)
    }

    /// Reviews these tokens of a cluster again. Returns whether one of the tokens has become invalid.
    async fn review_tokens(&self, cluster: ClusterName, tokens: Vec<Arc<FollowedToken>>) -> bool {
        let (cluster, is_silent) = (&cluster, &AtomicBool::new(false));
        let begun = Instant::now();
        let reviews = tokens.into_iter().map(|token| async move {
            let answer = match is_silent.load(Ordering::Relaxed) || begun.elapsed() >= REVIEW_TIMEOUT {
                true => None,
                false => {
                    token.record_review();
                    let answer = self.review_again(cluster, &token).await;
                    let answer = answer.inspect_err(|problem| {
                        is_silent.store(true, Ordering::Relaxed);
                        tracing::debug!(%cluster, problem, "the token of an open stream could not be reviewed again");
                    });
                    answer.ok()
                }
            };
            let is_lost = token.update_user(answer.as_ref().map(Option::as_ref));
            if is_lost {
                let user = &token.user().username;
                let cause = if answer.is_some() {
                    "the cluster does not know the token"
                } else {
                    "the cluster has not answered for too long"
                };
                tracing::info!(%cluster, user, said = cause, "streams end because their token is no longer valid");
            }
            is_lost
        });
        let reviews: Vec<_> = reviews.collect();
        stream::iter(reviews).buffer_unordered(FOLLOWED_AT_ONCE).fold(false, async |any, is_lost| any | is_lost).await
    }

    async fn review_again(&self, cluster: &ClusterName, token: &FollowedToken) -> Result<Option<UserInfo>, String> {
        let answer = timeout(REVIEW_TIMEOUT, self.reviewer.review(cluster, token.review_body.clone())).await;
        let answer = answer.map_err(|_| format!("no answer within {} s", REVIEW_TIMEOUT.as_secs()))??;
        parse_review(&answer, &self.reviews.audiences).map_err(|error| error.to_string())
    }

    /// Authenticates a token. `addressed` is the cluster whose own path or host the request uses, and `client` is the
    /// address of the client. Must be called within a tokio runtime.
    ///
    /// A cached token costs some 2 µs. With cached keys of the issuer, a token costs a signature check (0.05 to 0.3
    /// ms). Otherwise, all concurrent requests with the same token share one request to the issuer, or to one or two
    /// clusters. Cancel: safe; the result of a started request is still cached.
    ///
    /// # Errors
    /// [`TokenAuthenticationError`].
    pub async fn authenticate(
        &self,
        token: &[u8],
        addressed: Option<&ClusterName>,
        client: IpAddr,
    ) -> Result<Arc<Authenticated>, TokenAuthenticationError> {
        for _ in 0..TRIES {
            let rules = self.rules.load_full();
            let outcome = self.authenticate_by(&rules, token, addressed, client).await;
            // If the configuration has changed during the review, the result is not used, because the cluster's name
            // could stand for a different cluster.
            if self.rules.load().generation == rules.generation {
                return outcome;
            }
        }
        Err(TokenAuthenticationError::BrokenOff)
    }

    async fn authenticate_by(
        &self,
        rules: &Arc<Rules>,
        token: &[u8],
        addressed: Option<&ClusterName>,
        client: IpAddr,
    ) -> Result<Arc<Authenticated>, TokenAuthenticationError> {
        let context = [&rules.generation.to_le_bytes(), addressed.map_or("", ClusterName::as_str).as_bytes()];
        let key = self.cache.key(&context, token);
        if let Some(outcome) = self.cache.get(&key) {
            return outcome;
        }
        let token = token_text(token)?;
        let parsed = BearerToken::parse(token)?;
        let expires = match &parsed {
            BearerToken::Jwt(token) => self.check_claimed_expiry(token, rules)?,
            BearerToken::Opaque => None,
        };
        let verifiers = VerifierRules {
            issuers: &rules.issuers,
            token_review_cluster: self.reviews.cluster.as_ref(),
            members: &rules.members,
        };
        let addressed =
            addressed.map(|cluster| AddressedCluster { cluster, reviews_tokens: rules.reviewing.contains(cluster) });
        let order = verifiers.order(&parsed, addressed)?;
        match (&parsed, order.as_slice()) {
            (BearerToken::Jwt(token), [verifier @ Verifier::Issuer(issuer)]) => {
                self.verify(token, rules, verifier, issuer, key).await
            }
            _ => self.review(token, (&order, rules), expires, client, key).await,
        }
    }

    /// Returns the `exp` claim of a JWT. Wakes [`Self::unknown_key`] if no verifier has the token's key.
    fn check_claimed_expiry(&self, token: &Token<'_>, rules: &Rules) -> Result<Option<SystemTime>, TokenError> {
        let expires = token.unverified_expiry();
        if expires.is_some_and(|expires| expires < SystemTime::now()) {
            return Err(TokenError::Expired);
        }
        let is_of = |issuer: &JwtAuthenticator| token.unverified_issuer() == Some(issuer.issuer_url.as_str());
        let key = token.key_id();
        if key.is_some() && !rules.issuers.iter().any(is_of) && !rules.members.has(key) {
            self.unknown_key.notify_one();
        }
        Ok(expires)
    }

    async fn verify(
        &self,
        token: &Token<'_>,
        rules: &Rules,
        verifier: &Verifier<'_>,
        issuer: &JwtAuthenticator,
        key: CheckKey,
    ) -> ReviewOutcome {
        let keys = rules.keys.iter().find(|keys| keys.issuer.issuer_url == issuer.issuer_url);
        let keys = keys.ok_or(TokenAuthenticationError::BrokenOff)?;
        let (user, expires) = keys.verify(token).await?;
        let (authority, expires) = (verifier.authority(&user), Some(expires));
        let issuer = Some(Arc::clone(&keys.issuer));
        let authenticated = Arc::new(Authenticated { user, authority, expires, issuer, forgotten: 0 });
        self.cache.put(key, (Ok(Arc::clone(&authenticated)), Some(until(VERIFIED_TTL, expires))));
        Ok(authenticated)
    }

    /// Sends a token for review to the clusters of `order`, one after the other.
    async fn review(
        &self,
        token: &str,
        (order, rules): (&[Verifier<'_>], &Rules),
        expires: Option<SystemTime>,
        client: IpAddr,
        key: CheckKey,
    ) -> ReviewOutcome {
        let begin = || {
            let is_signed = matches!(order, [.., Verifier::Signer(_)]);
            let admitted = self.bounds.admit(client, is_signed)?;
            let review = Review {
                clusters: order.iter().filter_map(reviewing_cluster).collect(),
                body: review_request(token, &self.reviews.audiences),
                reviews: self.reviews.clone(),
                reviewer: Arc::clone(&self.reviewer),
                expires,
                forgotten: Arc::clone(&rules.forgotten),
            };
            Ok(review.run(admitted).boxed())
        };
        let outcome = self.cache.find(key, begin).await.map_err(TokenAuthenticationError::TooManyReviews)?;
        outcome.unwrap_or(Err(TokenAuthenticationError::BrokenOff))
    }
}

/// Returns the text of a token, and rejects tokens that are too long.
fn token_text(token: &[u8]) -> Result<&str, TokenAuthenticationError> {
    if token.len() > MAX_TOKEN {
        return Err(TokenError::Malformed("the token is longer than 32 KiB").into());
    }
    let text = std::str::from_utf8(token).ok().filter(|text| !text.is_empty());
    text.ok_or(TokenAuthenticationError::Unknown)
}

/// Returns the time for which a result is cached: `ttl`, or the time until the token's expiry if that is shorter.
fn until(ttl: Duration, expires: Option<SystemTime>) -> Duration {
    let left = expires.map(|expires| expires.duration_since(SystemTime::now()).unwrap_or_default());
    left.map_or(ttl, |left| left.min(ttl))
}

/// Returns the cluster of a verifier, and whether this cluster is the token-review cluster. Returns `None` for an
/// issuer, which needs no review.
fn reviewing_cluster(verifier: &Verifier<'_>) -> Option<(ClusterName, bool)> {
    match verifier {
        Verifier::Issuer(_) => None,
        Verifier::TokenReviewCluster(cluster) => Some(((*cluster).clone(), true)),
        Verifier::Signer(cluster) | Verifier::Member(cluster) => Some(((*cluster).clone(), false)),
    }
}

/// A review in progress. The review continues if the request that started it is cancelled.
struct Review {
    clusters: Vec<(ClusterName, bool)>,
    body: Vec<u8>,
    reviews: TokenReviews,
    reviewer: Arc<dyn TokenReviewer>,
    expires: Option<SystemTime>,
    forgotten: Arc<BTreeMap<ClusterName, u64>>,
}

impl Review {
    /// Sends the token to the clusters in order, until one of them accepts the token. If a cluster fails, the review
    /// ends, because the next cluster might return a different user for the token.
    async fn run(self, admitted: AdmittedReview) -> CachedCheck<ReviewOutcome> {
        for (cluster, is_hub) in &self.clusters {
            match self.review_token(cluster, &admitted).await {
                Ok(None) => {}
                Ok(Some(user)) => {
                    admitted.give_back();
                    let verifier =
                        if *is_hub { Verifier::TokenReviewCluster(cluster) } else { Verifier::Member(cluster) };
                    let authority = verifier.authority(&user);
                    let forgotten = self.forgotten.get(cluster).copied().unwrap_or_default();
                    let authenticated =
                        Authenticated { user, authority, expires: self.expires, issuer: None, forgotten };
                    return (Ok(Arc::new(authenticated)), Some(until(self.reviews.cache_ttl, self.expires)));
                }
                // As in kube-apiserver, a failed review is not cached.
                Err(problem) => {
                    let cluster = cluster.clone();
                    return (Err(TokenAuthenticationError::NotReviewed { cluster, problem }), None);
                }
            }
        }
        (Err(TokenAuthenticationError::Unknown), Some(self.reviews.cache_ttl))
    }

    async fn review_token(
        &self,
        cluster: &ClusterName,
        admitted: &AdmittedReview,
    ) -> Result<Option<UserInfo>, Arc<str>> {
        let _permit = admitted.begin_review(cluster).map_err(|error| error.to_string())?;
        let answer = timeout(REVIEW_TIMEOUT, self.reviewer.review(cluster, self.body.clone())).await;
        let answer = answer.map_err(|_| format!("no answer within {} s", REVIEW_TIMEOUT.as_secs()))??;
        Ok(parse_review(&answer, &self.reviews.audiences).map_err(|error| error.to_string())?)
    }
}

#[cfg(test)]
mod tests;
