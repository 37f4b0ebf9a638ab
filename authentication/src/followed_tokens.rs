//! Tokens by which something lasts, and that a cluster has reviewed: it is asked about them again, so that what was
//! opened with one ends when the cluster no longer knows it, long before the token's own end, if it has any.
//!
//! A stream follows its token as long as it lasts: there is one for each token and user, however many streams, and
//! nobody else keeps the token's text.

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

/// How long a token is not asked about again.
const ASKED_EACH: Duration = Duration::from_secs(60);

/// How long what a cluster said last holds while it cannot say anything: nobody loses a shell because a cluster is
/// upgraded, and a token that was revoked meanwhile has not a day.
const HOLDS_FOR: Duration = Duration::from_secs(60 * 60);

/// A token by which something lasts. Whoever holds it has it followed.
pub struct FollowedToken {
    /// The cluster that vouches.
    pub(crate) cluster: ClusterName,
    /// The question about it, which has the token's text.
    pub(crate) question: Vec<u8>,
    /// Whom it named.
    user: UserInfo,
    is_lost: AtomicBool,
    said: Mutex<TokenTimes>,
}

/// When it was a token's turn, when its cluster was asked, and when that said that it knows the token.
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

    /// Whether its cluster knew it the last time, as the same user.
    pub fn is_known(&self) -> bool {
        !self.is_lost.load(Ordering::Acquire)
    }

    /// Whether it is its turn now. Then its next turn is in a minute, whether or not its cluster is asked: one that is
    /// silent is not asked about all of its tokens.
    fn is_due(&self, now: Instant) -> bool {
        let mut said = self.said.lock();
        let is_due = self.is_known() && now.duration_since(said.turn) >= ASKED_EACH;
        if is_due {
            said.turn = now;
        }
        is_due
    }

    /// Notes that its cluster is being asked about it.
    pub(crate) fn is_asked(&self) {
        self.said.lock().asked = Instant::now();
    }

    /// Takes over what the cluster says of it: whom it names, nobody, or nothing (`None`). Whether it is lost by that.
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

    /// Whom it named.
    pub(crate) fn user(&self) -> &UserInfo {
        &self.user
    }
}

/// Whether two are one to every rule. A verifier may say groups in any order.
fn is_same(one: &UserInfo, other: &UserInfo) -> bool {
    let groups = |user: &UserInfo| user.groups.iter().cloned().collect::<BTreeSet<_>>();
    (&one.username, &one.uid, &one.extra) == (&other.username, &other.uid, &other.extra) && groups(one) == groups(other)
}

/// The tokens that are followed.
#[derive(Default)]
pub(crate) struct FollowedTokens(Mutex<HashMap<TokenKey, Weak<FollowedToken>>>);

impl FollowedTokens {
    /// Follows a token of which a cluster has just said that it is a user's. `key` tells apart what is another token,
    /// or another user.
    pub(crate) fn follow(
        &self,
        key: TokenKey,
        cluster: &ClusterName,
        user: &UserInfo,
        question: impl FnOnce() -> Vec<u8>,
    ) -> Arc<FollowedToken> {
        let mut by_key = self.0.lock();
        // One that was lost is known again.
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

    /// Those that clusters are to be asked about now, by cluster; those first that were not asked about for longest, so
    /// that some of which the cluster says nothing keep no others from their turn for ever. Forgets those that nobody
    /// follows any more.
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
