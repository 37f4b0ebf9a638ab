//! Rights of the sender of a request. A decision uses the known facts. If access reviews are missing, some functions
//! first send them to the clusters.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tributary_answers::stream_over::StreamOver;
use tributary_apimachinery::ClusterName;
use tributary_authorization::{FleetRights, RbacUser};
use tributary_sharing::flow::fair_semaphore::Exceeded;
use tributary_sharing::limits::IMPERSONATED_VALUES;

use super::actor::{Actor, Whom};
use super::basis::Basis;
use super::judged::Judged;
use super::mirror::{RightsMirror, RightsStamp};
use super::needed::Needed;
use super::remembered_actor::RememberedActor;
use super::reviews::{ASKED_TOGETHER, Question, WAITED_MAX};
use crate::authenticated::StillKnown;

/// Maximum number of rounds of access reviews for one decision. Nine rounds are necessary for: impersonation of the
/// user and of the groups (2), constrained impersonation (2), rights in the whole cluster, rights in its namespaces,
/// and repetitions after changed rights. The other rounds are for single groups and extras of constrained
/// impersonation, of which one round checks [`ASKED_TOGETHER`].
const ROUNDS_MAX: usize = 9 + 2 * IMPERSONATED_VALUES.div_ceil(ASKED_TOGETHER);

/// Rights of the sender of a request. Clones are cheap.
#[derive(Clone)]
pub struct CallerRights {
    pub(super) mirror: Arc<RightsMirror>,
    pub(super) actor: Arc<Actor>,
    /// The actor of the previous request of the same connection. `None` for a request without a connection.
    pub(super) remembered: Option<RememberedActor>,
    /// Function that returns whether the credentials are still valid. `None` if the credentials cannot become invalid.
    still_known: Option<StillKnown>,
    pub(super) basis: Basis,
    /// Start of the current decision. A decision by current facts ignores older review results.
    begun: Instant,
    /// Collects the missing reviews and the expiry times of a decision. `None` if the caller does not need them.
    needed: Option<Arc<Mutex<Needed>>>,
    /// Limit that prevented a necessary review. Unset while no limit prevented a review.
    crowded: Arc<OnceLock<Exceeded>>,
}

impl CallerRights {
    /// Creates the rights of an actor.
    pub fn new(mirror: &Arc<RightsMirror>, actor: impl Into<Arc<Actor>>) -> Self {
        Self {
            mirror: Arc::clone(mirror),
            actor: actor.into(),
            remembered: None,
            still_known: None,
            basis: Basis::Held,
            begun: Instant::now(),
            needed: None,
            crowded: Arc::default(),
        }
    }

    /// Adds the function that returns whether the sender's credentials are still valid.
    pub fn with_still_known(self, still_known: Option<StillKnown>) -> Self {
        Self { still_known, ..self }
    }

    /// Adds the connection's cached actor.
    pub fn remembered_by(self, remembered: Option<RememberedActor>) -> Self {
        Self { remembered, ..self }
    }

    pub(super) fn judged<'a>(&'a self, fleet: &'a FleetRights, whom: Whom) -> Judged<'a> {
        Judged::new(&self.mirror, self.basis, self.needed.as_deref(), fleet, &self.actor, whom)
    }

    /// Returns rights for decisions by current facts of one cluster alone. Call this function before you read the
    /// cluster's rules from the mirror: see [`RightsMirror::basis_now`].
    pub(super) fn now_in(&self, cluster: &ClusterName) -> Self {
        Self { basis: self.mirror.basis_now(cluster, self.begun), ..self.clone() }
    }

    /// Decides by the known facts. Returns the decision, the missing reviews, and the expiry of the decision.
    pub(super) fn decided<T>(&self, decide: impl FnOnce(&Self) -> T) -> (T, Needed) {
        let needed = Arc::default();
        let decided = decide(&Self { needed: Some(Arc::clone(&needed)), ..self.clone() });
        let needed = std::mem::take(&mut *needed.lock());
        (decided, needed)
    }

    /// Decides after each necessary access review has a result. If no review is missing, the function decides at once.
    /// The rights in a cluster without an answer are unknown. All reviews together take at most half a minute. If the
    /// user has too many open reviews, the request is marked as [crowded out](Self::crowded), and the decision uses the
    /// known facts. Cancellation is safe.
    pub async fn settled<T>(&self, decide: impl Fn(&Self) -> T) -> T {
        let (decided, _crowded) = self.asked_first(decide).await;
        decided
    }

    /// Like `settled`, for callers that need no decision if the user has too many open reviews. Cancellation is safe.
    ///
    /// # Errors
    /// [`Exceeded`] if a limit prevented a review of this decision.
    pub async fn settled_unless_crowded<T>(&self, decide: impl Fn(&Self) -> T) -> Result<T, Exceeded> {
        match self.asked_first(decide).await {
            (decided, None) => Ok(decided),
            (_, Some(exceeded)) => Err(exceeded),
        }
    }

    /// Sends the missing reviews and then decides. Returns the decision, and the limit that prevented a review.
    async fn asked_first<T>(&self, decide: impl Fn(&Self) -> T) -> (T, Option<Exceeded>) {
        let rights = Self { begun: Instant::now(), ..self.clone() };
        let until = rights.begun + WAITED_MAX;
        for _ in 0..ROUNDS_MAX {
            let (decided, needed) = rights.decided(&decide);
            if needed.open.is_empty() {
                return (decided, None);
            }
            drop(decided);
            if let Err(exceeded) = rights.ask_clusters(needed.open, until).await {
                let _is_known = rights.crowded.set(exceeded);
                // Lets the runtime poll the request's other futures before the next round.
                tokio::task::yield_now().await;
                return (decide(&rights), Some(exceeded));
            }
            if Instant::now() >= until {
                break;
            }
        }
        (decide(&rights), None)
    }

    /// Returns rights that use the last result of each review, also after its expiry.
    pub(super) fn by_last_word(&self) -> Self {
        Self { basis: Basis::Last, ..self.clone() }
    }

    /// Returns rights for an optional part of a request. If a limit prevents a review in this part, the request itself
    /// is not refused.
    pub fn by_itself(&self) -> Self {
        Self { crowded: Arc::default(), ..self.clone() }
    }

    /// Runs `find`. If `lacks` is true for the result because rights are unknown, and some clusters have just joined,
    /// waits for the rights in these clusters and runs `find` again. The function is as safe to cancel as `find`.
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
    /// and reports no failure of the cluster.
    pub fn crowded(&self) -> Option<Exceeded> {
        self.crowded.get().copied()
    }

    /// Marks the request as refused because of a limit on open reviews.
    #[cfg(any(test, feature = "testing"))]
    pub fn crowd(&self, exceeded: Exceeded) {
        let _is_known = self.crowded.set(exceeded);
    }

    /// Sends access reviews, and waits for their results until `until` at most.
    ///
    /// # Errors
    /// [`Exceeded`] if the user has too many open reviews.
    pub(super) async fn ask_clusters(
        &self,
        questions: HashSet<(Question, u64)>,
        until: Instant,
    ) -> Result<(), Exceeded> {
        // Boxed: most requests need no review, and a box keeps their futures small.
        Box::pin(self.mirror.reviews().ask_clusters(self.actor.holder(), questions, until)).await
    }

    /// Sends the access reviews of an open stream, ahead of the reviews of requests.
    pub(super) async fn confirm(&self, questions: HashSet<(Question, u64)>) {
        // Boxed, because streams call this function rarely and live long.
        Box::pin(self.mirror.reviews().confirm(self.actor.holder(), questions)).await;
    }

    /// Returns whether the decision lacks reviews, and the time at which the first of its review results expires.
    pub(super) fn needs(&self) -> (bool, Option<Instant>) {
        self.needed.as_ref().map_or((false, None), |needed| {
            let needed = needed.lock();
            (!needed.open.is_empty(), needed.until)
        })
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.mirror.changes()
    }

    /// Returns whether the request impersonates a user.
    pub fn act_as_another(&self) -> bool {
        self.actor.impersonated_user().is_some()
    }

    /// Returns the name of the acting user.
    pub fn acting_name(&self) -> &str {
        self.actor.name(Whom::Acting)
    }

    /// Returns the name of the acting user, and the groups of the user that all clusters see.
    pub fn acts_as(&self) -> (String, Vec<String>) {
        let RbacUser { name, groups } = self.actor.judged(Whom::Acting);
        (name.to_owned(), groups.to_vec())
    }

    /// Returns the sender of the request, with the user that the sender impersonates.
    pub fn actor(&self) -> &Arc<Actor> {
        &self.actor
    }

    /// Stamp of the sender's current rights. A later stamp differs if the rights have changed. Costs a lookup for each
    /// group.
    pub(super) fn stamp(&self) -> RightsStamp {
        let judged = |whom| self.actor.judged_by_any(whom);
        // Nearly all requests come without impersonation and need one lookup.
        self.mirror.stamp(judged(Whom::Acting), self.actor.impersonated_user().map(|_| judged(Whom::User)))
    }

    pub(super) fn clusters(&self) -> Vec<ClusterName> {
        self.mirror.clusters()
    }

    /// Reason to end all streams of the sender: Tributary denies the sender, or the credentials are invalid. `None` if
    /// the streams may continue.
    pub(super) fn over(&self) -> Option<StreamOver> {
        if self.mirror.denies(self.actor.name(Whom::User)) {
            return Some(StreamOver::Denied);
        }
        let is_known = self.still_known.as_ref().is_none_or(StillKnown::is_known);
        (!is_known).then_some(StreamOver::Withdrawn)
    }

    /// Waits until all streams of the sender have to end, and returns the reason. Cancellation is safe.
    pub async fn gone(&self) -> StreamOver {
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            if let Some(why) = self.over() {
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
