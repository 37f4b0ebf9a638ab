//! Reasons why no endpoint takes a request.

use std::sync::Arc;

use tributary_apimachinery::ClusterName;

use crate::endpoints::endpoint::Endpoint;
use crate::error::ForwardError;
use crate::health::observer::Observer;
use crate::left_out::{LeftOut, LeftOutReason};

/// Failures of one request at each endpoint so far.
pub(crate) struct Failures {
    cluster: ClusterName,
    /// A failure that the request would have at every endpoint.
    request_failure: Option<ForwardError>,
    endpoint_failures: Vec<(Arc<str>, ForwardError)>,
}

impl Failures {
    pub(crate) fn new(cluster: &ClusterName) -> Self {
        Self { cluster: cluster.clone(), request_failure: None, endpoint_failures: Vec::new() }
    }

    pub(crate) fn add_failure(&mut self, endpoint: &Endpoint, error: ForwardError) {
        match error.is_endpoint_failure() {
            true => self.endpoint_failures.push((endpoint.target.address.clone(), error)),
            false => self.request_failure = Some(error),
        }
    }

    /// Returns the error of a request for which no endpoint remains. `all` are all endpoints of the cluster, or the
    /// endpoints that a policy chose.
    pub(crate) fn into_error(self, all: &[Arc<Endpoint>], member: &Observer, is_chosen: bool) -> ForwardError {
        let Self { cluster, request_failure, endpoint_failures } = self;
        if let Some(error) = request_failure {
            return error;
        }
        match endpoint_failures.last() {
            // Every endpoint is at its limit, or this machine lacks a resource for a connection. The error is returned
            // unchanged, because a later retry may succeed.
            Some((_, error))
                if endpoint_failures.iter().all(|(_, error)| matches!(error, ForwardError::Full { .. }))
                    || endpoint_failures.iter().all(|(_, error)| matches!(error, ForwardError::Exhausted { .. })) =>
            {
                return error.clone();
            }
            // The tasks that observe the endpoints notice the loss only a moment later. The cluster is marked as lost
            // now, so that no client sees a healthy cluster until then.
            Some((_, error)) if !is_chosen && !member.is_unreachable() && are_lost(all) => {
                member.record_loss(none_can_be_reached(&cluster, all.len(), &error.to_string()), error.failure_class());
            }
            _ => {}
        }
        let retry_after =
            endpoint_failures.iter().filter_map(|(.., error)| error.retry_after()).min().unwrap_or_default();
        let left_out = endpoint_failures.into_iter().map(left_out_by).collect();
        ForwardError::NoEndpoint { cluster, is_chosen, left_out, retry_after }
    }
}

/// Returns why an endpoint with this failure is left out.
fn left_out_by((address, error): (Arc<str>, ForwardError)) -> (Arc<str>, LeftOut) {
    let reason = match &error {
        ForwardError::Full { .. } => LeftOutReason::Full,
        ForwardError::NoEndpoint { left_out, .. } => {
            // The first entry of the error is this endpoint, with the reason why it gets no requests.
            if let Some(own) = left_out.first() {
                return own.clone();
            }
            LeftOutReason::Breaker
        }
        _ => LeftOutReason::Unreachable,
    };
    (address, LeftOut::new(reason, error.at_endpoint()))
}

/// Returns the error for an endpoint with an open circuit breaker. `count` is the number of endpoints.
pub(crate) fn open_breaker(cluster: &ClusterName, endpoint: &Endpoint, count: usize) -> ForwardError {
    let cluster = cluster.clone();
    let retry_after = endpoint.observer.retry_after().unwrap_or_default();
    match endpoint.observer.unreachable_for() {
        // For a single endpoint, the error of its last connection attempt says more than its open circuit breaker.
        Some((age, reason)) if count == 1 => ForwardError::Unreachable { cluster, reason, age },
        unreachable => {
            let why = endpoint.left_out_by_breaker(unreachable.map(|(_, reason)| reason));
            let left_out = Arc::new([(endpoint.target.address.clone(), why)]);
            ForwardError::NoEndpoint { cluster, is_chosen: false, left_out, retry_after }
        }
    }
}

pub(crate) fn full(cluster: &ClusterName, endpoint: &Endpoint) -> ForwardError {
    let limit = endpoint.observer.tuning.max_in_flight_per_endpoint.unwrap_or_default();
    ForwardError::Full {
        cluster: cluster.clone(),
        what: "requests in flight that circuitBreaker.maxRequestsInflightPerEndpoint allows",
        limit,
    }
}

/// Returns whether all endpoints that take requests are unreachable. False if all endpoints are drained.
pub(crate) fn are_lost(all: &[Arc<Endpoint>]) -> bool {
    let mut accepting = all.iter().filter(|endpoint| endpoint.accepts_requests()).peekable();
    accepting.peek().is_some() && accepting.all(|endpoint| endpoint.observer.is_unreachable())
}

pub(crate) fn none_can_be_reached(cluster: &ClusterName, count: usize, reason: &str) -> String {
    format!("cluster {cluster}: none of its {count} endpoints can be reached: {reason}")
}
