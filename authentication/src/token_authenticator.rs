//! Whom a bearer token names: the one thing that a server asks.
//!
//! ```text
//! token ─▶ remembered? ─▶ its shape, its time ─▶ VerifierRules::order ─┬─▶ issuer: IssuerKeys, verified here
//!          (TokenCache)                          (pure)                └─▶ clusters: ReviewBounds ─▶ TokenReviewer
//! ```
//!
//! Nothing is sent for a token that is no good by its own words. A token by which something lasts is
//! [followed](crate::FollowedToken).

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

use crate::configuration::{AuthenticationConfiguration, JwtAuthenticator};
use crate::followed_tokens::{FollowedToken, FollowedTokens};
use crate::issuer_keys::{FetchDocument, IssuerError, IssuerKeys};
use crate::jwt::{MAX_TOKEN, Token, TokenError};
use crate::member_keys::MemberKeys;
use crate::review_bounds::{Admitted, ReviewBounds, TooManyReviews};
use crate::token_cache::{CachedToken, TokenCache, TokenKey};
use crate::token_review::{TokenReviewer, bytes, review_answer, review_request};
use crate::user::{Authority, UserInfo};
use crate::verifiers::{Addressed, BearerToken, TokenRefused, Verifier, VerifierRules};

/// How long a token that was verified here is not verified again: kube-apiserver's `TokenSuccessCacheTTL`. Tokens that
/// are not good are not remembered (its `TokenFailureCacheTTL` is 0): finding out costs no request.
const VERIFIED_TTL: Duration = Duration::from_secs(10);
/// How long one cluster may take for a review.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a token is authenticated while the rules change. 3: they change a few times a minute at most.
const TRIES: usize = 3;
/// How many of the tokens that are followed a cluster is asked about at once: what clients wait for goes before them.
const FOLLOWED_AT_ONCE: usize = 8;

/// Whom a token names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// The user, as the verifier said.
    pub user: UserInfo,
    /// Whose word that is.
    pub authority: Authority,
    /// When the token ends, if it says so.
    pub expires: Option<SystemTime>,
    /// By whose keys and rules, where an issuer's token was verified here.
    issuer: Option<Arc<JwtAuthenticator>>,
    /// How often the cluster that reviewed it had been forgotten then.
    forgotten: u64,
}

/// Why nobody is known by a token: each is 401. Safe to log: none holds text of the token but names of its claims.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenAuthenticationError {
    /// It cannot be good, whoever verifies it.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Its issuer's keys or rules do not take it.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// Nobody is asked.
    #[error(transparent)]
    Refused(#[from] TokenRefused),
    /// Nobody is asked just now.
    #[error(transparent)]
    TooManyReviews(#[from] TooManyReviews),
    /// A cluster could not say whether it knows the token.
    #[error("cluster {cluster} has not reviewed the token: {problem}")]
    NotReviewed {
        /// The cluster.
        cluster: ClusterName,
        /// What is wrong.
        problem: Arc<str>,
    },
    /// Whoever was asked does not know it.
    #[error("invalid bearer token")]
    Unknown,
    /// This process has failed.
    #[error("the review of the token was broken off")]
    BrokenOff,
}

/// How clusters are asked about tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenReviews {
    /// `--token-review-cluster`.
    pub cluster: Option<ClusterName>,
    /// `--api-audiences`: a token that a cluster reviews must be for one of them; empty: for that cluster itself.
    pub audiences: Vec<String>,
    /// How long an answer is remembered, whatever it is: `--authentication-token-webhook-cache-ttl`.
    pub cache_ttl: Duration,
}

impl Default for TokenReviews {
    fn default() -> Self {
        // That of API servers that delegate authentication (apiserver `options.NewDelegatingAuthenticationOptions`), as
        // this one does. kube-apiserver's own webhook has 2 min, in which a deleted ServiceAccount would go on.
        Self { cluster: None, audiences: Vec::new(), cache_ttl: Duration::from_secs(10) }
    }
}

type ReviewOutcome = Result<Arc<Authenticated>, TokenAuthenticationError>;

/// Knows users by their tokens. One per process.
pub struct TokenAuthenticator {
    reviews: TokenReviews,
    documents: Arc<dyn FetchDocument>,
    reviewer: Arc<dyn TokenReviewer>,
    rules: ArcSwap<Rules>,
    cache: Arc<TokenCache<ReviewOutcome>>,
    bounds: Arc<ReviewBounds>,
    followed: FollowedTokens,
    unknown_key: Notify,
}

/// Who may be asked. Exchanged whole; what was found under other rules is not remembered.
#[derive(Clone, Default)]
struct Rules {
    generation: u64,
    issuers: Vec<JwtAuthenticator>,
    /// The same, by the same place.
    keys: Vec<Arc<IssuerKeys>>,
    members: Arc<MemberKeys>,
    /// The members that are asked about tokens where they are addressed.
    reviewing: Arc<BTreeSet<ClusterName>>,
    /// How often the name of a member has begun to mean another cluster.
    forgotten: Arc<BTreeMap<ClusterName, u64>>,
}

impl fmt::Debug for TokenAuthenticator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenAuthenticator").field("reviews", &self.reviews).finish_non_exhaustive()
    }
}

impl TokenAuthenticator {
    /// One that knows no issuer and no member yet.
    pub fn new(reviews: TokenReviews, documents: Arc<dyn FetchDocument>, reviewer: Arc<dyn TokenReviewer>) -> Self {
        let bytes_of = |outcome: &ReviewOutcome| outcome.as_ref().map_or(0, |known| bytes(&known.user));
        let (cache, bounds, followed) = (TokenCache::new(bytes_of), ReviewBounds::new(), FollowedTokens::default());
        let (rules, unknown_key) = (ArcSwap::default(), Notify::new());
        Self { reviews, documents, reviewer, rules, cache, bounds, followed, unknown_key }
    }

    /// Takes over the issuers of a configuration. What is known of issuers that stay as they are is kept.
    pub fn set_issuers(&self, configuration: &AuthenticationConfiguration) {
        self.exchange(|rules| {
            let known = |issuer: &JwtAuthenticator| rules.keys.iter().find(|keys| *keys.issuer == *issuer).cloned();
            let new = |issuer: &JwtAuthenticator| IssuerKeys::new(issuer.clone(), Arc::clone(&self.documents));
            let keys = configuration.jwt.iter().map(|issuer| known(issuer).unwrap_or_else(|| new(issuer))).collect();
            Rules { issuers: configuration.jwt.clone(), keys, ..rules.clone() }
        });
    }

    /// Takes over the keys that members sign their ServiceAccounts' tokens with.
    pub fn set_member_keys(&self, members: MemberKeys) {
        let members = Arc::new(members);
        self.exchange(|rules| Rules { members: Arc::clone(&members), ..rules.clone() });
    }

    /// Forgets the answers and keys of a cluster whose name means another cluster by now. Whether something lasts by a
    /// token that the earlier cluster knew: such a token counts as lost.
    pub fn forget_cluster(&self, cluster: &ClusterName) -> bool {
        self.exchange(|rules| {
            let mut members = (*rules.members).clone();
            members.forget(cluster);
            let mut forgotten = (*rules.forgotten).clone();
            *forgotten.entry(cluster.clone()).or_default() += 1;
            Rules { members: Arc::new(members), forgotten: Arc::new(forgotten), ..rules.clone() }
        });
        self.followed.lose(cluster)
    }

    /// Takes over which members are asked about tokens where they are addressed.
    pub fn set_reviewing_members(&self, members: BTreeSet<ClusterName>) {
        if *self.rules.load().reviewing != members {
            let reviewing = Arc::new(members);
            self.exchange(|rules| Rules { reviewing: Arc::clone(&reviewing), ..rules.clone() });
        }
    }

    fn exchange(&self, change: impl Fn(&Rules) -> Rules) {
        self.rules.rcu(|rules| Rules { generation: rules.generation + 1, ..change(rules) });
    }

    /// Ends when a token came whose key no member was known to have: one may have a new key. Cancel: safe.
    pub async fn unknown_key(&self) {
        self.unknown_key.notified().await;
    }

    /// Whether whoever verified a token would still be asked about it: its issuer is configured as it was. A cluster
    /// that reviewed one is [asked again](Self::follow).
    pub fn still_asks(&self, known: &Authenticated) -> bool {
        let rules = self.rules.load();
        let home = known.authority.reach.home().and_then(|home| rules.forgotten.get(home));
        if known.issuer.is_none() && home.copied().unwrap_or_default() != known.forgotten {
            return false;
        }
        known.issuer.as_ref().is_none_or(|issuer| rules.issuers.contains(issuer))
    }

    /// Follows a token by which something is to last, if it was a cluster that said whose it is: as long as what this
    /// gives is kept, that cluster is asked again, [each round](Self::review_followed). Cost: some 2 µs.
    pub fn follow(&self, token: &[u8], known: &Authenticated) -> Option<Arc<FollowedToken>> {
        let cluster = known.authority.reach.home().filter(|_| known.issuer.is_none())?;
        let text = std::str::from_utf8(token).ok()?;
        let user = serde_json::to_vec(&known.user).ok()?;
        let key = self.cache.key(&[cluster.as_str().as_bytes(), &user], token);
        let question = || review_request(text, &self.reviews.audiences);
        Some(self.followed.follow(key, cluster, &known.user, question))
    }

    /// Asks clusters again about the tokens that are followed, each at most once a minute. Whether one of them is not
    /// known any more, or is somebody else's. A cluster that does not answer is asked about no more of them in this
    /// round, and one that takes its time about no more after 10 s: nobody of others waits for more than 20 s. Cancel:
    /// safe.
    pub async fn review_followed(&self) -> bool {
        let due = self.followed.due().into_iter();
        join_all(due.map(|(cluster, tokens)| self.review_of(cluster, tokens))).await.contains(&true)
    }

    /// Asks a cluster about these tokens. Whether one is lost.
    async fn review_of(&self, cluster: ClusterName, tokens: Vec<Arc<FollowedToken>>) -> bool {
        let (cluster, is_silent) = (&cluster, &AtomicBool::new(false));
        let begun = Instant::now();
        let asked = tokens.into_iter().map(|token| async move {
            let answer = match is_silent.load(Ordering::Relaxed) || begun.elapsed() >= REVIEW_TIMEOUT {
                true => None,
                false => {
                    token.is_asked();
                    let answer = self.ask_again(cluster, &token).await;
                    let answer = answer.inspect_err(|problem| {
                        is_silent.store(true, Ordering::Relaxed);
                        tracing::debug!(%cluster, problem, "a token that something lasts by is not reviewed again");
                    });
                    answer.ok()
                }
            };
            let is_lost = token.update_user(answer.as_ref().map(Option::as_ref));
            if is_lost {
                let user = &token.user().username;
                let said = if answer.is_some() { "does not know it" } else { "has not answered for too long" };
                tracing::info!(%cluster, user, said, "what was opened with a token ends");
            }
            is_lost
        });
        let asked: Vec<_> = asked.collect();
        stream::iter(asked).buffer_unordered(FOLLOWED_AT_ONCE).fold(false, async |any, is_lost| any | is_lost).await
    }

    async fn ask_again(&self, cluster: &ClusterName, token: &FollowedToken) -> Result<Option<UserInfo>, String> {
        let answer = timeout(REVIEW_TIMEOUT, self.reviewer.review(cluster, token.question.clone())).await;
        let answer = answer.map_err(|_| format!("no answer within {} s", REVIEW_TIMEOUT.as_secs()))??;
        review_answer(&answer, &self.reviews.audiences).map_err(|error| error.to_string())
    }

    /// Whom a token names. `addressed` is the cluster whose own path or host the request addresses, `client` where the
    /// request comes from. Must be called within a tokio runtime.
    ///
    /// Cost: some 2 µs where the token is remembered, a signature (0.05 to 0.3 ms) where an issuer's keys are known,
    /// else a request to the issuer or to one or two clusters, which is shared by all who ask with that token at the
    /// time. Cancel: safe; what was asked is still remembered.
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
            // A cluster that has answered meanwhile may have been replaced by another of its name.
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
        let token = readable(token)?;
        let parsed = BearerToken::parse(token)?;
        let expires = match &parsed {
            BearerToken::Jwt(token) => self.glance_at(token, rules)?,
            BearerToken::Opaque => None,
        };
        let verifiers = VerifierRules {
            issuers: &rules.issuers,
            token_review_cluster: self.reviews.cluster.as_ref(),
            members: &rules.members,
        };
        let addressed =
            addressed.map(|cluster| Addressed { cluster, reviews_tokens: rules.reviewing.contains(cluster) });
        let order = verifiers.order(&parsed, addressed)?;
        match (&parsed, order.as_slice()) {
            (BearerToken::Jwt(token), [verifier @ Verifier::Issuer(issuer)]) => {
                self.verify(token, rules, verifier, issuer, key).await
            }
            _ => self.review(token, (&order, rules), expires, client, key).await,
        }
    }

    /// What a JWT says of itself: when it ends. Without a member that has its key they are to be asked for theirs.
    fn glance_at(&self, token: &Token<'_>, rules: &Rules) -> Result<Option<SystemTime>, TokenError> {
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

    /// Verifies a token by its issuer's keys.
    async fn verify(
        &self,
        token: &Token<'_>,
        rules: &Rules,
        verifier: &Verifier<'_>,
        issuer: &JwtAuthenticator,
        key: TokenKey,
    ) -> ReviewOutcome {
        let keys = rules.keys.iter().find(|keys| keys.issuer.issuer_url == issuer.issuer_url);
        let keys = keys.ok_or(TokenAuthenticationError::BrokenOff)?;
        let verified = keys.verify(token).await?;
        let (authority, expires) = (verifier.authority(&verified.user), Some(verified.expires));
        let issuer = Some(Arc::clone(&keys.issuer));
        let known = Arc::new(Authenticated { user: verified.user, authority, expires, issuer, forgotten: 0 });
        self.cache.put(key, (Ok(Arc::clone(&known)), Some(until(VERIFIED_TTL, expires))));
        Ok(known)
    }

    /// Has clusters review a token, in this order.
    async fn review(
        &self,
        token: &str,
        (order, rules): (&[Verifier<'_>], &Rules),
        expires: Option<SystemTime>,
        client: IpAddr,
        key: TokenKey,
    ) -> ReviewOutcome {
        let begin = || {
            let is_signed = matches!(order, [.., Verifier::Signer(_)]);
            let admitted = self.bounds.admit(client, is_signed)?;
            let review = Review {
                clusters: order.iter().filter_map(in_own_words).collect(),
                body: review_request(token, &self.reviews.audiences),
                reviews: self.reviews.clone(),
                reviewer: Arc::clone(&self.reviewer),
                expires,
                forgotten: Arc::clone(&rules.forgotten),
            };
            Ok(review.carry_out(admitted).boxed())
        };
        let outcome = self.cache.find(key, begin).await.map_err(TokenAuthenticationError::TooManyReviews)?;
        outcome.unwrap_or(Err(TokenAuthenticationError::BrokenOff))
    }
}

/// The text of a token that may be one.
fn readable(token: &[u8]) -> Result<&str, TokenAuthenticationError> {
    if token.len() > MAX_TOKEN {
        return Err(TokenError::Malformed("it is too long").into());
    }
    // Nobody has the token that is none.
    let text = std::str::from_utf8(token).ok().filter(|text| !text.is_empty());
    text.ok_or(TokenAuthenticationError::Unknown)
}

/// For how long something is remembered of a token that ends.
fn until(ttl: Duration, expires: Option<SystemTime>) -> Duration {
    let left = expires.map(|expires| expires.duration_since(SystemTime::now()).unwrap_or_default());
    left.map_or(ttl, |left| left.min(ttl))
}

/// A cluster that reviews, and whether it is the token-review cluster. Issuers review nothing.
fn in_own_words(verifier: &Verifier<'_>) -> Option<(ClusterName, bool)> {
    match verifier {
        Verifier::Issuer(_) => None,
        Verifier::TokenReviewCluster(cluster) => Some(((*cluster).clone(), true)),
        Verifier::Signer(cluster) | Verifier::Member(cluster) => Some(((*cluster).clone(), false)),
    }
}

/// A review that is on its way, which needs nothing of whoever asked for it.
struct Review {
    clusters: Vec<(ClusterName, bool)>,
    body: Vec<u8>,
    reviews: TokenReviews,
    reviewer: Arc<dyn TokenReviewer>,
    expires: Option<SystemTime>,
    forgotten: Arc<BTreeMap<ClusterName, u64>>,
}

impl Review {
    /// Asks until one knows the token. A cluster that cannot say so ends it: whom the next one knows is somebody else.
    async fn carry_out(self, admitted: Admitted) -> CachedToken<ReviewOutcome> {
        for (cluster, is_hub) in &self.clusters {
            match self.review_token(cluster, &admitted).await {
                Ok(None) => {}
                Ok(Some(user)) => {
                    admitted.give_back();
                    let verifier =
                        if *is_hub { Verifier::TokenReviewCluster(cluster) } else { Verifier::Member(cluster) };
                    let authority = verifier.authority(&user);
                    let forgotten = self.forgotten.get(cluster).copied().unwrap_or_default();
                    let known = Authenticated { user, authority, expires: self.expires, issuer: None, forgotten };
                    return (Ok(Arc::new(known)), Some(until(self.reviews.cache_ttl, self.expires)));
                }
                // As in kube-apiserver, that nothing was found out is not remembered.
                Err(problem) => {
                    let cluster = cluster.clone();
                    return (Err(TokenAuthenticationError::NotReviewed { cluster, problem }), None);
                }
            }
        }
        (Err(TokenAuthenticationError::Unknown), Some(self.reviews.cache_ttl))
    }

    async fn review_token(&self, cluster: &ClusterName, admitted: &Admitted) -> Result<Option<UserInfo>, Arc<str>> {
        let _place = admitted.begin_at(cluster).map_err(|error| error.to_string())?;
        let answer = timeout(REVIEW_TIMEOUT, self.reviewer.review(cluster, self.body.clone())).await;
        let answer = answer.map_err(|_| format!("no answer within {} s", REVIEW_TIMEOUT.as_secs()))??;
        Ok(review_answer(&answer, &self.reviews.audiences).map_err(|error| error.to_string())?)
    }
}

#[cfg(test)]
mod tests;
