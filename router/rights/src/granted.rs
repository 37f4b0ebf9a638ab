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
    /// Returns whether a cluster allows the caller a request, by roles and bindings or by access reviews. `None` if
    /// unknown.
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

    /// Rights by the results of reviews since `begun`, for a caller with more roles or bindings than Tributary reads.
    /// Without these reviews, a caller could keep a stream open by creating many bindings. `None` if the caller has
    /// fewer.
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
/// that the mirror never granted does not end the stream. The stream ends when the mirror granted a verb and grants it
/// no longer. A cluster that decides by access reviews gets a new review when its last answer expires. Without a new
/// answer, the stream ends a minute after the expiry of the last answer.
///
/// If the rights are unknown because of too many roles or bindings, the cluster gets reviews, whatever its method. If
/// the cluster answers none for five minutes, the stream ends.
pub struct FollowedGrant {
    rights: CallerRights,
    cluster: ClusterName,
    verbs: Vec<FollowedVerb>,
    requested: RequestInfo,
    changes: watch::Receiver<u64>,
    /// Start of the stream. Results of earlier reviews do not count.
    begun: Instant,
    /// Time of the first unanswered review that is necessary because of too many roles or bindings.
    unanswered_since: Option<Instant>,
    /// Start of the time in which the cluster has not confirmed the granted verbs.
    unconfirmed: Option<Instant>,
}

#[derive(Default)]
struct GrantChange {
    /// At least one verb is granted no longer.
    is_lost: bool,
    /// The cluster has not answered a review that is necessary because of too many roles or bindings.
    is_unanswered: bool,
    /// Whether a granted verb is still granted is unknown, for a reason other than too many roles or bindings.
    is_unknown: bool,
}

struct FollowedVerb {
    verb: &'static str,
    /// Whether the mirror, or a review, has granted the verb at least once.
    is_seen: bool,
}

impl FollowedGrant {
    /// Follows the grant of these verbs. Create the value before the request, so that each later loss is noticed.
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

    /// Waits until the cluster grants a verb no longer, or until all streams of the user have to end. Unknown rights
    /// are a loss only if the cause is too many roles or bindings. Cancellation is safe.
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

    /// Returns the time at which the stream ends if the cluster does not answer before.
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
