//! Requests that go to one cluster as they are: its own view, and documents that any member can give.

use bytes::Bytes;
use http::{Method, Request, Response, header};
use tributary_apimachinery::{ClusterName, ObjectDecoder, RequestInfo, Status, Verb};

use super::answer::written;
use super::forward::forward;
use crate::Router;
use crate::body::{self, Body};

impl Router {
    /// A request below `/clusters/<name>`: forwarded untouched, answered untouched.
    pub(crate) async fn forward_to_cluster(
        &self,
        request: Request<Body>,
        info: &RequestInfo,
        name: &ClusterName,
        query: Option<&str>,
    ) -> Result<Response<Body>, Status> {
        let cluster = self.fleet().cluster(name).ok_or_else(|| Status::cluster_not_found(name.as_str()))?;
        let writes = !info.verb.is_read() && !request.headers().contains_key(header::UPGRADE);
        let answer = forward(&cluster, request, &info.path, query).await?;
        let Some(resource) = info.resource().filter(|_| writes && answer.status().is_success()) else {
            return Ok(answer);
        };
        if !matches!(info.verb, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete) || !is_small_json(&answer) {
            return Ok(answer);
        }
        // Reads of the merged view are to see this write: its version is noted on the way through.
        let (head, incoming) = answer.into_parts();
        let text: Bytes = body::whole(incoming)
            .await
            .map_err(|error| Status::cluster_unavailable(name, format!("its answer broke off: {error}")))?;
        let object = ObjectDecoder::new("", "", std::sync::Arc::default()).decode(&text).ok();
        written(self, &cluster, info.verb, resource, object.as_ref(), &text);
        Ok(Response::from_parts(head, body::full(text)))
    }

    /// A document that any member can give (`/version`, OpenAPI): the first that answers gives it.
    pub(crate) async fn relay(
        &self,
        request: Request<Body>,
        info: &RequestInfo,
        query: Option<&str>,
    ) -> Result<Response<Body>, Status> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(Status::method_not_allowed());
        }
        let (head, _) = request.into_parts();
        let clusters = self.fleet().clusters();
        let mut order: Vec<_> = clusters.values().collect();
        order.sort_by_key(|cluster| cluster.problem().is_some());
        let mut refusal = Status::service_unavailable("no cluster is configured that could be asked");
        for cluster in order {
            let mut question = Request::new(body::empty());
            *question.method_mut() = head.method.clone();
            *question.headers_mut() = head.headers.clone();
            match forward(cluster, question, &info.path, query).await {
                Ok(answer) if !answer.status().is_server_error() => return Ok(answer),
                Ok(answer) => {
                    refusal = Status::cluster_unavailable(cluster.name(), format!("it answered {}", answer.status()))
                }
                Err(status) => refusal = status,
            }
        }
        Err(refusal)
    }
}

/// Whether an answer is JSON of a length that is known and can be held.
fn is_small_json(answer: &Response<Body>) -> bool {
    let header = |name| answer.headers().get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let json = header(header::CONTENT_TYPE).is_some_and(|value| value.starts_with("application/json"));
    let plain = header(header::CONTENT_ENCODING).is_none();
    json && plain
        && header(header::CONTENT_LENGTH)
            .and_then(|length| length.parse::<usize>().ok())
            .is_none_or(|length| length <= body::WHOLE_BODY_BYTES_MAX)
}
