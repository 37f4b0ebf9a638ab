//! Reasons for which a cluster does not answer, and the durations of these faults, for error messages to clients.

use std::sync::Arc;

use tributary_answers::refusal::ClusterFailure;
use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_proxy::{FailureClass, ReachabilityState};

use super::{Cluster, Fleet};
use crate::report::ClusterCondition;

impl Fleet {
    /// Returns the reasons for which these clusters do not answer. `known_failures` contains known reasons for the
    /// requested resource; the last reason about a cluster counts. If a cluster is unreachable, the cause of this state
    /// has precedence.
    pub fn failures(&self, clusters: &[ClusterName], known_failures: &[ClusterFailure]) -> Vec<ClusterFailure> {
        let known_failure =
            |name: &ClusterName| known_failures.iter().rfind(|failure| failure.cluster == *name).cloned();
        let failure = |cluster: Arc<Cluster>| {
            cluster.out_of_reach().or_else(|| known_failure(cluster.name())).unwrap_or_else(|| cluster.failure())
        };
        clusters.iter().filter_map(|name| self.cluster(name)).map(failure).collect()
    }
}

impl Cluster {
    /// Returns the most severe known fault of the cluster, with the resulting condition. Error responses, the log and
    /// the report all use this function, so that they show the same fault.
    pub fn cause(&self) -> Option<(ClusterCondition, ClusterFailure)> {
        let failure = |cause: String, age| ClusterFailure { cluster: self.name().clone(), cause, age: Some(age) };
        let problem = || {
            let age = self.problem_since().map(|(_, age)| age);
            self.problem().map(|cause| ClusterFailure { cluster: self.name().clone(), cause, age })
        };
        let Ok(client) = &self.setup.client else {
            return problem().map(|failure| (ClusterCondition::Misconfigured, failure));
        };
        let known = client.reachability().borrow().clone();
        if let ReachabilityState::Unreachable { reason, failure_class } = &known.state {
            // The age is the time since the last sign of life, as in list responses, because Tributary may have noticed
            // the fault later.
            let age = known.last_data_at.unwrap_or(known.since).elapsed();
            return Some((condition_of(*failure_class), failure(reason.to_string(), age)));
        }
        if client.is_drained() {
            let (cluster, cause) = (self.name().clone(), "all endpoints of the cluster are drained".to_owned());
            return Some((ClusterCondition::Troubled, ClusterFailure { cluster, cause, age: None }));
        }
        if let Some(problem) = problem() {
            let condition = self.problem_condition().unwrap_or(ClusterCondition::Troubled);
            return Some((condition, problem));
        }
        if let Some(since) = known.unready_since {
            let cause = "/readyz reports that it is not ready".to_owned();
            return Some((ClusterCondition::Troubled, failure(cause, since.elapsed())));
        }
        let cause = "the first discovery of the cluster has not finished yet";
        self.discovery().is_none().then(|| (ClusterCondition::Pending, failure(cause.to_owned(), self.age())))
    }

    /// Returns whether Tributary knows that the cluster is unreachable. Clients then get no Retry-After header:
    /// client-go would wait and retry ten times for each request, and the command would print nothing during this time.
    pub fn is_out_of_reach(&self) -> bool {
        let Ok(client) = &self.setup.client else { return true };
        matches!(client.reachability().borrow().state, ReachabilityState::Unreachable { .. })
    }

    /// Returns whether Tributary may send the cluster a request to find an object. False if the cluster is known to be
    /// unreachable, or if the merged view shows the cluster under a different name.
    pub fn can_be_asked(&self) -> bool {
        !self.is_out_of_reach() && self.duplicate().is_none()
    }

    /// Returns whether an administrator must repair a fault before Tributary can read a resource of the cluster. Such
    /// faults are the server's certificate, Tributary's credentials or configuration, a refusal of discovery, and an
    /// unreadable description of the API version.
    pub fn needs_repair(&self, resource: &GroupVersionResource) -> bool {
        use ClusterCondition::{Misconfigured, NoCredentials, Unauthorized, Untrusted};
        let condition = self.cause().map(|(condition, _)| condition);
        matches!(condition, Some(Untrusted | Unauthorized | NoCredentials | Misconfigured))
            || self.has_lasting_problem()
            || self.is_unreadable(resource)
    }

    /// Returns whether the cluster may answer a retry within seconds. Only in this case, clients get Retry-After.
    pub fn may_answer_soon(&self, resource: &GroupVersionResource) -> bool {
        self.can_be_asked() && self.undescribed(resource).is_none() && !self.needs_repair(resource)
    }

    /// Returns the reason why the cluster does not answer, if the cluster is known to be unreachable. Callers return
    /// this reason without a request, so that no client waits for the cluster.
    pub fn out_of_reach(&self) -> Option<ClusterFailure> {
        self.is_out_of_reach().then(|| self.failure())
    }

    /// Returns the reason for which the cluster's discovery lists the API version of a resource without the version's
    /// resources.
    pub fn undescribed_trouble(&self, resource: &GroupVersionResource) -> ClusterFailure {
        let undescribed = self.undescribed(resource);
        let undescribed = undescribed.map(|(since, cause)| ClusterFailure {
            cluster: self.name().clone(),
            cause,
            age: Some(since.elapsed()),
        });
        undescribed.unwrap_or_else(|| self.failure())
    }

    /// Returns the reason why the cluster does not answer. Call this function only for a cluster that did not answer,
    /// if no more specific reason is known.
    pub fn failure(&self) -> ClusterFailure {
        self.cause().map_or_else(
            || {
                let cause = "the cluster did not answer".to_owned();
                ClusterFailure { cluster: self.name().clone(), cause, age: None }
            },
            |(_, failure)| failure,
        )
    }
}

/// Condition of an unreachable cluster, by the kind of obstacle.
fn condition_of(failure_class: FailureClass) -> ClusterCondition {
    match failure_class {
        FailureClass::Network => ClusterCondition::Unreachable,
        FailureClass::Trust => ClusterCondition::Untrusted,
        FailureClass::Rejection => ClusterCondition::Unauthorized,
        FailureClass::Credentials => ClusterCondition::NoCredentials,
        FailureClass::Protocol | FailureClass::Address => ClusterCondition::Misconfigured,
    }
}
