//! The clusters that have an object of a name, as far as Tributary knows.

use std::sync::Arc;
use std::time::Duration;

use tributary_answers::refusal::{Refusal, Trouble};
use tributary_apimachinery::{ClusterName, Object};
use tributary_fleet::topology::Cluster;
use tributary_sharing::flow::fair_semaphore::Portion;
use tributary_sharing::flow::holder::Holder;
use tributary_views::view::standing::Standing;

use crate::caller::CallerKey;

/// The cluster that has an object, and the object as last seen; `None` where it has no version (a ComponentStatus,
/// for example).
pub(crate) type FoundObject = (Arc<Cluster>, Option<Arc<Object>>);

/// Where an object of this name is.
#[derive(Clone, Default)]
pub(crate) struct Located {
    /// The clusters that have an object of the name, with the object as last seen.
    pub(crate) found: Vec<FoundObject>,
    /// The clusters that may have an object of the name.
    pub(crate) unknown: Vec<ClusterName>,
    /// A cluster may have an object of the name, and the caller may not learn of the cluster. No answer names it.
    pub(crate) is_one_unknown: bool,
    /// The reasons why unknown clusters were not asked, where the fleet does not know them.
    pub(crate) told: Vec<Trouble>,
    /// The clusters that are judged by memory, where memory is stale or incomplete. A 404 warns of them.
    pub(crate) doubtful: Vec<(ClusterName, Standing)>,
    /// The clusters that forbid the client to get the object. A write of the object asks them whether they forbid the
    /// write too; if so, they count as clusters without the object. For other decisions they may have the object.
    pub(crate) forbidden: Vec<ClusterName>,
    /// The 403 of a cluster in `forbidden`.
    pub(crate) denied: Option<Refusal>,
    /// The 429 of an unknown cluster that was not asked because a limit of this process is reached.
    pub(crate) not_put: Option<Refusal>,
    /// The objects' part of the limit `--max-held-bytes`.
    pub(crate) room: Vec<Arc<Portion>>,
}

impl Located {
    /// No cluster has the object, as far as Tributary knows.
    pub(crate) fn is_nowhere(&self) -> bool {
        self.found.is_empty()
    }

    /// Whether a cluster forbids to look, or was not asked: then that is told in the place of 404.
    pub(crate) fn is_refused(&self) -> bool {
        self.is_denied() || self.not_put.is_some()
    }

    /// Whether a cluster was asked for it and forbids that.
    pub(crate) fn is_denied(&self) -> bool {
        self.denied.is_some()
    }

    /// Whether a cluster has not said whether it has one, though it was asked.
    pub(crate) fn lacks_answer_of(&self, cluster: &ClusterName) -> bool {
        self.unknown.contains(cluster) || self.forbidden.contains(cluster)
    }

    pub(crate) fn add(&mut self, cluster: Arc<Cluster>, object: Option<Arc<Object>>, room: Portion) {
        self.found.push((cluster, object));
        self.room.push(Arc::new(room));
    }

    pub(crate) fn not_told(&mut self, cluster: &Cluster, cause: String) {
        self.told.push(Trouble { cluster: cluster.name().clone(), cause, age: None });
        self.unknown.push(cluster.name().clone());
    }

    pub(crate) fn not_asked(&mut self, cluster: &Cluster, why: Refusal) {
        self.unknown.push(cluster.name().clone());
        self.not_put = Some(why);
    }

    /// Adds the answers of clusters that were asked because memory has no object of the name. A cluster with cached
    /// objects that does not answer counts by memory.
    pub(crate) fn learn(&mut self, asked: Self, is_asked: impl Fn(&ClusterName) -> bool) {
        let answers = |name: &ClusterName| is_asked(name) && !asked.unknown.contains(name);
        let was_unknown = std::mem::take(&mut self.unknown);
        let is_new = |name: &ClusterName| was_unknown.contains(name);
        self.forbidden.extend(asked.forbidden.iter().filter(|name| is_new(name)).cloned());
        self.told.extend(asked.told.iter().filter(|trouble| is_new(&trouble.cluster)).cloned());
        self.doubtful.retain(|(name, _)| !is_asked(name) || asked.lacks_answer_of(name));
        self.unknown = was_unknown.iter().filter(|name| !answers(name)).cloned().collect();
        self.take_over(asked);
    }

    /// Takes over what was found, or refused, when it was asked for live. What is not known is judged by whoever asked.
    pub(crate) fn take_over(&mut self, asked: Self) {
        (self.found, self.room) = (asked.found, asked.room);
        self.denied = self.denied.take().or(asked.denied);
        self.not_put = self.not_put.take().or(asked.not_put);
    }
}

/// A question to clusters. Requests of one client with equal keys share the question.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct LookupKey {
    /// The client whose fair share the question uses. A client that asks for thousands of names waits longer, and must
    /// not delay the questions of other clients.
    pub(crate) holder: Holder,
    pub(crate) path: Arc<str>,
    /// The identity of the caller at the clusters.
    pub(crate) caller: CallerKey,
    pub(crate) clusters: Box<[ClusterName]>,
    /// The time limit for each cluster.
    pub(crate) within: Duration,
}
