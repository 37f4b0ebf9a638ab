//! Limits upgrades of a user that end without 101.
//!
//! An upgrade request has a connection of its own. If the cluster does not switch, a TLS handshake was in vain, and two
//! more headers cause that at any path. So each user has a token bucket for such requests; a token is returned when the
//! cluster switches.
//!
//! Upgrades that a [kube-apiserver switches itself](is_switched_by_kube_apiserver) need no token: kubectl retries a
//! forbidden one, and one at a server without WebSockets.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;

use http::{HeaderValue, Method, Uri};
use parking_lot::Mutex;
use tokio::time::{Duration, Instant};
use tributary_apimachinery::{RequestInfo, ServiceAccount};
use tributary_limiters::{SpentTokens, TokenRate};

use crate::credentials::identity::RequestIdentity;

/// Tokens of a user. 64: a user who opens the consoles of as many virtual machines at once, all of which fail, gets the
/// reason from the cluster.
const BURST: NonZeroU32 = NonZeroU32::new(64).unwrap();

/// The time after which a token comes back. 250 ms, so four a second: a handshake is about a millisecond of a
/// kube-apiserver's core, and a user has less than a hundredth of one.
const REFILL_INTERVAL: Duration = Duration::from_millis(250);

/// Users with buckets of their own. 256, a few KiB: more users have spent tokens in the last seconds only if someone
/// creates users, and those share one bucket.
const USERS_MAX: usize = 256;

/// Limit for users that the cluster itself creates. Half: an account that can create ServiceAccounts makes any number,
/// and leaves the rest to other users.
const MEMBERS_USERS_MAX: usize = USERS_MAX / 2;

/// The owner of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum BucketOwner {
    /// A user, by a hash.
    User(u64),
    /// All users that the cluster creates, above the limit.
    MembersUsers,
    /// All other users, once the bound of users is reached.
    Others,
}

/// The upgrades of one member that are not taken up.
pub(crate) struct UpgradeLimiter {
    hasher: RandomState,
    rate: TokenRate,
    /// The buckets that may not be full.
    buckets: Mutex<HashMap<BucketOwner, SpentTokens>>,
}

impl UpgradeLimiter {
    pub(crate) fn new() -> Self {
        let rate = TokenRate::with_interval(REFILL_INTERVAL, BURST);
        Self { hasher: RandomState::new(), rate, buckets: Mutex::default() }
    }

    /// Takes a token for an upgrade with this identity; `None` if it needs none. In personal mode all requests have one
    /// user, also with impersonation.
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

/// Finds the bucket of a user: the user's own, or a shared one once the bound of users is reached.
fn bucket_owner(
    buckets: &mut HashMap<BucketOwner, SpentTokens>,
    user: u64,
    is_members: bool,
    now: Instant,
) -> BucketOwner {
    let (max, shared) = match is_members {
        true => (MEMBERS_USERS_MAX, BucketOwner::MembersUsers),
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

/// The name of a user or their token, and whether the member itself makes such users.
fn name_user(identity: &RequestIdentity) -> (Option<&[u8]>, bool) {
    match identity {
        RequestIdentity::Member | RequestIdentity::AsGiven(_) | RequestIdentity::Nameless => (None, false),
        RequestIdentity::Impersonate(user) => {
            let name = user.headers().get("impersonate-user").map(HeaderValue::as_bytes);
            (name, name.is_some_and(is_service_account))
        }
        RequestIdentity::Own(token) => (Some(token.authorization.as_bytes()), true),
    }
}

fn is_service_account(name: &[u8]) -> bool {
    std::str::from_utf8(name).ok().and_then(ServiceAccount::of_user).is_some()
}

/// Whether a kube-apiserver switches the connection itself, for a kubelet or a workload.
fn is_switched_by_kube_apiserver(method: &Method, uri: &Uri) -> bool {
    let Ok(info) = RequestInfo::parse(method.as_str(), uri.path(), uri.query()) else { return false };
    let Some(request) = info.resource().filter(|request| request.resource.group.is_empty()) else { return false };
    matches!(
        (&*request.resource.resource, request.subresource.as_deref()),
        ("pods", Some("attach" | "exec" | "portforward")) | ("pods" | "services" | "nodes", Some("proxy"))
    )
}

/// A token for one upgrade. Dropping an unspent token gives the token back to the user.
#[must_use]
pub(crate) struct UpgradeToken<'a> {
    limiter: &'a UpgradeLimiter,
    owner: BucketOwner,
    is_spent: bool,
}

impl UpgradeToken<'_> {
    /// Spends the token after a connection was made, also if the client does not wait for the answer.
    pub(crate) fn spend(&mut self) {
        self.is_spent = true;
    }

    /// The member has switched.
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
    use crate::credentials::identity::{Impersonation, OwnToken};

    const BURST: usize = super::BURST.get() as usize;

    /// Spends all tokens of a user on upgrades that the cluster does not switch. Returns the number of tokens.
    fn spend_all(limiter: &UpgradeLimiter, user: u64, is_members: bool) -> usize {
        let spend = || limiter.acquire(user, is_members).map(|mut token| token.spend());
        std::iter::from_fn(|| spend().ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_has_64_upgrades_at_once_and_four_a_second() {
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
    async fn upgrades_that_are_taken_up_or_not_connected_cost_no_token() {
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
    async fn users_beyond_the_bound_share_one_bucket() {
        let (limiter, users) = (UpgradeLimiter::new(), USERS_MAX as u64);
        for user in 0..users {
            assert_eq!(spend_all(&limiter, user, false), BURST);
        }
        let others: usize = (users..100 * users).map(|user| spend_all(&limiter, user, false)).sum();
        assert_eq!((others, limiter.buckets.lock().len()), (BURST, USERS_MAX + 1));
        // Full buckets are forgotten when there is room to be made.
        tokio::time::advance(REFILL_INTERVAL * super::BURST.get()).await;
        assert_eq!(spend_all(&limiter, users, false), BURST);
        assert_eq!(limiter.buckets.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn users_of_a_member_take_no_upgrade_tokens_from_others() {
        let (limiter, users) = (UpgradeLimiter::new(), 10 * USERS_MAX as u64);
        let all: usize = (0..users).map(|user| spend_all(&limiter, user, true)).sum();
        assert_eq!(all, BURST * (MEMBERS_USERS_MAX + 1), "half of the room, and one shared bucket");
        assert_eq!(spend_all(&limiter, users, false), BURST);
        assert!(limiter.buckets.lock().len() <= MEMBERS_USERS_MAX + 2);
    }

    #[test]
    fn upgrades_that_a_kube_apiserver_switches_need_no_token() {
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
    fn service_accounts_and_users_with_own_tokens_belong_to_the_member() {
        let impersonated = |user| RequestIdentity::Impersonate(Impersonation::new(user, [], None, []).unwrap());
        for (identity, expected) in [
            (impersonated("system:serviceaccount:n:s"), true),
            (impersonated("jürgen"), false),
            (RequestIdentity::Own(OwnToken::new(b"t", None).unwrap()), true),
            (RequestIdentity::Member, false),
        ] {
            assert_eq!(name_user(&identity).1, expected, "{identity:?}");
        }
    }
}
