//! What the server answers itself: `/metrics`, `/tributary/status`, its report, and `/tributary/policy-test`, what its
//! dispatch policies say of a request.

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use tributary_apimachinery::Mount;
use tributary_router::report;

use crate::front::policy_question::{self, PolicyQuestion};
use crate::handler::{Body, Handler, full};
use crate::metrics::{self, ServerMetrics};
use crate::status;

/// Where the metrics stand, in Prometheus' text.
const METRICS_PATH: &str = "/metrics";

/// A path that the server answers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnPath {
    /// The metrics.
    Metrics,
    /// How this process and its clusters are.
    Report,
    /// What dispatch policies say of a request that is described.
    PolicyTest,
}

impl OwnPath {
    /// The one that a request is for. At a cluster's own host each path is the cluster's.
    pub(crate) fn from_head(head: &Parts, mount: &Mount) -> Option<Self> {
        match head.uri.path() {
            _ if tributary_hosts::is_of_cluster(mount) => None,
            METRICS_PATH => Some(Self::Metrics),
            report::PATH => Some(Self::Report),
            policy_question::PATH => Some(Self::PolicyTest),
            _ => None,
        }
    }

    /// The answer to a request for it, whoever sends it.
    pub(crate) async fn answer_request<H: Handler>(
        self,
        handler: &Arc<H>,
        own: &ServerMetrics,
        head: &Parts,
    ) -> Response<Body> {
        if !matches!(head.method, Method::GET | Method::HEAD) {
            return status::method_not_allowed("GET");
        }
        match self {
            Self::Metrics => scrape(Arc::clone(handler)).await,
            Self::Report => tell_status(&**handler, own).await,
            Self::PolicyTest => ask_policies(Arc::clone(handler), head.uri.query().unwrap_or_default()).await,
        }
    }
}

async fn tell_status(handler: &impl Handler, own: &ServerMetrics) -> Response<Body> {
    let mut report = handler.report().await;
    own.add_to(&mut report);
    let Ok(text) = serde_json::to_vec(&report) else { return status::internal_error() };
    let mut response = Response::new(full(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The metrics, made by a thread for long work: of 1,000 clusters and what is held of them it takes tens of
/// milliseconds, in which no client is to wait for another's scrape.
async fn scrape(handler: Arc<impl Handler>) -> Response<Body> {
    // It fails only where the runtime ends.
    let text = tokio::task::spawn_blocking(move || handler.expose_metrics()).await.unwrap_or_default();
    let mut response = Response::new(full(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
    response
}

/// What the policies in force say; by a thread for long work, as there may be thousands of rules.
async fn ask_policies(handler: Arc<impl Handler>, query: &str) -> Response<Body> {
    let question = match PolicyQuestion::of_query(query) {
        Ok(question) => question,
        Err(error) => return status::bad_question(&format!("{error:#}")),
    };
    match tokio::task::spawn_blocking(move || question.evaluate(&handler.dispatch_settings())).await {
        Ok(Ok(text)) => {
            let mut response = Response::new(full(text));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            response
        }
        Ok(Err(error)) => status::bad_question(&format!("{error:#}")),
        Err(_) => status::internal_error(),
    }
}

#[cfg(test)]
mod tests {
    use tributary_policy::OWN_PATHS;

    use super::*;

    /// What loading says of policies, and `tributary policy test`, go by that list.
    #[test]
    fn what_is_answered_here_is_what_policies_are_said_not_to_be_asked_about() {
        let of = |path: &str| {
            let (head, ()) = http::Request::get(path).body(()).unwrap().into_parts();
            OwnPath::from_head(&head, &Mount::Merged)
        };
        let own = [OwnPath::Metrics, OwnPath::Report, OwnPath::PolicyTest];
        assert_eq!(OWN_PATHS.map(of), own.map(Some));
        assert_eq!(of("/version"), None);
    }
}
