//! Repeated TokenReviews of the tokens of open streams. A stream ends when its cluster revokes the token, even if the
//! token expires much later or never.
//!
//! An open stream keeps a [`FollowedToken`]. All streams with the same token and user share one `FollowedToken`, which
//! contains the only copy of the token's text.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::ClusterName;

use crate::check_cache::CheckKey;
use crate::user::UserInfo;

/// The minimum time between two reviews of a token.
const REVIEW_INTERVAL: Duration = Duration::from_secs(60);

/// The time for which the last TokenReview of a cluster stays valid while the cluster does not answer. One hour: an
/// upgrade of the cluster must not close `kubectl exec` sessions, and a revoked token must not stay usable for a day.
const LAST_REVIEW_VALID_FOR: Duration = Duration::from_secs(60 * 60);

/// The token of an open stream. The token is reviewed again until the last `Arc` of the `FollowedToken` is dropped.
pub struct FollowedToken {
    /// The cluster that vouches for the token.
    pub(crate) cluster: ClusterName,
    /// The body of each TokenReview request as JSON, which contains the token's text.
    pub(crate) review_body: Vec<u8>,
    /// The user in the first TokenReview's response.
    user: UserInfo,
    is_lost: AtomicBool,
    times: Mutex<TokenTimes>,
}

/// `last_due`: the time when the token was last due for a review. `last_reviewed`: the time of the last request.
/// `confirmed_at`: the time when the cluster last confirmed the token.
#[derive(Clone, Copy)]
struct TokenTimes {
    last_due: Instant,
    last_reviewed: Instant,
    confirmed_at: Instant,
}

impl fmt::Debug for FollowedToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_known = self.is_known();
        formatter.debug_struct("FollowedToken").field("cluster", &self.cluster).field("is_known", &is_known).finish()
    }
}

impl FollowedToken {
    fn new(cluster: ClusterName, review_body: Vec<u8>, user: UserInfo) -> Self {
        let (now, is_lost) = (Instant::now(), AtomicBool::new(false));
        Self {
            cluster,
            review_body,
            user,
            is_lost,
            times: Mutex::new(TokenTimes { last_due: now, last_reviewed: now, confirmed_at: now }),
        }
    }

    /// Returns whether the last TokenReview confirmed the token and its user.
    pub fn is_known(&self) -> bool {
        !self.is_lost.load(Ordering::Acquire)
    }

    /// Returns whether the token is due for a review. If it is, the token is not due again for a minute, even if no
    /// review is sent. Without this pause, each round would include all tokens of a cluster that does not answer.
    fn is_due(&self, now: Instant) -> bool {
        let mut times = self.times.lock();
        let is_due = self.is_known() && now.duration_since(times.last_due) >= REVIEW_INTERVAL;
        if is_due {
            times.last_due = now;
        }
        is_due
    }

    /// Records the time at which a TokenReview is sent to the cluster.
    pub(crate) fn record_review(&self) {
        self.times.lock().last_reviewed = Instant::now();
    }

    /// Applies the result of a TokenReview: a user, no user (`Some(None)`), or no response (`None`). Returns whether
    /// this result makes the token invalid.
    pub(crate) fn update_user(&self, answer: Option<Option<&UserInfo>>) -> bool {
        let (mut times, now) = (self.times.lock(), Instant::now());
        let is_lost = match answer {
            Some(named) => !named.is_some_and(|named| is_same(named, &self.user)),
            None => now.duration_since(times.confirmed_at) >= LAST_REVIEW_VALID_FOR,
        };
        if is_lost {
            return !self.is_lost.swap(true, Ordering::AcqRel);
        }
        if answer.is_some() {
            times.confirmed_at = now;
        }
        false
    }

    pub(crate) fn user(&self) -> &UserInfo {
        &self.user
    }
}

/// Returns whether two users are equal. The order of the groups is ignored, because a verifier may list the groups in
/// any order.
fn is_same(one: &UserInfo, other: &UserInfo) -> bool {
    let groups = |user: &UserInfo| user.groups.iter().cloned().collect::<BTreeSet<_>>();
    (&one.username, &one.uid, &one.extra) == (&other.username, &other.uid, &other.extra) && groups(one) == groups(other)
}

#[derive(Default)]
pub(crate) struct FollowedTokens(Mutex<HashMap<CheckKey, Weak<FollowedToken>>>);

impl FollowedTokens {
    /// Adds a token that a cluster has just reviewed. `key` identifies the pair of token and user.
    pub(crate) fn follow(
        &self,
        key: CheckKey,
        cluster: &ClusterName,
        user: &UserInfo,
        review_body: impl FnOnce() -> Vec<u8>,
    ) -> Arc<FollowedToken> {
        let mut by_key = self.0.lock();
        // A revoked token may become valid again. A new stream with the token then needs a new entry, because the old
        // entry stays invalid.
        if let Some(followed) = by_key.get(&key).and_then(Weak::upgrade).filter(|followed| followed.is_known()) {
            return followed;
        }
        let followed = Arc::new(FollowedToken::new(cluster.clone(), review_body(), user.clone()));
        by_key.insert(key, Arc::downgrade(&followed));
        followed
    }

    /// Marks all followed tokens of a cluster as invalid. Returns whether the cluster had followed tokens.
    pub(crate) fn mark_lost(&self, cluster: &ClusterName) -> bool {
        let by_key = self.0.lock();
        let of_cluster = by_key.values().filter_map(Weak::upgrade).filter(|followed| followed.cluster == *cluster);
        of_cluster.fold(false, |any, followed| any | !followed.is_lost.swap(true, Ordering::AcqRel))
    }

    /// Returns the tokens that are due for a review, by cluster. The least recently reviewed tokens come first, so that
    /// tokens without a response cannot starve other tokens. Removes the tokens that no stream uses.
    pub(crate) fn due(&self) -> BTreeMap<ClusterName, Vec<Arc<FollowedToken>>> {
        let (mut by_cluster, now) = (BTreeMap::<_, Vec<_>>::new(), Instant::now());
        self.0.lock().retain(|_, followed| {
            let Some(followed) = followed.upgrade() else { return false };
            if followed.is_due(now) {
                by_cluster.entry(followed.cluster.clone()).or_default().push(followed);
            }
            true
        });
        for tokens in by_cluster.values_mut() {
            tokens.sort_by_cached_key(|token| token.times.lock().last_reviewed);
        }
        by_cluster
    }
}
