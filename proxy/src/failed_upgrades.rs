//! Limits each user's upgrade requests that end without a 101.
//!
//! An upgrade request needs a separate connection. If the cluster does not switch protocols, the TLS handshake was
//! wasted. A client can cause such a request at any path with two additional headers. So each user has a token bucket
//! for upgrade requests. The token is returned when the cluster switches protocols.
//!
//! Upgrades that a [kube-apiserver switches itself](is_switched_by_kube_apiserver) need no token. Such upgrades may
//! fail for good reasons: kubectl retries such an upgrade after a 403, and after an attempt with WebSockets that the
//! server does not support.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;

use http::{HeaderValue, Method, Uri};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};
use tributary_apimachinery::{RequestInfo, ServiceAccount};
use tributary_limiters::{SpentTokens, TokenRate};

use crate::credentials::identity::RequestIdentity;

/// Size of a user's token bucket. 64: a user may open the consoles of 64 virtual machines at once. If all 64 fail, the
/// user still gets the cluster's error for each of them.
const BURST: NonZeroU32 = NonZeroU32::new(64).unwrap();

/// Interval between two new tokens: 250 ms, four per second. A handshake takes about 1 ms of a kube-apiserver's core,
/// so a user can cause less than a hundredth of a core.
const REFILL_INTERVAL: Duration = Duration::from_millis(250);

/// Maximal number of users with separate buckets. 256 buckets take a few KiB. More users have spent tokens only if
/// someone creates many users. All users beyond the maximum share one bucket.
const USERS_MAX: usize = 256;

/// Maximal number of separate buckets for users that the cluster authenticates. Half of all buckets: an account that
/// can create ServiceAccounts can create any number of users, and must not take the buckets of other users.
const MEMBERS_USERS_MAX: usize = USERS_MAX / 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum BucketOwner {
    User(u64),
    /// Shared bucket of users that the cluster authenticates, if `MEMBERS_USERS_MAX` buckets are already in use.
    SharedByMemberUsers,
    /// Shared bucket of other users, if `USERS_MAX` buckets are already in use.
    Others,
}

/// Token buckets for one member's upgrade requests without a 101.
pub(crate) struct UpgradeLimiter {
    hasher: RandomState,
    rate: TokenRate,
    /// The token buckets of the owners that have taken tokens. An owner without an entry has a full bucket.
    buckets: Mutex<HashMap<BucketOwner, SpentTokens>>,
}

impl UpgradeLimiter {
    pub(crate) fn new() -> Self {
        let rate = TokenRate::with_interval(REFILL_INTERVAL, BURST);
        Self { hasher: RandomState::new(), rate, buckets: Mutex::default() }
    }

    /// Takes a token for an upgrade request with this identity. `None` if the request needs no token. In personal mode
    /// all requests use the bucket of one user, including impersonated requests.
    ///
    /// # Errors
    /// The time until the next token.
    pub(crate) fn begin(
        &self,
        identity: &RequestIdentity,
        method: &Method,
        uri: &Uri,
    ) -> Result<Option<UpgradeToken<'_>>, Duration> {
        if is_switched_by_kube_apiserver(method, uri) {
            return Ok(None);
        }
        let (name, is_members) = name_user(identity);
        self.acquire(self.hasher.hash_one(name), is_members).map(Some)
    }

    fn acquire(&self, user: u64, is_members: bool) -> Result<UpgradeToken<'_>, Duration> {
        let (mut buckets, now) = (self.buckets.lock(), Instant::now());
        let owner = bucket_owner(&mut buckets, user, is_members, now);
        buckets.entry(owner).or_default().try_spend(self.rate, NonZeroU32::MIN, now)?;
        Ok(UpgradeToken { limiter: self, owner, is_spent: false })
    }
}

/// Returns the owner of a user's bucket: the user, or a shared bucket if the maximal number of buckets is reached.
fn bucket_owner(
    buckets: &mut HashMap<BucketOwner, SpentTokens>,
    user: u64,
    is_members: bool,
    now: Instant,
) -> BucketOwner {
    let (max, shared) = match is_members {
        true => (MEMBERS_USERS_MAX, BucketOwner::SharedByMemberUsers),
        false => (USERS_MAX, BucketOwner::Others),
    };
    let own = BucketOwner::User(user);
    if buckets.len() >= max && !buckets.contains_key(&own) {
        buckets.retain(|_, bucket| !bucket.is_full(now));
        if buckets.len() >= max {
            return shared;
        }
    }
    own
}

/// Returns the name or token that identifies a user, and whether the member decides which such users exist: users with
/// tokens of their own, and ServiceAccounts.
fn name_user(identity: &RequestIdentity) -> (Option<&[u8]>, bool) {
    match identity {
        RequestIdentity::Member | RequestIdentity::ClientImpersonation(_) | RequestIdentity::UidOnly => (None, false),
        RequestIdentity::Impersonate(user) | RequestIdentity::ByImpersonator(user) => {
            let name = user.headers().get("impersonate-user").map(HeaderValue::as_bytes);
            (name, name.is_some_and(is_service_account))
        }
        RequestIdentity::UserToken { authorization, .. } => (Some(authorization.as_bytes()), true),
    }
}

fn is_service_account(name: &[u8]) -> bool {
    std::str::from_utf8(name).ok().and_then(ServiceAccount::of_user).is_some()
}

/// Returns whether kube-apiserver itself switches the connection to the new protocol, on behalf of a kubelet or a
/// workload.
fn is_switched_by_kube_apiserver(method: &Method, uri: &Uri) -> bool {
    let Ok(info) = RequestInfo::parse(method.as_str(), uri.path(), uri.query()) else { return false };
    let Some(request) = info.resource().filter(|request| request.resource.group.is_empty()) else { return false };
    matches!(
        (&*request.resource.resource, request.subresource.as_deref()),
        ("pods", Some("attach" | "exec" | "portforward")) | ("pods" | "services" | "nodes", Some("proxy"))
    )
}

/// A token for one upgrade request. Dropping an unspent token gives it back to the user's bucket.
#[must_use]
pub(crate) struct UpgradeToken<'a> {
    limiter: &'a UpgradeLimiter,
    owner: BucketOwner,
    is_spent: bool,
}

impl UpgradeToken<'_> {
    /// Spends the token. Called after a connection was established, even if the client does not wait for the response.
    pub(crate) fn spend(&mut self) {
        self.is_spent = true;
    }

    /// Gives the token back to the user's bucket, because the member has switched protocols.
    pub(crate) fn give_back(mut self) {
        self.is_spent = false;
    }
}

impl Drop for UpgradeToken<'_> {
    fn drop(&mut self) {
        if let (false, Some(bucket)) = (self.is_spent, self.limiter.buckets.lock().get_mut(&self.owner)) {
            bucket.give_back(self.limiter.rate, NonZeroU32::MIN, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::identity::{Impersonation, user_authorization};

    const BURST: usize = super::BURST.get() as usize;

    /// Spends all tokens of a user on upgrade requests without a 101. Returns the number of spent tokens.
    fn spend_all(limiter: &UpgradeLimiter, user: u64, is_members: bool) -> usize {
        let spend = || limiter.acquire(user, is_members).map(|mut token| token.spend());
        std::iter::from_fn(|| spend().ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn user_is_allowed_64_failed_upgrades_and_then_four_per_second() {
        let limiter = UpgradeLimiter::new();
        assert_eq!(spend_all(&limiter, 1, false), BURST);
        assert_eq!(limiter.acquire(1, false).err(), Some(REFILL_INTERVAL));
        assert_eq!(spend_all(&limiter, 2, false), BURST, "another user");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(spend_all(&limiter, 1, false), 4);
        tokio::time::advance(REFILL_INTERVAL * super::BURST.get()).await;
        assert_eq!(spend_all(&limiter, 1, false), BURST);
    }

    #[tokio::test(start_paused = true)]
    async fn upgrade_that_succeeds_or_never_connects_does_not_reduce_the_upgrade_limit() {
        let limiter = UpgradeLimiter::new();
        for _ in 0..10 * BURST {
            let mut token = limiter.acquire(1, false).unwrap();
            token.spend();
            token.give_back();
            drop(limiter.acquire(1, false).unwrap());
        }
        assert_eq!(spend_all(&limiter, 1, false), BURST, "no more than that are saved up");
    }

    #[tokio::test(start_paused = true)]
    async fn users_above_the_maximum_number_share_one_upgrade_limit() {
        let (limiter, users) = (UpgradeLimiter::new(), USERS_MAX as u64);
        for user in 0..users {
            assert_eq!(spend_all(&limiter, user, false), BURST);
        }
        let others: usize = (users..100 * users).map(|user| spend_all(&limiter, user, false)).sum();
        assert_eq!((others, limiter.buckets.lock().len()), (BURST, USERS_MAX + 1));
        // After this time all buckets are full again. The limiter removes full buckets when it needs space for a new
        // bucket.
        tokio::time::advance(REFILL_INTERVAL * super::BURST.get()).await;
        assert_eq!(spend_all(&limiter, users, false), BURST);
        assert_eq!(limiter.buckets.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn users_authenticated_by_a_member_leave_upgrade_limits_to_other_users() {
        let (limiter, users) = (UpgradeLimiter::new(), 10 * USERS_MAX as u64);
        let all: usize = (0..users).map(|user| spend_all(&limiter, user, true)).sum();
        assert_eq!(all, BURST * (MEMBERS_USERS_MAX + 1), "half of the room, and one shared bucket");
        assert_eq!(spend_all(&limiter, users, false), BURST);
        assert!(limiter.buckets.lock().len() <= MEMBERS_USERS_MAX + 2);
    }

    #[test]
    fn upgrade_that_kube_apiserver_completes_itself_is_not_limited() {
        for (path, is_switched) in [
            ("/api/v1/namespaces/n/pods/p/exec?command=sh", true),
            ("/api/v1/namespaces/n/pods/p/attach", true),
            ("/api/v1/namespaces/n/pods/p/portforward", true),
            ("/api/v1/namespaces/n/pods/http:p:80/proxy/ws", true),
            ("/api/v1/namespaces/n/services/s:80/proxy", true),
            ("/api/v1/nodes/n/proxy/exec/n/p/c", true),
            ("/api/v1/namespaces/n/pods/p/log", false),
            ("/api/v1/namespaces/n/services/s/exec", false),
            ("/api/v1/namespaces/n/pods?watch=1", false),
            ("/apis/example.com/v1/namespaces/n/pods/p/exec", false),
            ("/apis/subresources.kubevirt.io/v1/namespaces/n/virtualmachineinstances/v/console", false),
            ("/v1/subscribe", false),
        ] {
            for method in [Method::GET, Method::POST] {
                assert_eq!(is_switched_by_kube_apiserver(&method, &path.parse().unwrap()), is_switched, "{path}");
            }
        }
    }

    #[test]
    fn service_accounts_and_token_users_are_treated_as_authenticated_by_a_member() {
        let impersonated = |user| RequestIdentity::Impersonate(Impersonation::new(user, [], None, []).unwrap());
        for (identity, expected) in [
            (impersonated("system:serviceaccount:n:s"), true),
            (impersonated("jürgen"), false),
            (
                RequestIdentity::UserToken { authorization: user_authorization(b"t").unwrap(), impersonation: None },
                true,
            ),
            (RequestIdentity::Member, false),
        ] {
            assert_eq!(name_user(&identity).1, expected, "{identity:?}");
        }
    }
}
