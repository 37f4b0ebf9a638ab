//! Reasons for which a cluster does not answer, and the durations of these faults, for error messages to clients.

use std::sync::Arc;

use tributary_answers::refusal::Trouble;
use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_proxy::{Obstacle, ReachabilityState};

use super::{Cluster, Fleet};
use crate::report::ClusterCondition;

impl Fleet {
    /// Returns the reasons for which these clusters do not answer. `told` contains known reasons for the requested
    /// resource; the last reason about a cluster counts. If a cluster is unreachable, the reason for that has
    /// precedence.
    pub fn troubles(&self, clusters: &[ClusterName], told: &[Trouble]) -> Vec<Trouble> {
        let told = |name: &ClusterName| told.iter().rfind(|trouble| trouble.cluster == *name).cloned();
        let trouble = |cluster: Arc<Cluster>| {
            cluster.out_of_reach().or_else(|| told(cluster.name())).unwrap_or_else(|| cluster.trouble())
        };
        clusters.iter().filter_map(|name| self.cluster(name)).map(trouble).collect()
    }
}

impl Cluster {
    /// Returns the gravest known fault of the cluster, with the resulting condition. Error responses, the log and the
    /// report use this function.
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
            // Lists show the time since the last sign of life. The discovery of the fault may be later.
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

    /// Returns whether the cluster is known to be unreachable. Clients then get no Retry-After header: client-go would
    /// obey the header ten times for each request, and a command would print nothing meanwhile.
    pub fn is_out_of_reach(&self) -> bool {
        let Ok(client) = &self.setup.client else { return true };
        matches!(client.reachability().borrow().state, ReachabilityState::Unreachable { .. })
    }

    /// Returns whether Tributary may send the cluster a request to find an object. The cluster must not be known to be
    /// unreachable, and must not be shown under a different name.
    pub fn can_be_asked(&self) -> bool {
        !self.is_out_of_reach() && self.twin().is_none()
    }

    /// Returns the reason for which the cluster does not answer, if the cluster is known to be unreachable. So no
    /// client has to wait for the cluster.
    pub fn out_of_reach(&self) -> Option<Trouble> {
        self.is_out_of_reach().then(|| self.trouble())
    }

    /// Returns the reason for which the cluster's discovery lists the API version of a resource without the version's
    /// resources.
    pub fn undescribed_trouble(&self, resource: &GroupVersionResource) -> Trouble {
        let told = self.undescribed(resource);
        let told =
            told.map(|(since, cause)| Trouble { cluster: self.name().clone(), cause, age: Some(since.elapsed()) });
        told.unwrap_or_else(|| self.trouble())
    }

    /// Returns the reason for which the cluster does not answer. Only for a cluster that did not answer and has no more
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
