//! The answers of memory and of clusters to the question of a ground.

use tributary_answers::refusal::{Refusal, Trouble};
use tributary_apimachinery::ClusterName;

use crate::forward::owner::decision::Evidence;

/// The evidence for a ground, and the reasons why clusters are unknown.
#[derive(Default)]
pub(in crate::forward) struct Gathered {
    pub(in crate::forward) evidence: Evidence,
    /// The reasons why clusters are unknown, where the fleet does not know them.
    pub(in crate::forward) troubles: Vec<Trouble>,
    /// The 429 of an unknown cluster that was not asked because a limit of this process is reached.
    pub(in crate::forward) not_put: Option<Refusal>,
}

impl Gathered {
    /// Adds a cluster with an unclear answer or none.
    pub(in crate::forward) fn add_unknown(&mut self, cluster: &ClusterName, cause: String) {
        self.troubles.push(Trouble { cluster: cluster.clone(), cause, age: None });
        self.evidence.may.push(cluster.clone());
    }

    /// Adds a cluster that was not asked.
    pub(in crate::forward) fn add_not_put(&mut self, cluster: &ClusterName, why: Refusal) {
        self.evidence.may.push(cluster.clone());
        self.not_put = Some(why);
    }
}

impl From<Evidence> for Gathered {
    fn from(evidence: Evidence) -> Self {
        Self { evidence, ..Self::default() }
    }
}
