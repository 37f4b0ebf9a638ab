//! The clusters that have an object of a name, as far as Tributary knows.

use std::sync::Arc;
use std::time::Duration;

use tributary_answers::refusal::{Refusal, Trouble};
use tributary_apimachinery::{ClusterName, Object};
use tributary_fleet::topology::Cluster;
use tributary_sharing::flow::fair_share::Portion;
use tributary_sharing::flow::holder::Holder;
use tributary_views::view::standing::Standing;

use crate::caller::CallerKey;

/// The cluster that has an object, and the object as last seen; `None` where it has no version (a ComponentStatus,
/// for example).
pub(crate) type FoundObject = (Arc<Cluster>, Option<Arc<Object>>);

/// Where an object of this name is.
#[derive(Clone, Default)]
pub(crate) struct Located {
    /// The clusters that have one, with the object as last seen.
    pub(crate) found: Vec<FoundObject>,
    /// The clusters of which it is not known.
    pub(crate) unknown: Vec<ClusterName>,
    /// Whether some cluster may have one of which it is not known whether the caller may know of it: nobody is told its
    /// name.
    pub(crate) is_one_unknown: bool,
    /// What keeps some of those from being asked, as far as more is known than of the clusters as such.
    pub(crate) told: Vec<Trouble>,
    /// How clusters stand that count by what is held of them, and of which that is old or not all: an answer that the
    /// object is nowhere warns of these.
    pub(crate) doubtful: Vec<(ClusterName, Standing)>,
    /// The clusters that forbid the client to ask for it. For a write of the name itself they are asked whether they
    /// forbid that, too, and count as not having it if they do; where it decides about something else they may have it.
    pub(crate) forbidden: Vec<ClusterName>,
    /// What one of those said.
    pub(crate) denied: Option<Refusal>,
    /// Why one of the unknown clusters was not asked, where that is this process's own want of room: 429.
    pub(crate) not_put: Option<Refusal>,
    /// What the objects occupy of the bytes that may be held, as long as they are.
    pub(crate) room: Vec<Arc<Portion>>,
}

impl Located {
    /// Whether nothing was found of which more could be said.
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

/// What is asked of members, in whose name: requests of one client that ask the same share the question.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct LookupKey {
    /// Whose place in the line it takes. Another client's may be far behind: whoever asks for thousands of names would
    /// keep others from those.
    pub(crate) holder: Holder,
    pub(crate) path: Arc<str>,
    /// Who asks.
    pub(crate) caller: CallerKey,
    pub(crate) clusters: Box<[ClusterName]>,
    /// How long each may take.
    pub(crate) within: Duration,
}
