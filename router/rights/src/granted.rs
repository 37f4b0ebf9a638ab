//! What a member grants a caller; and what opened a stream that it answers, followed: whether its rules still grant all
//! of it.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tributary_answers::stream_over::StreamOver;
use tributary_apimachinery::{ClusterName, RequestInfo, or_never};
use tributary_authorization::Attributes;

use super::actor::Whom;
use super::basis::Basis;
use super::caller_rights::CallerRights;
use super::mirror_state::BEHIND_MAX;
use super::needed::Needed;
use super::unconfirmed::CONFIRMED_WITHIN;

impl CallerRights {
    /// Whether a cluster lets the caller do something with a request, by its roles and bindings or by its word; `None`
    /// where that is not known.
    pub(super) fn grants(
        &self,
        cluster: &ClusterName,
        request: &Attributes<'_>,
        asked: &Attributes<'_>,
    ) -> Option<bool> {
        let fleet = self.mirror.compiled();
        self.there_for(&fleet, cluster, request, || self.judged(&fleet, Whom::Acting).allows(cluster, asked))
    }

    /// The same rights by what a cluster says to what it is asked from `begun` on, where they are not known by excess:
    /// that may be the caller's own doing, and keeps nothing open. `None` where nothing is too much.
    fn by_word_in(&self, cluster: &ClusterName, begun: Instant) -> Option<Self> {
        if !self.is_unknown_by_excess(&self.mirror.compiled(), cluster) {
            return None;
        }
        let mut by_word = self.clone();
        by_word.basis = Basis::Asked(begun);
        Some(by_word)
    }
}

/// What somebody was granted in one cluster: each of the verbs that opened what lasts.
///
/// The member has let them, whatever the mirror says: it may not know yet, and other authorizers than the member's
/// rules may have. So the grant is lost once the mirror has seen it and sees it no more. A member that is asked is
/// asked again as often as its answers hold: a minute after it says no, nothing lasts any more. Nor does what it has
/// not confirmed a minute after what it said ceased to count.
///
/// Where it is not known for excess alone, the member is asked as well, whatever decides there. One that does not
/// answer that for long enough is believed no longer, seen or not.
pub struct FollowedGrant {
    rights: CallerRights,
    cluster: ClusterName,
    verbs: Vec<FollowedVerb>,
    asked: RequestInfo,
    changes: watch::Receiver<u64>,
    /// When this began: what the member is asked for it alone is asked behind that.
    begun: Instant,
    /// Since when the member has not said what is not known for excess.
    unsaid_since: Option<Instant>,
    /// Since when it has not been known whether the member that is asked grants what it has granted.
    unconfirmed: Option<Instant>,
}

/// What has become of a grant.
#[derive(Default)]
struct GrantChange {
    /// One of its verbs is not granted any more.
    is_lost: bool,
    /// The member has not said yet what is not known for excess.
    is_unsaid: bool,
    /// It is not known, in another way, of a verb that was granted.
    is_unknown: bool,
}

struct FollowedVerb {
    verb: &'static str,
    /// Whether the mirror, or the member, has said that it is granted.
    is_seen: bool,
}

impl FollowedGrant {
    /// Follows it from before the member is asked: what it loses from now on is noticed.
    pub fn new(
        rights: &CallerRights,
        cluster: &ClusterName,
        verbs: impl IntoIterator<Item = &'static str>,
        asked: &RequestInfo,
    ) -> Self {
        let (rights, cluster, asked) = (rights.clone(), cluster.clone(), asked.clone());
        let verbs = verbs.into_iter().map(|verb| FollowedVerb { verb, is_seen: false }).collect();
        let changes = rights.changes();
        let (begun, unsaid_since, unconfirmed) = (Instant::now(), None, None);
        let mut grant = Self { rights, cluster, verbs, asked, changes, begun, unsaid_since, unconfirmed };
        grant.look();
        grant
    }

    /// Ends once it is lost, or it is over for the user's own sake: where rights are not known it is not, but for
    /// excess. Cancelling is safe.
    pub async fn lost(&mut self) -> StreamOver {
        loop {
            self.changes.mark_unchanged();
            if let Some(why) = self.rights.over() {
                return why;
            }
            let (change, Needed { open, until }) = self.look();
            let end = self.end(&change, !open.is_empty() || until.is_some());
            if change.is_lost || end.is_some_and(|end| end <= Instant::now()) {
                return StreamOver::RightLost;
            }
            let (rights, is_to_be_asked) = (self.rights.clone(), !open.is_empty());
            let asked_or_over = async {
                match is_to_be_asked {
                    true => rights.confirm(open).await,
                    false => or_never(until.map(sleep_until)).await,
                }
            };
            tokio::select! {
                () = asked_or_over => {}
                () = or_never(end.map(sleep_until)) => {}
                // The mirror ends with the process alone.
                changed = self.changes.changed() => if changed.is_err() {
                    std::future::pending().await
                },
            }
        }
    }

    /// When it ends unless the member says something, by what is not known for now.
    fn end(&mut self, change: &GrantChange, is_asked: bool) -> Option<Instant> {
        let now = Instant::now();
        self.unsaid_since = change.is_unsaid.then(|| self.unsaid_since.unwrap_or(now));
        self.unconfirmed = (change.is_unknown && is_asked).then(|| self.unconfirmed.unwrap_or(now));
        let unsaid = self.unsaid_since.map(|since| since + BEHIND_MAX);
        let unconfirmed = self.unconfirmed.map(|since| since + CONFIRMED_WITHIN);
        unsaid.into_iter().chain(unconfirmed).min()
    }

    /// What has become of the verbs, and what has to be known for that. Costs a lookup of the user's and the groups'
    /// grants in the cluster for each.
    fn look(&mut self) -> (GrantChange, Needed) {
        let Self { rights, cluster, verbs, asked, begun, .. } = self;
        let (asked, begun) = (Attributes::from_request(asked), *begun);
        rights.decided(|rights| {
            let by_word = rights.by_word_in(cluster, begun);
            let (is_by_word, rights) = (by_word.is_some(), by_word.as_ref().unwrap_or(rights));
            let mut change = GrantChange::default();
            // All are looked at, so that all are asked at once.
            for FollowedVerb { verb, is_seen } in verbs {
                let granted = rights.grants(cluster, &asked, &asked.with_verb(verb));
                let was_seen = std::mem::replace(is_seen, *is_seen || granted == Some(true));
                change.is_lost |= granted == Some(false) && was_seen;
                change.is_unsaid |= granted.is_none() && is_by_word;
                change.is_unknown |= granted.is_none() && was_seen && !is_by_word;
            }
            change
        })
    }
}
