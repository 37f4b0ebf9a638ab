//! What keeps a cluster from answering, and for how long, as clients are told.

use std::sync::Arc;

use tributary_answers::refusal::Trouble;
use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_proxy::{Obstacle, ReachabilityState};

use super::{Cluster, Fleet};
use crate::report::ClusterCondition;

impl Fleet {
    /// What keeps these clusters from answering. `told`: what is known of some of them in what is asked for, the latest
    /// last; that one is out of reach says more.
    pub fn troubles(&self, clusters: &[ClusterName], told: &[Trouble]) -> Vec<Trouble> {
        let told = |name: &ClusterName| told.iter().rfind(|trouble| trouble.cluster == *name).cloned();
        let trouble = |cluster: Arc<Cluster>| {
            cluster.out_of_reach().or_else(|| told(cluster.name())).unwrap_or_else(|| cluster.trouble())
        };
        clusters.iter().filter_map(|name| self.cluster(name)).map(trouble).collect()
    }
}

impl Cluster {
    /// What is wrong with it as a whole, and how it is therefore: the gravest of what is known. Everybody who tells of
    /// it (refusals, the log, the report) has it from here.
    pub fn cause(&self) -> Option<(ClusterCondition, Trouble)> {
        let trouble = |cause: String, age| Trouble { cluster: self.name().clone(), cause, age: Some(age) };
        let problem = || {
            let age = self.problem_since().map(|(_, age)| age);
            self.problem().map(|cause| Trouble { cluster: self.name().clone(), cause, age })
        };
        let Ok(client) = &self.setup.client else {
            return problem().map(|trouble| (ClusterCondition::Misconfigured, trouble));
        };
        let known = client.reachability().borrow().clone();
        if let ReachabilityState::Unreachable { reason, obstacle } = &known.state {
            // As lists say it: since it was last heard, not since that was found out.
            let age = known.heard.unwrap_or(known.since).elapsed();
            return Some((condition_of(*obstacle), trouble(reason.to_string(), age)));
        }
        if client.is_drained() {
            let (cluster, cause) = (self.name().clone(), "all of its endpoints are drained".to_owned());
            return Some((ClusterCondition::Troubled, Trouble { cluster, cause, age: None }));
        }
        if let Some(problem) = problem() {
            let condition = self.problem_condition().unwrap_or(ClusterCondition::Troubled);
            return Some((condition, problem));
        }
        if let Some(since) = known.unready_since {
            let cause = "its /readyz says that it is not ready".to_owned();
            return Some((ClusterCondition::Troubled, trouble(cause, since.elapsed())));
        }
        let cause = "it has not said yet which resources it serves";
        self.discovery().is_none().then(|| (ClusterCondition::Pending, trouble(cause.to_owned(), self.age())))
    }

    /// Whether it is known to be out of reach. Then clients are not told to try again in a second: client-go obeys ten
    /// times for each request, and a command for a cluster that is down would be silent for that long.
    pub fn is_out_of_reach(&self) -> bool {
        let Ok(client) = &self.setup.client else { return true };
        matches!(client.reachability().borrow().state, ReachabilityState::Unreachable { .. })
    }

    /// Whether a client's question may be put to it, whatever is known of its collections: it is not known to be out of
    /// reach, and it is not shown under another name.
    pub fn can_be_asked(&self) -> bool {
        !self.is_out_of_reach() && self.twin().is_none()
    }

    /// What keeps it from answering, where it is already known to be out of reach: nobody need wait for it.
    pub fn out_of_reach(&self) -> Option<Trouble> {
        self.is_out_of_reach().then(|| self.trouble())
    }

    /// The trouble of a resource whose version the cluster's discovery does not describe.
    pub fn undescribed_trouble(&self, resource: &GroupVersionResource) -> Trouble {
        let told = self.undescribed(resource);
        let told =
            told.map(|(since, cause)| Trouble { cluster: self.name().clone(), cause, age: Some(since.elapsed()) });
        told.unwrap_or_else(|| self.trouble())
    }

    /// What keeps it from answering. Only for a cluster that is known not to have answered, and of which nothing more
    /// is known: what a collection of it meets its standing says.
    pub fn trouble(&self) -> Trouble {
        self.cause().map_or_else(
            || {
                let cause = "it has not said what it has of this".to_owned();
                Trouble { cluster: self.name().clone(), cause, age: None }
            },
            |(_, trouble)| trouble,
        )
    }
}

/// How a cluster is to which this stands in the way.
fn condition_of(obstacle: Obstacle) -> ClusterCondition {
    match obstacle {
        Obstacle::Network => ClusterCondition::Unreachable,
        Obstacle::Trust => ClusterCondition::Untrusted,
        Obstacle::Rejection => ClusterCondition::Unauthorized,
        Obstacle::Credentials => ClusterCondition::NoCredentials,
        Obstacle::Protocol => ClusterCondition::Misconfigured,
    }
}
