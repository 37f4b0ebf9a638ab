//! A cluster's grants to a caller, and the check during an open stream whether the grants still exist.

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
    /// Returns whether a cluster allows the caller a request, by roles and bindings or by access reviews. `None` if
    /// unknown.
    pub(super) fn grants(
        &self,
        cluster: &ClusterName,
        request: &Attributes<'_>,
        asked: &Attributes<'_>,
    ) -> Option<bool> {
        let fleet = self.mirror.compiled();
        self.there_for(&fleet, cluster, request, || self.judged(&fleet, Whom::Acting).allows(cluster, asked))
    }

    /// Rights by review results since `begun`, if the caller's rights are unknown because of too many roles or
    /// bindings: the caller may have caused the excess, which must keep no stream open. `None` without an excess.
    fn by_word_in(&self, cluster: &ClusterName, begun: Instant) -> Option<Self> {
        if !self.is_unknown_by_excess(&self.mirror.compiled(), cluster) {
            return None;
        }
        let mut by_word = self.clone();
        by_word.basis = Basis::Asked(begun);
        Some(by_word)
    }
}

/// Grants of verbs on which an open stream of a cluster depends.
///
/// The cluster itself allowed the stream. The mirror may be late, and the cluster may have further authorizers, so a
/// verb that the mirror never granted does not end the stream. The stream ends when the mirror granted the verb and no
/// longer does. A cluster that decides by access reviews gets a new review when its answer expires. Without a new
/// answer, the stream ends a minute after the last answer stops to count.
///
/// If rights are unknown because of too many roles or bindings, the cluster gets reviews, whatever its method. Without
/// an answer for five minutes, the stream ends.
pub struct FollowedGrant {
    rights: CallerRights,
    cluster: ClusterName,
    verbs: Vec<FollowedVerb>,
    asked: RequestInfo,
    changes: watch::Receiver<u64>,
    /// Start of the stream. Older review results do not count.
    begun: Instant,
    /// Time of the first unanswered review that an excess of roles or bindings made necessary.
    unsaid_since: Option<Instant>,
    /// Time since which the cluster has not confirmed the grant.
    unconfirmed: Option<Instant>,
}

#[derive(Default)]
struct GrantChange {
    /// At least one verb is not granted any more.
    is_lost: bool,
    /// A review has no answer that an excess of roles or bindings made necessary.
    is_unsaid: bool,
    /// A granted verb is unknown for a reason other than an excess of roles or bindings.
    is_unknown: bool,
}

struct FollowedVerb {
    verb: &'static str,
    /// Whether the mirror, or a review, has confirmed the grant at least once.
    is_seen: bool,
}

impl FollowedGrant {
    /// Follows a grant. Create the value before the request, so that each later loss is noticed.
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

    /// Waits for the loss of the grant, or for the end of all streams of the user. Unknown rights are no loss, except
    /// by an excess of roles or bindings. Cancellation is safe.
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
                // The sender of rights changes lives as long as the process.
                changed = self.changes.changed() => if changed.is_err() {
                    std::future::pending().await
                },
            }
        }
    }

    /// Returns the time at which the stream ends if the cluster does not answer before.
    fn end(&mut self, change: &GrantChange, is_asked: bool) -> Option<Instant> {
        let now = Instant::now();
        self.unsaid_since = change.is_unsaid.then(|| self.unsaid_since.unwrap_or(now));
        self.unconfirmed = (change.is_unknown && is_asked).then(|| self.unconfirmed.unwrap_or(now));
        let unsaid = self.unsaid_since.map(|since| since + BEHIND_MAX);
        let unconfirmed = self.unconfirmed.map(|since| since + CONFIRMED_WITHIN);
        unsaid.into_iter().chain(unconfirmed).min()
    }

    /// Checks the verbs. Returns the result and the missing reviews. Costs a lookup of the user's and groups' grants
    /// for each verb.
    fn look(&mut self) -> (GrantChange, Needed) {
        let Self { rights, cluster, verbs, asked, begun, .. } = self;
        let (asked, begun) = (Attributes::from_request(asked), *begun);
        rights.decided(|rights| {
            let by_word = rights.by_word_in(cluster, begun);
            let (is_by_word, rights) = (by_word.is_some(), by_word.as_ref().unwrap_or(rights));
            let mut change = GrantChange::default();
            // Evaluates all verbs, so that all reviews are sent together.
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
