//! How a cluster is, for the [report](crate::report).

use tributary_apimachinery::{ClusterName, RequestClass};
use tributary_proxy::{ClusterClient, EndpointStatus, ReachabilityState};

use super::Cluster;
use crate::refusal::{Trouble, cause_alone};
use crate::report::{ClusterCondition, ClusterReport, EndpointReport, LimitReport, microseconds};

impl Cluster {
    /// How it is, without what is held of it. Cost: a look at each of its endpoints.
    pub(crate) fn report(&self) -> ClusterReport {
        let client = self.setup.client.as_ref().ok();
        let (condition, trouble) = self.condition();
        let endpoints = self.endpoint_reports();
        let reached = endpoints.iter().filter(|endpoint| endpoint.problem.is_none());
        ClusterReport {
            name: self.name().to_string(),
            condition,
            problem_seconds: trouble.as_ref().and_then(|trouble| trouble.age).map(|age| age.as_secs()),
            problem: trouble.map(|trouble| cause_alone(&trouble.cause, self.name())),
            credentials_problem: client.and_then(ClusterClient::credentials_problem),
            version: self.version().map(|version| version.name().to_owned()),
            heard_seconds: client.and_then(ClusterClient::since_last_answer).map(|heard| heard.as_secs()),
            latency_microseconds: reached.filter_map(|endpoint| endpoint.latency_microseconds).max(),
            endpoints,
            ..ClusterReport::default()
        }
    }

    /// What is known of its addresses.
    pub(super) fn endpoint_reports(&self) -> Vec<EndpointReport> {
        let endpoints = self.setup.client.as_ref().map(ClusterClient::endpoints).unwrap_or_default();
        endpoints.into_iter().map(|status| endpoint(status, self.name())).collect()
    }

    /// How much clients have under way there of what they may.
    pub(crate) fn limit_reports(&self) -> [LimitReport; 2] {
        let of = |limit: &str, class| {
            let (used, max) = self.places(class);
            LimitReport { of: Some(self.name().to_string()), ..LimitReport::new(limit, used as u64, max as u64, None) }
        };
        [of("short_to_member", RequestClass::Short), of("long_running_to_member", RequestClass::LongRunning)]
    }

    /// How it is as a whole, and what is wrong. What its discovery met says more than that it cannot be reached; that it
    /// cannot be reached is known earlier.
    fn condition(&self) -> (ClusterCondition, Option<Trouble>) {
        let cluster = self.name().clone();
        if let Some(lost) = self.out_of_reach() {
            let trouble = match self.problem_since() {
                Some((cause, age)) => Trouble { cluster, cause, age: lost.age.max(Some(age)) },
                None => lost,
            };
            return (ClusterCondition::Unreachable, Some(trouble));
        }
        let age = Some(self.problem_since().map_or_else(|| self.age(), |(_, age)| age));
        match self.problem() {
            Some(cause) => (ClusterCondition::Troubled, Some(Trouble { cluster, cause, age })),
            None if self.discovery().is_none() => {
                let cause = "it has not been asked yet".to_owned();
                (ClusterCondition::Pending, Some(Trouble { cluster, cause, age }))
            }
            None => (ClusterCondition::Ready, None),
        }
    }
}

fn endpoint(status: EndpointStatus, cluster: &ClusterName) -> EndpointReport {
    EndpointReport {
        address: status.address.to_string(),
        problem: match &status.reachability.state {
            ReachabilityState::Unreachable { reason } => Some(cause_alone(reason, cluster)),
            ReachabilityState::Unknown | ReachabilityState::Reachable => None,
        },
        latency_microseconds: status.latency.map(microseconds),
        outstanding_requests: status.outstanding as u64,
        requests: status.requests,
        broken: status.broken,
    }
}
