//! Reasons for which a cluster does not answer, with their durations, for clients.

use std::sync::Arc;

use tributary_answers::refusal::Trouble;
use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_proxy::{Obstacle, ReachabilityState};

use super::{Cluster, Fleet};
use crate::report::ClusterCondition;

impl Fleet {
    /// Returns the reasons for which these clusters do not answer. `told` contains known reasons for the requested
    /// resource; the last one of a cluster counts. The reason of an unreachable cluster has precedence.
    pub fn troubles(&self, clusters: &[ClusterName], told: &[Trouble]) -> Vec<Trouble> {
        let told = |name: &ClusterName| told.iter().rfind(|trouble| trouble.cluster == *name).cloned();
        let trouble = |cluster: Arc<Cluster>| {
            cluster.out_of_reach().or_else(|| told(cluster.name())).unwrap_or_else(|| cluster.trouble())
        };
        clusters.iter().filter_map(|name| self.cluster(name)).map(trouble).collect()
    }
}

impl Cluster {
    /// Returns the gravest known fault of the cluster, and the resulting condition. Refusals, the log and the report
    /// use this function.
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
            // Lists show the time since the last sign of life, not since the discovery of the fault.
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

    /// Returns whether the cluster is known to be unreachable. Clients then get no Retry-After: client-go would obey it
    /// ten times for each request, and a command would print nothing meanwhile.
    pub fn is_out_of_reach(&self) -> bool {
        let Ok(client) = &self.setup.client else { return true };
        matches!(client.reachability().borrow().state, ReachabilityState::Unreachable { .. })
    }

    /// Returns whether Tributary may send the cluster a request to find an object: it is not known to be unreachable,
    /// and is not shown under a different name.
    pub fn can_be_asked(&self) -> bool {
        !self.is_out_of_reach() && self.twin().is_none()
    }

    /// Returns the reason for which the cluster does not answer, if it is known to be unreachable, so that no client
    /// waits.
    pub fn out_of_reach(&self) -> Option<Trouble> {
        self.is_out_of_reach().then(|| self.trouble())
    }

    /// Returns the trouble of a resource whose version the cluster's discovery lists without resources.
    pub fn undescribed_trouble(&self, resource: &GroupVersionResource) -> Trouble {
        let told = self.undescribed(resource);
        let told =
            told.map(|(since, cause)| Trouble { cluster: self.name().clone(), cause, age: Some(since.elapsed()) });
        told.unwrap_or_else(|| self.trouble())
    }

    /// Returns the reason for which the cluster does not answer. Only for a cluster that did not answer, without a more
    /// specific reason.
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

/// Condition of an unreachable cluster, by the kind of obstacle.
fn condition_of(obstacle: Obstacle) -> ClusterCondition {
    match obstacle {
        Obstacle::Network => ClusterCondition::Unreachable,
        Obstacle::Trust => ClusterCondition::Untrusted,
        Obstacle::Rejection => ClusterCondition::Unauthorized,
        Obstacle::Credentials => ClusterCondition::NoCredentials,
        Obstacle::Protocol => ClusterCondition::Misconfigured,
    }
}
