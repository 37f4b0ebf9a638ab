//! Answers of clusters to the lookup of an object by name.

use std::sync::Arc;
use std::time::Duration;

use tributary_answers::refusal::{ClusterFailure, Refusal};
use tributary_apimachinery::{ClusterName, Object};
use tributary_fleet::topology::Cluster;
use tributary_sharing::flow::fair_semaphore::FairPermit;
use tributary_sharing::flow::share_key::ShareKey;

use crate::caller::CallerKey;

#[derive(Clone)]
pub(crate) struct FoundObject {
    pub(crate) cluster: Arc<Cluster>,
    /// Last known state of the object; `None` if the object has no version (for example a ComponentStatus).
    pub(crate) object: Option<Arc<Object>>,
}

#[derive(Clone, Default)]
pub(crate) struct Answers {
    pub(super) found: Vec<FoundObject>,
    pub(super) unknown: Vec<ClusterName>,
    /// Reasons why clusters are unknown, in addition to the reasons that the fleet has recorded.
    pub(super) failures: Vec<ClusterFailure>,
    /// Clusters that forbid the client to get the object. Before a write, a review in each of these clusters checks
    /// whether the cluster also forbids the write. If so, the write cannot concern an object in this cluster, and the
    /// cluster is treated as a cluster without the object. Without this review, the cluster may have the object.
    pub(super) forbidden: Vec<ClusterName>,
    /// The 403 of one of the clusters in `forbidden`.
    pub(super) denied: Option<Refusal>,
    /// The 429 of a lookup that Tributary did not send because a limit is reached.
    pub(super) not_sent: Option<Refusal>,
    /// Part of the limit `--max-held-bytes` for the objects.
    pub(super) reservation: Vec<Arc<FairPermit>>,
}

impl Answers {
    pub(super) fn is_nowhere(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn add_object(&mut self, cluster: Arc<Cluster>, object: Option<Arc<Object>>, reservation: FairPermit) {
        self.found.push(FoundObject { cluster, object });
        self.reservation.push(Arc::new(reservation));
    }

    /// Adds a cluster without a usable answer about the object.
    pub(super) fn add_unknown(&mut self, cluster: &Cluster, cause: String) {
        self.failures.push(ClusterFailure { cluster: cluster.name().clone(), cause, age: None });
        self.unknown.push(cluster.name().clone());
    }

    /// Adds a cluster that did not get the lookup.
    pub(super) fn add_not_sent(&mut self, cluster: &Cluster, why: Refusal) {
        self.unknown.push(cluster.name().clone());
        self.not_sent = Some(why);
    }

    /// Replaces the objects by the objects of a later lookup, and adds the refusals of the later lookup.
    pub(super) fn replace_objects(&mut self, later: Self) {
        (self.found, self.reservation) = (later.found, later.reservation);
        self.denied = self.denied.take().or(later.denied);
        self.not_sent = self.not_sent.take().or(later.not_sent);
    }
}

/// Key of a lookup in clusters. Requests of one client with equal keys can share the lookup.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct LookupKey {
    /// Client whose fair share the lookup uses. Clients do not share lookups: a client that looks up thousands of names
    /// waits longer, and must not delay the lookups of other clients.
    pub(super) share_key: ShareKey,
    pub(super) path: Arc<str>,
    /// Identity of the caller in the clusters.
    pub(super) caller: CallerKey,
    pub(super) clusters: Box<[ClusterName]>,
    /// Time limit for each cluster.
    pub(super) within: Duration,
}
