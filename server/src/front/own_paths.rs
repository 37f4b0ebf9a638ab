//! The server's own paths: `/metrics`, `/tributary/status` with the report, and `/tributary/policy-test` with the
//! verdict of the dispatch policies on a request.

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use tributary_apimachinery::Mount;
use tributary_router::report;

use crate::front::policy_test::{self, PolicyTestRequest};
use crate::handler::{Body, Handler, full};
use crate::metrics::{self, ServerMetrics};
use crate::status;

const METRICS_PATH: &str = "/metrics";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnPath {
    /// `/metrics`: the metrics in OpenMetrics text.
    Metrics,
    /// `/tributary/status`: the state of this process and its clusters.
    Report,
    /// `/tributary/policy-test`: the verdict of dispatch policies on a described request.
    PolicyTest,
}

impl OwnPath {
    /// Returns which of the server's own paths a request is for. At a cluster's own host, every path belongs to the
    /// cluster. The aggregated entry does not serve these paths.
    pub(crate) fn from_head(head: &Parts, mount: &Mount) -> Option<Self> {
        match head.uri.path() {
            _ if *mount != Mount::Merged => None,
            METRICS_PATH => Some(Self::Metrics),
            report::PATH => Some(Self::Report),
            policy_test::PATH => Some(Self::PolicyTest),
            _ => None,
        }
    }

    /// Answers a request for this path. The answer is the same for all users.
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
            Self::Report => report_status(&**handler, own).await,
            Self::PolicyTest => test_policies(Arc::clone(handler), head.uri.query().unwrap_or_default()).await,
        }
    }
}

async fn report_status(handler: &impl Handler, own: &ServerMetrics) -> Response<Body> {
    let mut report = handler.report().await;
    own.add_to(&mut report);
    let Ok(text) = serde_json::to_vec(&report) else { return status::internal_error() };
    let mut response = Response::new(full(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the metrics, encoded on a blocking thread. With 1,000 clusters, encoding takes tens of milliseconds, which
/// would delay other clients.
async fn scrape(handler: Arc<impl Handler>) -> Response<Body> {
    // `spawn_blocking` fails only at the end of the runtime.
    let text = tokio::task::spawn_blocking(move || handler.expose_metrics()).await.unwrap_or_default();
    let mut response = Response::new(full(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
    response
}

/// Returns the verdict of the current dispatch policies on the request that `query` describes. The policies are
/// evaluated on a blocking thread, because there may be thousands of rules.
async fn test_policies(handler: Arc<impl Handler>, query: &str) -> Response<Body> {
    let test_request = match PolicyTestRequest::from_query(query) {
        Ok(test_request) => test_request,
        Err(error) => return status::invalid_policy_test(&format!("{error:#}")),
    };
    match tokio::task::spawn_blocking(move || test_request.evaluate(&handler.dispatch_settings())).await {
        Ok(Ok(text)) => {
            let mut response = Response::new(full(text));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            response
        }
        Ok(Err(error)) => status::invalid_policy_test(&format!("{error:#}")),
        Err(_) => status::internal_error(),
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::CLUSTER_PREFIXES;
    use tributary_policy::OWN_PATHS;

    use super::*;

    /// Dispatch policies and `tributary policy test` use this list to exclude the server's own paths.
    #[test]
    fn policies_exclude_exactly_the_own_paths_of_the_server() {
        let of = |path: &str| {
            let (head, ()) = http::Request::get(path).body(()).unwrap().into_parts();
            OwnPath::from_head(&head, &Mount::Merged)
        };
        let own = [OwnPath::Metrics, OwnPath::Report, OwnPath::PolicyTest];
        assert_eq!(OWN_PATHS.map(of), own.map(Some));
        assert_eq!(of("/version"), None);
        for path in OWN_PATHS {
            for prefix in CLUSTER_PREFIXES {
                assert_eq!(of(&format!("{prefix}eu{path}")), None, "the path belongs to the cluster");
            }
        }
    }
}
