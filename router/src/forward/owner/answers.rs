//! The answers of clusters to the question for an object of a name.

use std::sync::Arc;
use std::time::Duration;

use tributary_answers::refusal::{Refusal, Trouble};
use tributary_apimachinery::{ClusterName, Object};
use tributary_fleet::topology::Cluster;
use tributary_sharing::flow::fair_semaphore::Portion;
use tributary_sharing::flow::holder::Holder;

use crate::caller::CallerKey;

/// A cluster with an object of the name.
#[derive(Clone)]
pub(crate) struct FoundObject {
    pub(crate) cluster: Arc<Cluster>,
    /// The object as last seen; `None` if it has no version (a ComponentStatus, for example).
    pub(crate) object: Option<Arc<Object>>,
}

/// The answers so far.
#[derive(Clone, Default)]
pub(crate) struct Answers {
    /// The clusters with an object of the name.
    pub(super) found: Vec<FoundObject>,
    /// The clusters that may have an object of the name.
    pub(super) unknown: Vec<ClusterName>,
    /// The reasons why unknown clusters did not answer, where the fleet does not know them.
    pub(super) troubles: Vec<Trouble>,
    /// The clusters that forbid the client to get the object. A write of the object asks them whether they forbid the
    /// write too; if so, they count as clusters without the object. For other decisions they may have the object.
    pub(super) forbidden: Vec<ClusterName>,
    /// The 403 of a cluster in `forbidden`.
    pub(super) denied: Option<Refusal>,
    /// The 429 of an unknown cluster that was not asked because a limit of this process is reached.
    pub(super) not_put: Option<Refusal>,
    /// The objects' part of the limit `--max-held-bytes`.
    pub(super) room: Vec<Arc<Portion>>,
}

impl Answers {
    /// No cluster has the object, as far as Tributary knows.
    pub(super) fn is_nowhere(&self) -> bool {
        self.found.is_empty()
    }

    /// Adds a cluster with the object.
    pub(super) fn add_object(&mut self, cluster: Arc<Cluster>, object: Option<Arc<Object>>, room: Portion) {
        self.found.push(FoundObject { cluster, object });
        self.room.push(Arc::new(room));
    }

    /// Adds a cluster whose answer says nothing about the object.
    pub(super) fn add_unknown(&mut self, cluster: &Cluster, cause: String) {
        self.troubles.push(Trouble { cluster: cluster.name().clone(), cause, age: None });
        self.unknown.push(cluster.name().clone());
    }

    /// Adds a cluster that was not asked.
    pub(super) fn add_not_put(&mut self, cluster: &Cluster, why: Refusal) {
        self.unknown.push(cluster.name().clone());
        self.not_put = Some(why);
    }

    /// Replaces the objects by those of a later question, and adds its refusals.
    pub(super) fn replace_objects(&mut self, later: Self) {
        (self.found, self.room) = (later.found, later.room);
        self.denied = self.denied.take().or(later.denied);
        self.not_put = self.not_put.take().or(later.not_put);
    }
}

/// A question to clusters. Requests of one client with equal keys share the question.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct QuestionKey {
    /// The client whose fair share the question uses. A client that asks for thousands of names waits longer, and must
    /// not delay the questions of other clients.
    pub(super) holder: Holder,
    pub(super) path: Arc<str>,
    /// The identity of the caller at the clusters.
    pub(super) caller: CallerKey,
    pub(super) clusters: Box<[ClusterName]>,
    /// The time limit for each cluster.
    pub(super) within: Duration,
}
