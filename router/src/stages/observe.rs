//! Recording of metrics and traces of a request, by source, decision and cluster.

use http::request::Parts;
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::RequestInfo;
use tributary_fleet::discovery::MergedDiscovery;
use tributary_fleet::metrics::{ClientClass, CountedCluster, CountedRequest, CountedResource, Decision, RequestSource};

use super::staged_request::StagedRequest;
use crate::Router;
use crate::configuration::ConfigurationSnapshot;
use crate::request_reading::RequestReading;
use crate::request_trace::{RequestTrace, RequestedClusters};

pub(crate) struct Observation<'a> {
    started: Instant,
    client: ClientClass,
    trace: &'a RequestTrace,
}

impl<'a> Observation<'a> {
    pub(crate) fn begin(trace: &'a RequestTrace, headers: &HeaderMap) -> Self {
        Self { started: Instant::now(), client: ClientClass::from_headers(headers), trace }
    }

    /// Writes the request to the debug log, and records the requested resource in the trace.
    pub(crate) fn record_read(&self, request: &StagedRequest<'_>) {
        let info = request.received.info;
        tracing::debug!(user = request.user.info.username, verb = %info.verb, path = info.path, "request");
        self.trace.record_served(|| served_resource(info, &request.configuration.merged_discovery));
    }

    /// Returns the metric labels of a valid request. Records the decision in the trace, too.
    pub(crate) fn metric_labels<'b>(
        &self,
        request: &StagedRequest<'b>,
        refusal: Option<&Refusal>,
    ) -> CountedRequest<'b> {
        let (info, configuration) = (request.received.info, request.configuration);
        let (source, requested) = (self.trace.source(), self.trace.requested_clusters());
        let decision = decision(source, refusal, &requested);
        self.trace.record_decision(decision);
        if refusal.is_some_and(Refusal::is_about_impersonation) {
            self.trace.record_impersonation_forbidden();
        }
        let resource = CountedResource::from_request(info, &configuration.merged_discovery);
        let cluster = counted_cluster(info, configuration, requested);
        CountedRequest { verb: info.verb, resource, source, cluster, decision, client: self.client }
    }

    /// Returns the metric labels of an unparsable request. Records the decision in the trace, too.
    pub(crate) fn counted_unread(&self) -> CountedRequest<'static> {
        self.trace.record_decision(Decision::Refused);
        CountedRequest::unread(Decision::Refused, self.client)
    }

    pub(crate) fn finish(&self, router: &Router, labels: &CountedRequest<'_>, status: StatusCode) {
        router.metrics.observe(labels, status, self.started.elapsed());
    }
}

fn decision(source: RequestSource, refusal: Option<&Refusal>, requested: &RequestedClusters) -> Decision {
    match (refusal, source) {
        (Some(Refusal::Policy(_)), _) => Decision::Denied,
        (Some(Refusal::Limit(_)), _) => Decision::Limited,
        _ if *requested != RequestedClusters::None => Decision::Forwarded,
        (_, RequestSource::Memory) => Decision::Memory,
        (_, RequestSource::Own) => Decision::Own,
        (None, RequestSource::Member) => Decision::Forwarded,
        (_, RequestSource::Member | RequestSource::Refused) => Decision::Refused,
    }
}

/// Returns the requested resource, as kubectl names it; `None` if no member serves the resource.
fn served_resource(info: &RequestInfo, merged_discovery: &MergedDiscovery) -> Option<String> {
    merged_discovery.served(info).map(|(request, _)| request.resource.group_resource().to_string())
}

/// Returns the cluster for the metric labels of a request. Only existing clusters, because requests for other names
/// must not create metric series.
fn counted_cluster(
    info: &RequestInfo,
    configuration: &ConfigurationSnapshot,
    requested: RequestedClusters,
) -> CountedCluster {
    match (&info.cluster, requested) {
        (Some(named), _) if configuration.clusters.contains_key(named) => CountedCluster::One(named.clone()),
        (Some(_), _) | (None, RequestedClusters::None) => CountedCluster::None,
        (None, RequestedClusters::One(cluster)) => CountedCluster::One(cluster),
        (None, RequestedClusters::Several) => CountedCluster::Several,
    }
}

impl Router {
    pub(crate) fn count_frozen(&self, head: &Parts, reading: &RequestReading, status: StatusCode, started: Instant) {
        let (configuration, client) = (self.configuration(), ClientClass::from_headers(&head.headers));
        let (source, decision) = (RequestSource::Refused, Decision::Denied);
        let labels = match reading.info() {
            Ok(info) => {
                let resource = CountedResource::from_request(info, &configuration.merged_discovery);
                let cluster = counted_cluster(info, &configuration, RequestedClusters::None);
                CountedRequest { verb: info.verb, resource, source, cluster, decision, client }
            }
            Err(_) => CountedRequest::unread(decision, client),
        };
        self.metrics.observe(&labels, status, started.elapsed());
    }
}
