//! State of a cluster for the [report](crate::report).

use tributary_answers::refusal::cause_alone;
use tributary_apimachinery::{ClusterName, RequestClass};
use tributary_proxy::{ClusterClient, EndpointStatus, LeftOutReason, ReachabilityState};

use super::Cluster;
use crate::report::{ClusterCondition, ClusterReport, EndpointReport, LimitReport, microseconds};

impl Cluster {
    /// Returns the state of the cluster without the data about cached objects. Visits each endpoint.
    pub fn report(&self) -> ClusterReport {
        let client = self.setup.client.as_ref().ok();
        let (condition, failure) = self.cause().map_or((ClusterCondition::Ready, None), |(it, why)| (it, Some(why)));
        let endpoints = self.endpoint_reports();
        let reached = endpoints.iter().filter(|endpoint| endpoint.is_reachable);
        ClusterReport {
            name: self.name().to_string(),
            condition,
            problem_seconds: failure.as_ref().and_then(|failure| failure.age).map(|age| age.as_secs()),
            problem: failure.map(|failure| cause_alone(&failure.cause, self.name())),
            credentials_problem: client.and_then(ClusterClient::credentials_problem),
            identity_problem: self.identity_problem(),
            version: self.version().map(|version| version.name().to_owned()),
            heard_seconds: client.and_then(ClusterClient::since_last_answer).map(|age| age.as_secs()),
            latency_microseconds: reached.filter_map(|endpoint| endpoint.latency_microseconds).max(),
            endpoints,
            ..ClusterReport::default()
        }
    }

    /// State of the cluster's endpoints.
    pub(super) fn endpoint_reports(&self) -> Vec<EndpointReport> {
        let Ok(client) = &self.setup.client else { return Vec::new() };
        client
            .endpoints()
            .into_iter()
            .chain(client.leaving_endpoints())
            .map(|status| endpoint(status, self.name()))
            .collect()
    }

    /// Returns the numbers of clients' requests at the cluster, with their limits.
    pub fn limit_reports(&self) -> [LimitReport; 3] {
        let of = |limit: &str, class| {
            let (used, max) = self.request_usage(class);
            LimitReport { of: Some(self.name().to_string()), ..LimitReport::new(limit, used as u64, max as u64, None) }
        };
        [
            of("short_to_member", RequestClass::Short),
            of("watches_to_member", RequestClass::Watch),
            of("long_running_to_member", RequestClass::Streamed),
        ]
    }
}

fn endpoint(status: EndpointStatus, cluster: &ClusterName) -> EndpointReport {
    EndpointReport {
        address: status.address.to_string(),
        is_reachable: !matches!(status.reachability.state, ReachabilityState::Unreachable { .. }),
        is_ready: status.is_ready,
        problem: status.left_out.as_ref().map(|left_out| match left_out.reason {
            LeftOutReason::Probe => "/readyz reports that it is not ready".to_owned(),
            LeftOutReason::Outlier => {
                format!("the endpoint answers Tributary's own requests with errors: {}", left_out.cause)
            }
            _ => cause_alone(&left_out.cause, cluster),
        }),
        left_out: status.left_out.map(|left_out| left_out.reason.as_str().to_owned()),
        breaker_openings: status.breaker_openings,
        latency_microseconds: status.latency.map(microseconds),
        outstanding_requests: status.outstanding as u64,
        requests: status.requests,
        broken: status.broken,
        is_ejected: status.is_ejected,
        ejections: status.ejections,
    }
}
