//! What is counted and traced of a request: who answered it, what became of it, and where.

use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use tokio::time::Instant;
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::RequestInfo;
use tributary_fleet::discovery::Union;
use tributary_fleet::metrics::{ClientClass, CountedCluster, CountedRequest, CountedResource, Decision, RequestSource};
use tributary_flow_control::SCHEMA_HEADER;
use tributary_sharing::body::Body;

use crate::Router;
use crate::configuration::ConfigurationSnapshot;
use crate::flow_control::PassedSchema;
use crate::request_reading::RequestReading;
use crate::request_trace::{AskedClusters, RequestTrace};

/// What is found out about a request on the way to its answer.
pub(super) struct Noted<'a> {
    /// Who answers.
    pub(super) source: RequestSource,
    /// The schema that it passes.
    pub(super) schema: Option<&'a PassedSchema>,
    /// What its answer does not show, and why. Few have it, and all would carry it.
    pub(super) warning: Option<Box<HeaderValue>>,
}

impl Noted<'_> {
    /// Nothing is found out yet: whoever is refused now was answered by nobody.
    pub(super) fn nothing() -> Self {
        Self { source: RequestSource::Refused, schema: None, warning: None }
    }

    /// Has the answer say which schema it passed, and what it does not show.
    pub(super) fn told_by(self, mut answer: Response<Body>) -> Response<Body> {
        if let Some(schema) = self.schema {
            answer.headers_mut().insert(SCHEMA_HEADER, schema.header().clone());
        }
        answer.headers_mut().extend(self.warning.map(|warning| (header::WARNING, *warning)));
        answer
    }
}

/// What is counted of a request that was read, and answered or refused. The trace is told, too.
pub(super) fn counted<'a>(
    info: &RequestInfo,
    configuration: &'a ConfigurationSnapshot,
    (source, refusal): (RequestSource, Option<&Refusal>),
    trace: &RequestTrace,
    client: ClientClass,
) -> CountedRequest<'a> {
    trace.note_source(source);
    let asked = trace.asked_clusters();
    let decision = decision(source, refusal, &asked);
    trace.note_decision(decision);
    if refusal.is_some_and(Refusal::is_of_acting) {
        trace.note_not_let();
    }
    let resource = CountedResource::from_request(info, &configuration.union);
    let cluster = counted_cluster(info, configuration, asked);
    CountedRequest { verb: info.verb, resource, source, cluster, decision, client }
}

/// What is counted of a request that cannot be read. The trace is told, too.
pub(super) fn counted_unread(trace: &RequestTrace, client: ClientClass) -> CountedRequest<'static> {
    trace.note_decision(Decision::Refused);
    CountedRequest::unread(Decision::Refused, client)
}

/// What became of a request that this was to answer.
fn decision(source: RequestSource, refusal: Option<&Refusal>, asked: &AskedClusters) -> Decision {
    match (refusal, source) {
        (Some(Refusal::Policy(_)), _) => Decision::Denied,
        (Some(Refusal::Limit(_)), _) => Decision::Limited,
        _ if *asked != AskedClusters::None => Decision::Forwarded,
        (_, RequestSource::Memory) => Decision::Memory,
        (_, RequestSource::Own) => Decision::Own,
        (None, RequestSource::Member) => Decision::Forwarded,
        (_, RequestSource::Member | RequestSource::Refused) => Decision::Refused,
    }
}

/// The resource that a request asks for, as kubectl names it; `None` where no member serves it.
pub(super) fn served_resource(info: &RequestInfo, union: &Union) -> Option<String> {
    union.served(info).map(|(request, _)| request.resource.group_resource().to_string())
}

/// The cluster that a request is counted at, where there is such a cluster: nobody makes series by asking for others.
fn counted_cluster(info: &RequestInfo, configuration: &ConfigurationSnapshot, asked: AskedClusters) -> CountedCluster {
    match (&info.cluster, asked) {
        (Some(named), _) if configuration.clusters.contains_key(named) => CountedCluster::One(named.clone()),
        (Some(_), _) | (None, AskedClusters::None) => CountedCluster::None,
        (None, AskedClusters::One(cluster)) => CountedCluster::One(cluster),
        (None, AskedClusters::Several) => CountedCluster::Several,
    }
}

impl Router {
    /// Counts a request that was denied before anybody was known.
    pub(super) fn count_unheard(&self, head: &mut Parts, status: StatusCode, started: Instant) {
        let reading = RequestReading::of_head(head);
        let (configuration, client) = (self.configuration(), ClientClass::from_headers(&head.headers));
        let (source, decision) = (RequestSource::Refused, Decision::Denied);
        let counted = match reading.info() {
            Ok(info) => {
                let resource = CountedResource::from_request(info, &configuration.union);
                let cluster = counted_cluster(info, &configuration, AskedClusters::None);
                CountedRequest { verb: info.verb, resource, source, cluster, decision, client }
            }
            Err(_) => CountedRequest::unread(decision, client),
        };
        self.metrics.observe(&counted, status, started.elapsed());
    }
}
