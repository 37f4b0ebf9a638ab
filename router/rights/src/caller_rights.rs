//! Rights of the sender of a request, and decisions about them: at once by known facts, and after questions to clusters
//! that decide by themselves.

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

/// Rounds of questions before a decision uses the known facts. Nine: impersonation of the user, then of its groups,
/// both again for constrained impersonation (many groups and extras are asked one by one after all of them), then the
/// whole cluster, then its namespaces, and once more if rights changed meanwhile.
const ROUNDS_MAX: usize = 9 + 2 * IMPERSONATED_VALUES.div_ceil(ASKED_TOGETHER);

/// Rights of the sender of a request. Cheap to clone.
#[derive(Clone)]
pub struct CallerRights {
    pub(super) mirror: Arc<RightsMirror>,
    pub(super) actor: Arc<Actor>,
    /// Actor of the connection's last request; `None` without a connection.
    pub(super) remembered: Option<RememberedActor>,
    /// Whether the user is still known; `None` where that does not change.
    still_known: Option<StillKnown>,
    /// Facts that decisions use.
    pub(super) basis: Basis,
    /// Begin of the current decision. Answers to questions from before do not count.
    begun: Instant,
    /// Facts that a decision needed, if the caller wants to know them.
    needed: Option<Arc<Mutex<Needed>>>,
    /// Reason for which a necessary question was not sent.
    crowded: Arc<OnceLock<Exceeded>>,
}

impl CallerRights {
    /// Rights of an actor.
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

    /// Adds the function that tells whether the sender is still known.
    pub fn with_still_known(self, still_known: Option<StillKnown>) -> Self {
        Self { still_known, ..self }
    }

    /// Adds the connection's cache of the actor.
    pub fn remembered_by(self, remembered: Option<RememberedActor>) -> Self {
        Self { remembered, ..self }
    }

    pub(super) fn judged<'a>(&'a self, fleet: &'a FleetRights, whom: Whom) -> Judged<'a> {
        Judged::new(&self.mirror, self.basis, self.needed.as_deref(), fleet, &self.actor, whom)
    }

    /// Rights by the facts that hold now in one cluster. Take its rules from the mirror after this call:
    /// [`RightsMirror::basis_now`].
    pub(super) fn now_in(&self, cluster: &ClusterName) -> Self {
        Self { basis: self.mirror.basis_now(cluster, self.begun), ..self.clone() }
    }

    /// Decides by known facts, and returns the facts that the decision needed.
    pub(super) fn decided<T>(&self, decide: impl FnOnce(&Self) -> T) -> (T, Needed) {
        let needed = Arc::default();
        let decided = decide(&Self { needed: Some(Arc::clone(&needed)), ..self.clone() });
        let needed = std::mem::take(&mut *needed.lock());
        (decided, needed)
    }

    /// Decides after the necessary questions have been answered. Without open questions it decides at once. A cluster
    /// that does not answer is unknown. All questions together take at most half a minute. If the user has too many
    /// open questions, the request is [crowded out](Self::crowded), and the decision uses the known facts. Cancellation
    /// is safe.
    pub async fn settled<T>(&self, decide: impl Fn(&Self) -> T) -> T {
        let (decided, _crowded) = self.asked_first(decide).await;
        decided
    }

    /// Like `settled`, for callers that give up if the user has too many open questions. Cancellation is safe.
    ///
    /// # Errors
    /// [`Exceeded`] if a question of this decision was not sent.
    pub async fn settled_unless_crowded<T>(&self, decide: impl Fn(&Self) -> T) -> Result<T, Exceeded> {
        match self.asked_first(decide).await {
            (decided, None) => Ok(decided),
            (_, Some(exceeded)) => Err(exceeded),
        }
    }

    /// Decides after questions, and returns the reason for an unsent question as well.
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
                // Lets the request's own future run before the next round.
                tokio::task::yield_now().await;
                return (decide(&rights), Some(exceeded));
            }
            if Instant::now() >= until {
                break;
            }
        }
        (decide(&rights), None)
    }

    /// Rights by the last answers of clusters, if they have to be asked again.
    pub(super) fn by_last_word(&self) -> Self {
        Self { basis: Basis::Last, ..self.clone() }
    }

    /// Rights for an optional part of a request, which does not crowd the request out.
    pub fn by_itself(&self) -> Self {
        Self { crowded: Arc::default(), ..self.clone() }
    }

    /// Runs `find`. If the result `lacks` unknown clusters and some clusters have just joined, waits until their rights
    /// are known and runs `find` again. As safe to cancel as `find`.
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

    /// Reason for which a necessary question was not sent. The request is then refused with it, because the cluster is
    /// not to blame.
    pub fn crowded(&self) -> Option<Exceeded> {
        self.crowded.get().copied()
    }

    /// Has the request be crowded out.
    #[cfg(any(test, feature = "testing"))]
    pub fn crowd(&self, exceeded: Exceeded) {
        let _is_known = self.crowded.set(exceeded);
    }

    /// Asks clusters, and waits until this moment at most.
    ///
    /// # Errors
    /// [`Exceeded`] if the user may have no further questions.
    pub(super) async fn ask_clusters(
        &self,
        questions: HashSet<(Question, u64)>,
        until: Instant,
    ) -> Result<(), Exceeded> {
        // Boxed: most requests ask nothing.
        Box::pin(self.mirror.reviews().ask_clusters(self.actor.holder(), questions, until)).await
    }

    /// Asks clusters whether a stream is still allowed, before all questions of requests.
    pub(super) async fn confirm(&self, questions: HashSet<(Question, u64)>) {
        // Boxed, because streams call it rarely and live long.
        Box::pin(self.mirror.reviews().confirm(self.actor.holder(), questions)).await;
    }

    /// Needs of the decision so far: whether questions are open, and until when the answers hold.
    pub(super) fn needs(&self) -> (bool, Option<Instant>) {
        self.needed.as_ref().map_or((false, None), |needed| {
            let needed = needed.lock();
            (!needed.open.is_empty(), needed.until)
        })
    }

    /// Notifies about possible changes of rights.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.mirror.changes()
    }

    /// Whether the request impersonates a user.
    pub fn act_as_another(&self) -> bool {
        self.actor.impersonated_user().is_some()
    }

    /// Name of the acting user.
    pub fn acting_name(&self) -> &str {
        self.actor.name(Whom::Acting)
    }

    /// Name of the acting user, with the groups that all clusters see.
    pub fn acts_as(&self) -> (String, Vec<String>) {
        let RbacUser { name, groups } = self.actor.judged(Whom::Acting);
        (name.to_owned(), groups.to_vec())
    }

    /// Actor of these rights.
    pub fn actor(&self) -> &Arc<Actor> {
        &self.actor
    }

    /// Stamp of the rights at this moment. Costs a lookup for each group.
    pub(super) fn stamp(&self) -> RightsStamp {
        let judged = |whom| self.actor.judged_by_any(whom);
        // Nearly all requests have no impersonation.
        self.mirror.stamp(judged(Whom::Acting), self.actor.impersonated_user().map(|_| judged(Whom::User)))
    }

    /// The clusters that are configured now.
    pub(super) fn clusters(&self) -> Vec<ClusterName> {
        self.mirror.clusters()
    }

    /// Reason for the end of all streams of the sender, if there is one.
    pub(super) fn over(&self) -> Option<StreamOver> {
        if self.mirror.denies(self.actor.name(Whom::User)) {
            return Some(StreamOver::Denied);
        }
        let is_known = self.still_known.as_ref().is_none_or(StillKnown::is_known);
        (!is_known).then_some(StreamOver::Withdrawn)
    }

    /// Waits for the end of all streams of the sender. Cancellation is safe.
    pub async fn gone(&self) -> StreamOver {
        let mut changes = self.changes();
        loop {
            changes.mark_unchanged();
            if let Some(why) = self.over() {
                return why;
            }
            // The mirror ends with the process alone.
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Longest duration of a stream.
    pub fn max_stream_age(&self) -> Option<Duration> {
        self.mirror.max_stream_age()
    }
}

impl fmt::Debug for CallerRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerRights").field("user", &self.acting_name()).finish_non_exhaustive()
    }
}
