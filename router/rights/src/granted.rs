//! Rights that a cluster grants to a caller, and the check during an open stream whether the cluster still grants them.

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tributary_answers::termination_reason::TerminationReason;
use tributary_apimachinery::{ClusterName, RequestInfo, or_pending};
use tributary_authorization::Attributes;

use super::actor::UserSelector;
use super::allowed_facts::AllowedFacts;
use super::caller_rights::CallerRights;
use super::decision_reviews::DecisionReviews;
use super::mirror_state::BEHIND_MAX;
use super::unconfirmed::CONFIRMED_WITHIN;

impl CallerRights {
    /// Returns whether a cluster allows the caller to make the `requested` request, by roles and bindings or by access
    /// reviews. The cluster must also be visible for `request`. `None` if unknown.
    pub(super) fn grants(
        &self,
        cluster: &ClusterName,
        request: &Attributes<'_>,
        requested: &Attributes<'_>,
    ) -> Option<bool> {
        let fleet = self.mirror.compiled();
        self.if_visible(&fleet, cluster, request, || {
            self.decisions(&fleet, UserSelector::Acting).allows(cluster, requested)
        })
    }

    /// Returns rights that use only results of reviews since `begun`, for a caller with more roles or bindings than
    /// Tributary reads. Without these reviews, a user could keep a stream open by creating many bindings. `None` for a
    /// caller within the limits.
    fn by_fresh_reviews(&self, cluster: &ClusterName, begun: Instant) -> Option<Self> {
        if !self.is_unknown_by_excess(&self.mirror.compiled(), cluster) {
            return None;
        }
        let mut reviewed = self.clone();
        reviewed.allowed_facts = AllowedFacts::ReviewedSince(begun);
        Some(reviewed)
    }
}

/// Verbs that a cluster grants to a caller, and on which an open stream depends.
///
/// The cluster itself allowed the stream. The mirror may be late, and the cluster may have other authorizers, so a verb
/// that the mirror has never granted does not end the stream. The stream ends when the mirror has granted a verb and no
/// longer grants it. A cluster that decides by access reviews gets a new review when its last answer expires. Without a
/// new answer, the stream ends a minute after the expiry of the last answer.
///
/// If the rights are unknown because of too many roles or bindings, the cluster gets reviews even if it decides by
/// roles. If the cluster answers no review for five minutes, the stream ends.
pub struct FollowedGrant {
    rights: CallerRights,
    cluster: ClusterName,
    verbs: Vec<FollowedVerb>,
    requested: RequestInfo,
    changes: watch::Receiver<u64>,
    /// Start of the stream. Results of earlier reviews are ignored.
    begun: Instant,
    /// Time of the first unanswered review that is necessary because of too many roles or bindings.
    unanswered_since: Option<Instant>,
    /// Time since which the cluster has not confirmed the granted verbs.
    unconfirmed: Option<Instant>,
}

#[derive(Default)]
struct GrantChange {
    /// The cluster no longer grants a verb.
    is_lost: bool,
    /// The cluster has not answered a review that is necessary because of too many roles or bindings.
    is_unanswered: bool,
    /// It is unknown whether the cluster still grants a verb, for a reason other than too many roles or bindings.
    is_unknown: bool,
}

struct FollowedVerb {
    verb: &'static str,
    /// Whether the mirror, or a review, has granted the verb at least once.
    is_seen: bool,
}

impl FollowedGrant {
    /// Follows the grant of these verbs. Create the value before the request is sent, so that each later loss is
    /// noticed.
    pub fn new(
        rights: &CallerRights,
        cluster: &ClusterName,
        verbs: impl IntoIterator<Item = &'static str>,
        requested: &RequestInfo,
    ) -> Self {
        let (rights, cluster, requested) = (rights.clone(), cluster.clone(), requested.clone());
        let verbs = verbs.into_iter().map(|verb| FollowedVerb { verb, is_seen: false }).collect();
        let changes = rights.changes();
        let (begun, unanswered_since, unconfirmed) = (Instant::now(), None, None);
        let mut grant = Self { rights, cluster, verbs, requested, changes, begun, unanswered_since, unconfirmed };
        grant.look();
        grant
    }

    /// Waits until the cluster no longer grants a verb, or until all streams of the user have to end. A cluster that
    /// does not answer reviews for too long is treated as if it had removed the right. Cancellation is safe.
    pub async fn lost(&mut self) -> TerminationReason {
        loop {
            self.changes.mark_unchanged();
            if let Some(why) = self.rights.termination_reason() {
                return why;
            }
            let (change, DecisionReviews { open, until }) = self.look();
            let end = self.end(&change, !open.is_empty() || until.is_some());
            if change.is_lost || end.is_some_and(|end| end <= Instant::now()) {
                return TerminationReason::RightLost;
            }
            let (rights, has_open_reviews) = (self.rights.clone(), !open.is_empty());
            let confirmed_or_due = async {
                match has_open_reviews {
                    true => rights.confirm(open).await,
                    false => or_pending(until.map(sleep_until)).await,
                }
            };
            tokio::select! {
                () = confirmed_or_due => {}
                () = or_pending(end.map(sleep_until)) => {}
                // The channel of rights changes stays open as long as the process runs.
                changed = self.changes.changed() => if changed.is_err() {
                    std::future::pending().await
                },
            }
        }
    }

    /// Returns the time at which the stream ends unless the cluster answers before.
    fn end(&mut self, change: &GrantChange, has_reviews: bool) -> Option<Instant> {
        let now = Instant::now();
        self.unanswered_since = change.is_unanswered.then(|| self.unanswered_since.unwrap_or(now));
        self.unconfirmed = (change.is_unknown && has_reviews).then(|| self.unconfirmed.unwrap_or(now));
        let unanswered = self.unanswered_since.map(|since| since + BEHIND_MAX);
        let unconfirmed = self.unconfirmed.map(|since| since + CONFIRMED_WITHIN);
        unanswered.into_iter().chain(unconfirmed).min()
    }

    /// Checks whether the verbs are granted. Returns the result and the missing reviews. Costs a lookup of the grants
    /// of the user and of each group, for each verb.
    fn look(&mut self) -> (GrantChange, DecisionReviews) {
        let Self { rights, cluster, verbs, requested, begun, .. } = self;
        let (requested, begun) = (Attributes::from_request(requested), *begun);
        rights.decision(|rights| {
            let reviewed = rights.by_fresh_reviews(cluster, begun);
            let (is_by_fresh_reviews, rights) = (reviewed.is_some(), reviewed.as_ref().unwrap_or(rights));
            let mut change = GrantChange::default();
            // Evaluates all verbs, so that all reviews are sent together.
            for FollowedVerb { verb, is_seen } in verbs {
                let granted = rights.grants(cluster, &requested, &requested.with_verb(verb));
                let was_seen = std::mem::replace(is_seen, *is_seen || granted == Some(true));
                change.is_lost |= granted == Some(false) && was_seen;
                change.is_unanswered |= granted.is_none() && is_by_fresh_reviews;
                change.is_unknown |= granted.is_none() && was_seen && !is_by_fresh_reviews;
            }
            change
        })
    }
}
