//! Answers of memory and of clusters to the lookup for a ground.

use tributary_answers::refusal::{ClusterFailure, Refusal};
use tributary_apimachinery::ClusterName;

use crate::forward::owner::decision::Evidence;

/// Evidence for a ground, and the reasons for missing answers.
#[derive(Default)]
pub(in crate::forward) struct Gathered {
    pub(in crate::forward) evidence: Evidence,
    /// Reasons why clusters are unknown, in addition to the reasons that the fleet has recorded.
    pub(in crate::forward) failures: Vec<ClusterFailure>,
    /// The 429 of a lookup that Tributary did not send because a limit is reached.
    pub(in crate::forward) not_sent: Option<Refusal>,
}

impl Gathered {
    /// Adds a cluster with an unusable answer, or without an answer.
    pub(in crate::forward) fn add_unknown(&mut self, cluster: &ClusterName, cause: String) {
        self.failures.push(ClusterFailure { cluster: cluster.clone(), cause, age: None });
        self.evidence.may.push(cluster.clone());
    }

    /// Adds a cluster that did not get the lookup.
    pub(in crate::forward) fn add_not_sent(&mut self, cluster: &ClusterName, why: Refusal) {
        self.evidence.may.push(cluster.clone());
        self.not_sent = Some(why);
    }
}

impl From<Evidence> for Gathered {
    fn from(evidence: Evidence) -> Self {
        Self { evidence, ..Self::default() }
    }
}
