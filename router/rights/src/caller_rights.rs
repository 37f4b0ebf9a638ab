//! The rights of whoever sends a request, and decisions by them: what is known is decided at once, and clusters whose
//! word counts are asked first.

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
use tributary_sharing::flow::fair_share::Exceeded;
use tributary_sharing::limits::IMPERSONATED_VALUES;

use super::actor::{Actor, Whom};
use super::basis::Basis;
use super::judged::Judged;
use super::mirror::{RightsMirror, RightsStamp};
use super::needed::Needed;
use super::remembered_actor::RememberedActor;
use super::reviews::{ASKED_TOGETHER, Question, WAITED_MAX};
use crate::authenticated::StillKnown;

/// How often clusters are asked before a decision is made by what is known then. Nine: first whether one may be
/// somebody else, then in which groups, both once more for constrained impersonation, where many groups and many extras
/// are asked about one by one after all of them, then for a whole cluster, then for its namespaces, and once more where
/// rights changed meanwhile. Both times the groups and extras are asked about a few after the other.
const ROUNDS_MAX: usize = 9 + 2 * IMPERSONATED_VALUES.div_ceil(ASKED_TOGETHER);

/// The rights of whoever sends a request. Cheap to clone.
#[derive(Clone)]
pub struct CallerRights {
    pub(super) mirror: Arc<RightsMirror>,
    pub(super) actor: Arc<Actor>,
    /// What the connection keeps of who acts; `None` where there is no connection.
    pub(super) remembered: Option<RememberedActor>,
    /// Whether the user is still known; `None` where that does not change.
    still_known: Option<StillKnown>,
    /// By what of what is known decisions are made.
    pub(super) basis: Basis,
    /// When the decision that is made was begun: what is asked for it is asked behind this.
    begun: Instant,
    /// What a decision had to know of clusters that are asked, where somebody wants to know that.
    needed: Option<Arc<Mutex<Needed>>>,
    /// Why a cluster was not asked something that had to be known for the request.
    crowded: Arc<OnceLock<Exceeded>>,
}

impl CallerRights {
    /// Those of whoever acts.
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

    /// The same, of somebody who is known as long as this says so.
    pub fn with_still_known(self, still_known: Option<StillKnown>) -> Self {
        Self { still_known, ..self }
    }

    /// The same, of a request on a connection that keeps who acts.
    pub fn remembered_by(self, remembered: Option<RememberedActor>) -> Self {
        Self { remembered, ..self }
    }

    pub(super) fn judged<'a>(&'a self, fleet: &'a FleetRights, whom: Whom) -> Judged<'a> {
        Judged::new(&self.mirror, self.basis, self.needed.as_deref(), fleet, &self.actor, whom)
    }

    /// The same by what one cluster allows now. Its rules are to be taken from the mirror after this:
    /// [`RightsMirror::basis_now`].
    pub(super) fn now_in(&self, cluster: &ClusterName) -> Self {
        Self { basis: self.mirror.basis_now(cluster, self.begun), ..self.clone() }
    }

    /// A decision by what is known now, and what it had to know.
    pub(super) fn decided<T>(&self, decide: impl FnOnce(&Self) -> T) -> (T, Needed) {
        let needed = Arc::default();
        let decided = decide(&Self { needed: Some(Arc::clone(&needed)), ..self.clone() });
        let needed = std::mem::take(&mut *needed.lock());
        (decided, needed)
    }

    /// A decision, once the clusters whose word counts have been asked. Where roles and bindings decide it is made at
    /// once; a cluster that does not answer is unknown, and all that is asked is waited for half a minute together.
    /// Where too much is being asked already for the user, the request is [crowded out](Self::crowded), and whoever
    /// goes on all the same decides by what is known. Cancelling is safe.
    pub async fn settled<T>(&self, decide: impl Fn(&Self) -> T) -> T {
        let (decided, _crowded) = self.asked_first(decide).await;
        decided
    }

    /// The same, for whoever does not go on where too much is being asked already. Cancelling is safe.
    ///
    /// # Errors
    /// [`Exceeded`] where just this decision could not be asked for.
    pub async fn settled_unless_crowded<T>(&self, decide: impl Fn(&Self) -> T) -> Result<T, Exceeded> {
        match self.asked_first(decide).await {
            (decided, None) => Ok(decided),
            (_, Some(exceeded)) => Err(exceeded),
        }
    }

    /// A decision, and why something was not asked for it.
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
                // Whoever answers the request looks before it goes on.
                tokio::task::yield_now().await;
                return (decide(&rights), Some(exceeded));
            }
            if Instant::now() >= until {
                break;
            }
        }
        (decide(&rights), None)
    }

    /// The same rights by what clusters said last, where they are to be asked again.
    pub(super) fn by_last_word(&self) -> Self {
        Self { basis: Basis::Last, ..self.clone() }
    }

    /// The same rights, for what the request can do without: it is not crowded out where that is.
    pub fn by_itself(&self) -> Self {
        Self { crowded: Arc::default(), ..self.clone() }
    }

    /// What is found by them. Where it `lacks` what is not known of clusters, and some have just joined, it is found
    /// anew once it is known what may be done in these: of them that is known in a moment. Cancelling is as safe as it
    /// is of what finds it.
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

    /// Why a cluster was not asked what had to be known for the request, where that is so: nothing else is to be
    /// answered then, since it is not the cluster that keeps silent.
    pub fn crowded(&self) -> Option<Exceeded> {
        self.crowded.get().copied()
    }

    /// Has the request be crowded out.
    #[cfg(any(test, feature = "testing"))]
    pub fn crowd(&self, exceeded: Exceeded) {
        let _is_known = self.crowded.set(exceeded);
    }

    /// Asks clusters what they have not said, and waits for it until this moment at most.
    ///
    /// # Errors
    /// [`Exceeded`] where so much is being asked that the user may ask no more.
    pub(super) async fn ask_clusters(
        &self,
        questions: HashSet<(Question, u64)>,
        until: Instant,
    ) -> Result<(), Exceeded> {
        // Boxed: most requests ask nothing.
        Box::pin(self.mirror.reviews().ask_clusters(self.actor.holder(), questions, until)).await
    }

    /// Asks clusters whether what lasts is still allowed, before all that requests ask.
    pub(super) async fn confirm(&self, questions: HashSet<(Question, u64)>) {
        // Boxed: it is a part of what lasts, and there only now and then.
        Box::pin(self.mirror.reviews().confirm(self.actor.holder(), questions)).await;
    }

    /// What a decision had to know up to now, where somebody wants to know that: whether anything is to be asked first,
    /// and until when it holds.
    pub(super) fn needs(&self) -> (bool, Option<Instant>) {
        self.needed.as_ref().map_or((false, None), |needed| {
            let needed = needed.lock();
            (!needed.open.is_empty(), needed.until)
        })
    }

    /// Tells when they may have changed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.mirror.changes()
    }

    /// Whether they ask to be somebody else, whom a cluster has to let them be.
    pub fn act_as_another(&self) -> bool {
        self.actor.impersonated_user().is_some()
    }

    /// As whom they act.
    pub fn acting_name(&self) -> &str {
        self.actor.name(Whom::Acting)
    }

    /// As whom they act, with the groups by which all members know them.
    pub fn acts_as(&self) -> (String, Vec<String>) {
        let RbacUser { name, groups } = self.actor.judged(Whom::Acting);
        (name.to_owned(), groups.to_vec())
    }

    /// Whose they are.
    pub fn actor(&self) -> &Arc<Actor> {
        &self.actor
    }

    /// What tells the rights of one moment from those of another. Costs a lookup for each group.
    pub(super) fn stamp(&self) -> RightsStamp {
        let judged = |whom| self.actor.judged_by_any(whom);
        // Nearly all ask to be nobody else.
        self.mirror.stamp(judged(Whom::Acting), self.actor.impersonated_user().map(|_| judged(Whom::User)))
    }

    /// The clusters that are configured now.
    pub(super) fn clusters(&self) -> Vec<ClusterName> {
        self.mirror.clusters()
    }

    /// Why whatever they opened is over, if it is so for the user's own sake, whomever they ask to be.
    pub(super) fn over(&self) -> Option<StreamOver> {
        if self.mirror.denies(self.actor.name(Whom::User)) {
            return Some(StreamOver::Denied);
        }
        let is_known = self.still_known.as_ref().is_none_or(StillKnown::is_known);
        (!is_known).then_some(StreamOver::Withdrawn)
    }

    /// Ends once whatever they opened is over. Cancelling is safe.
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

    /// How long what lasts may last.
    pub fn max_stream_age(&self) -> Option<Duration> {
        self.mirror.max_stream_age()
    }
}

impl fmt::Debug for CallerRights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerRights").field("user", &self.acting_name()).finish_non_exhaustive()
    }
}
