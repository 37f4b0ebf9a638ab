//! Repeated reviews of the tokens of open streams. A cluster that has reviewed a token is asked again, so that a stream
//! ends when the cluster revokes its token, even if the token expires much later or never.
//!
//! A stream holds a [`FollowedToken`] as long as it is open. There is one for each token and user, however many streams
//! there are, and the token's text is stored nowhere else.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tributary_apimachinery::ClusterName;

use crate::token_cache::TokenKey;
use crate::user::UserInfo;

/// The minimum time between two reviews of a token.
const ASKED_EACH: Duration = Duration::from_secs(60);

/// The time for which the last answer of a cluster stays valid while the cluster cannot answer. An hour: an upgrade of
/// the cluster must not close shells, and a token that was revoked in the meantime must not stay usable for a day.
const HOLDS_FOR: Duration = Duration::from_secs(60 * 60);

/// The token of an open stream. It is reviewed again as long as someone holds the `Arc`.
pub struct FollowedToken {
    /// The cluster that vouches for the token.
    pub(crate) cluster: ClusterName,
    /// The TokenReview, which contains the token's text.
    pub(crate) question: Vec<u8>,
    /// The user that the first review named.
    user: UserInfo,
    is_lost: AtomicBool,
    said: Mutex<TokenTimes>,
}

/// The times when the token last was due, when its cluster was last asked, and when the cluster last confirmed it.
#[derive(Clone, Copy)]
struct TokenTimes {
    turn: Instant,
    asked: Instant,
    known: Instant,
}

impl fmt::Debug for FollowedToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_known = self.is_known();
        formatter.debug_struct("FollowedToken").field("cluster", &self.cluster).field("is_known", &is_known).finish()
    }
}

impl FollowedToken {
    fn new(cluster: ClusterName, question: Vec<u8>, user: UserInfo) -> Self {
        let (now, is_lost) = (Instant::now(), AtomicBool::new(false));
        Self { cluster, question, user, is_lost, said: Mutex::new(TokenTimes { turn: now, asked: now, known: now }) }
    }

    /// Whether the last review confirmed the token and its user.
    pub fn is_known(&self) -> bool {
        !self.is_lost.load(Ordering::Acquire)
    }

    /// Whether the token is due for a review. If it is, it is next due in a minute, even if its cluster is not asked
    /// now: a cluster that does not answer is not asked about all of its tokens.
    fn is_due(&self, now: Instant) -> bool {
        let mut said = self.said.lock();
        let is_due = self.is_known() && now.duration_since(said.turn) >= ASKED_EACH;
        if is_due {
            said.turn = now;
        }
        is_due
    }

    /// Records that the cluster is being asked about the token.
    pub(crate) fn record_review(&self) {
        self.said.lock().asked = Instant::now();
    }

    /// Applies an answer of the cluster: a user, no user (`Some(None)`), or no answer (`None`). Returns whether the
    /// token is lost from now on.
    pub(crate) fn update_user(&self, answer: Option<Option<&UserInfo>>) -> bool {
        let (mut said, now) = (self.said.lock(), Instant::now());
        let is_lost = match answer {
            Some(named) => !named.is_some_and(|named| is_same(named, &self.user)),
            None => now.duration_since(said.known) >= HOLDS_FOR,
        };
        if is_lost {
            return !self.is_lost.swap(true, Ordering::AcqRel);
        }
        if answer.is_some() {
            said.known = now;
        }
        false
    }

    /// The user that the first review named.
    pub(crate) fn user(&self) -> &UserInfo {
        &self.user
    }
}

/// Whether two users are equal for every rule. A verifier may list the groups in any order.
fn is_same(one: &UserInfo, other: &UserInfo) -> bool {
    let groups = |user: &UserInfo| user.groups.iter().cloned().collect::<BTreeSet<_>>();
    (&one.username, &one.uid, &one.extra) == (&other.username, &other.uid, &other.extra) && groups(one) == groups(other)
}

/// The tokens of all open streams.
#[derive(Default)]
pub(crate) struct FollowedTokens(Mutex<HashMap<TokenKey, Weak<FollowedToken>>>);

impl FollowedTokens {
    /// Follows a token that a cluster has just reviewed. `key` identifies the pair of token and user.
    pub(crate) fn follow(
        &self,
        key: TokenKey,
        cluster: &ClusterName,
        user: &UserInfo,
        question: impl FnOnce() -> Vec<u8>,
    ) -> Arc<FollowedToken> {
        let mut by_key = self.0.lock();
        // A token that was lost may be valid again; then it gets a new entry.
        if let Some(known) = by_key.get(&key).and_then(Weak::upgrade).filter(|known| known.is_known()) {
            return known;
        }
        let followed = Arc::new(FollowedToken::new(cluster.clone(), question(), user.clone()));
        by_key.insert(key, Arc::downgrade(&followed));
        followed
    }

    /// Marks the followed tokens of a cluster as lost. Returns whether the cluster had such tokens.
    pub(crate) fn lose(&self, cluster: &ClusterName) -> bool {
        let by_key = self.0.lock();
        let of_cluster = by_key.values().filter_map(Weak::upgrade).filter(|followed| followed.cluster == *cluster);
        of_cluster.fold(false, |any, followed| any | !followed.is_lost.swap(true, Ordering::AcqRel))
    }

    /// The tokens that are due for a review, by cluster. The least recently reviewed come first, so that tokens without
    /// an answer cannot starve others. Removes the tokens that no stream holds any more.
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
            tokens.sort_by_cached_key(|token| token.said.lock().asked);
        }
        by_cluster
    }
}
