//! Rights of the sender of a request. A decision uses facts in memory: mirrored roles and bindings, and results of
//! access reviews. Some functions first send missing access reviews to the clusters.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tributary_answers::termination_reason::TerminationReason;
use tributary_apimachinery::{ClusterName, UserInfo};
use tributary_authorization::FleetRights;
use tributary_sharing::flow::fair_semaphore::Exceeded;
use tributary_sharing::limits::IMPERSONATED_VALUES;

use super::actor::{Actor, UserSelector};
use super::allowed_facts::AllowedFacts;
use super::decision_reviews::DecisionReviews;
use super::mirror::{RightsMirror, RightsStamp};
use super::remembered_actor::RememberedActor;
use super::reviews::{AccessReview, PARALLEL_REVIEWS_MAX, REVIEW_TIMEOUT};
use super::user_decisions::UserDecisions;
use crate::authenticated::CredentialValidity;

/// Maximum number of rounds of access reviews for one decision. One round checks up to [`PARALLEL_REVIEWS_MAX`] reviews
/// in parallel. Nine rounds are for:
/// - impersonation of the user and of the groups (2),
/// - constrained impersonation (2),
/// - rights in the whole cluster,
/// - rights in its namespaces,
/// - repetitions after changed rights.
///
/// The other rounds are for single groups and extras of constrained impersonation.
const ROUNDS_MAX: usize = 9 + 2 * IMPERSONATED_VALUES.div_ceil(PARALLEL_REVIEWS_MAX);

/// Rights of the sender of a request. Clones are cheap.
#[derive(Clone)]
pub struct CallerRights {
    pub(super) mirror: Arc<RightsMirror>,
    pub(super) actor: Arc<Actor>,
    /// The connection's cache with the actor of its previous request. `None` for a request without a connection.
    pub(super) remembered: Option<Arc<RememberedActor>>,
    /// Function that returns whether the credentials are still valid. `None` if the credentials cannot become invalid.
    credential_validity: Option<CredentialValidity>,
    pub(super) allowed_facts: AllowedFacts,
    /// Start of the current decision. A decision that needs up-to-date facts ignores older review results.
    begun: Instant,
    /// Collector for the missing reviews and the expiry time of a decision. `None` if the caller does not need them.
    decision_reviews: Option<Arc<Mutex<DecisionReviews>>>,
    /// Limit that prevented a necessary review. Empty while no limit has prevented a review.
    exceeded_limit: Arc<OnceLock<Exceeded>>,
}

impl CallerRights {
    /// Creates the rights of an actor.
    pub fn new(mirror: &Arc<RightsMirror>, actor: impl Into<Arc<Actor>>) -> Self {
        Self {
            mirror: Arc::clone(mirror),
            actor: actor.into(),
            remembered: None,
            credential_validity: None,
            allowed_facts: AllowedFacts::Cached,
            begun: Instant::now(),
            decision_reviews: None,
            exceeded_limit: Arc::default(),
        }
    }

    /// Adds the function that returns whether the sender's credentials are still valid.
    pub fn with_still_known(self, credential_validity: Option<CredentialValidity>) -> Self {
        Self { credential_validity, ..self }
    }

    /// Adds the connection's cached actor.
    pub fn remembered_by(self, remembered: Option<Arc<RememberedActor>>) -> Self {
        Self { remembered, ..self }
    }

    pub(super) fn decisions<'a>(&'a self, fleet: &'a FleetRights, user_selector: UserSelector) -> UserDecisions<'a> {
        UserDecisions::new(
            &self.mirror,
            self.allowed_facts,
            self.decision_reviews.as_deref(),
            fleet,
            &self.actor,
            user_selector,
        )
    }

    /// Returns rights for decisions that use only up-to-date facts of one cluster. Call this function before you read
    /// the cluster's rules from the mirror: see [`RightsMirror::current_facts`].
    pub(super) fn now_in(&self, cluster: &ClusterName) -> Self {
        Self { allowed_facts: self.mirror.current_facts(cluster, self.begun), ..self.clone() }
    }

    /// Decides by the facts in memory. Returns the decision, the missing reviews, and the expiry of the decision.
    pub(super) fn decision<T>(&self, decide: impl FnOnce(&Self) -> T) -> (T, DecisionReviews) {
        let decision_reviews = Arc::default();
        let decision = decide(&Self { decision_reviews: Some(Arc::clone(&decision_reviews)), ..self.clone() });
        let decision_reviews = std::mem::take(&mut *decision_reviews.lock());
        (decision, decision_reviews)
    }

    /// Decides after each necessary access review has a result. If no review is missing, the function decides at once.
    /// The rights in a cluster that does not answer are unknown. All reviews together take at most half a minute. If
    /// the user has too many open reviews, the decision uses only the facts in memory, and
    /// [`exceeded_limit`](Self::exceeded_limit) returns the limit. Cancellation is safe.
    pub async fn decide_after_reviews<T>(&self, decide: impl Fn(&Self) -> T) -> T {
        let rights = Self { begun: Instant::now(), ..self.clone() };
        let until = rights.begun + REVIEW_TIMEOUT;
        for _ in 0..ROUNDS_MAX {
            let (decision, decision_reviews) = rights.decision(&decide);
            if decision_reviews.open.is_empty() {
                return decision;
            }
            drop(decision);
            if let Err(exceeded) = rights.send_reviews(decision_reviews.open, until).await {
                let _is_known = rights.exceeded_limit.set(exceeded);
                // Lets the runtime poll the request's other futures before this future continues.
                tokio::task::yield_now().await;
                break;
            }
            if Instant::now() >= until {
                break;
            }
        }
        decide(&rights)
    }

    /// Like `decide_after_reviews`, for callers that return an error if the user has too many open reviews.
    /// Cancellation is safe.
    ///
    /// # Errors
    /// [`Exceeded`] if a limit prevented a review of this decision.
    pub async fn try_decide_after_reviews<T>(&self, decide: impl Fn(&Self) -> T) -> Result<T, Exceeded> {
        let rights = self.for_optional_part();
        let decision = rights.decide_after_reviews(decide).await;
        match rights.exceeded_limit() {
            Some(exceeded) => {
                let _is_known = self.exceeded_limit.set(exceeded);
                Err(exceeded)
            }
            None => Ok(decision),
        }
    }

    /// Returns rights that use the last result of each review, also after its expiry.
    pub(super) fn with_expired_answers(&self) -> Self {
        Self { allowed_facts: AllowedFacts::WithExpired, ..self.clone() }
    }

    /// Returns rights for an optional part of a request. If a limit prevents a review in this part, the request itself
    /// is not refused.
    pub fn for_optional_part(&self) -> Self {
        Self { exceeded_limit: Arc::default(), ..self.clone() }
    }

    /// Runs `find`. Runs `find` again if `lacks` is true for the result, because rights are unknown, and some clusters
    /// have just been added to the configuration. Before the second run, the function waits for the rights in these
    /// clusters. It is as safe to cancel as `find`.
    pub async fn with_joining<F: Future>(
        &self,
        find: impl Fn() -> F,
        lacks: impl FnOnce(&F::Output) -> bool,
    ) -> F::Output {
        let found = find().await;
        match lacks(&found) && self.mirror.joined().await {
            true => find().await,
            false => found,
        }
    }

    /// Returns the limit that prevented a necessary review. The router then refuses the request because of this limit,
    /// and does not report a failure of the cluster.
    pub fn exceeded_limit(&self) -> Option<Exceeded> {
        self.exceeded_limit.get().copied()
    }

    /// Marks the request as refused because of a limit on open reviews.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_exceeded_limit(&self, exceeded: Exceeded) {
        let _is_known = self.exceeded_limit.set(exceeded);
    }

    /// Sends access reviews, and waits for their results until `until` at most.
    ///
    /// # Errors
    /// [`Exceeded`] if the user has too many open reviews.
    pub(super) async fn send_reviews(
        &self,
        missing_reviews: HashSet<(AccessReview, u64)>,
        until: Instant,
    ) -> Result<(), Exceeded> {
        // Boxed: most requests need no review, and a box keeps their futures small.
        Box::pin(self.mirror.reviews().send_reviews(self.actor.share_key(), missing_reviews, until)).await
    }

    /// Sends the access reviews of an open stream, ahead of the reviews of requests.
    pub(super) async fn confirm(&self, missing_reviews: HashSet<(AccessReview, u64)>) {
        // Boxed, because streams rarely call this function but keep its future for a long time.
        Box::pin(self.mirror.reviews().confirm(self.actor.share_key(), missing_reviews)).await;
    }

    /// Returns whether the decision lacks review results, and the time at which the first of its results expires.
    pub(super) fn needs(&self) -> (bool, Option<Instant>) {
        self.decision_reviews.as_ref().map_or((false, None), |decision_reviews| {
            let decision_reviews = decision_reviews.lock();
            (!decision_reviews.open.is_empty(), decision_reviews.until)
        })
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.mirror.changes()
    }

    /// Returns whether the rights in some clusters are unknown, and stay unknown until an administrator repairs all
    /// these clusters. Waiting then does not help.
    pub fn stay_unknown(&self) -> bool {
        self.mirror.has_lasting_obstacle(&self.actor)
    }

    /// Returns whether the request impersonates a user.
    pub fn is_impersonating(&self) -> bool {
        self.actor.impersonated_user().is_some()
    }

    /// Returns the name of the acting user.
    pub fn acting_name(&self) -> &str {
        self.actor.name(UserSelector::Acting)
    }

    /// Returns the name and the groups of the acting user for all clusters except the cluster that verified the user.
    pub fn acts_as(&self) -> &UserInfo {
        self.actor.rbac_user(UserSelector::Acting)
    }

    /// Returns the sender of the request, with the user that the sender impersonates.
    pub fn actor(&self) -> &Arc<Actor> {
        &self.actor
    }

    /// Stamp of the current rights of the sender and the acting user. A later stamp differs if the rights have changed.
    /// Costs a lookup for each group.
    pub(super) fn stamp(&self) -> RightsStamp {
        let user = |user_selector| self.actor.rbac_user_in_any(user_selector);
        // Nearly all requests come without impersonation. The sender is then the acting user, so one lookup suffices.
        self.mirror.stamp(user(UserSelector::Acting), self.actor.impersonated_user().map(|_| user(UserSelector::User)))
    }

    pub(super) fn clusters(&self) -> Vec<ClusterName> {
        self.mirror.clusters()
    }

    /// Reason to end all streams of the sender: Tributary denies the sender, or the credentials are invalid. `None` if
    /// the streams may continue.
    pub(super) fn termination_reason(&self) -> Option<TerminationReason> {
        if self.mirror.denies(&self.actor) {
            return Some(TerminationReason::Denied);
        }
        let is_valid = self.credential_validity.as_ref().is_none_or(CredentialValidity::is_valid);
        (!is_valid).then_some(TerminationReason::Withdrawn)
    }

    /// Waits until all streams of the sender have to end, and returns the reason. Cancellation is safe.
    pub async fn wait_for_termination(&self) -> TerminationReason {
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            if let Some(why) = self.termination_reason() {
                return why;
            }
            // The channel of rights changes stays open as long as the process runs.
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns the maximum duration of a stream.
    pub fn max_stream_age(&self) -> Option<Duration> {
        self.mirror.max_stream_age()
    }
}

impl fmt::Debug for CallerRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerRights").field("user", &self.acting_name()).finish_non_exhaustive()
    }
}
