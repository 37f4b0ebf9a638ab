//! A new object whose namespace is not in the cluster that it means: its client is told where the namespace is.

use std::sync::Arc;

use http::{Response, StatusCode};
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::Status;
use tributary_sharing::body::{self, Body};
use tributary_sharing::limits::REFUSAL_BYTES_MAX;

use super::evidence;
use super::meant::Meant;
use crate::request::ClientRequest;

/// The answer to a write that makes an object; where the member has no such namespace, with the reason why that cluster
/// was asked, and with the clusters that have it.
///
/// # Errors
/// That refusal. What else the member says passes.
pub(super) async fn explained(
    request: ClientRequest<'_>,
    meant: &Meant,
    answer: Response<Body>,
) -> Result<Response<Body>, Refusal> {
    let Some(namespace) = request.resource.namespace.as_deref() else { return Ok(answer) };
    // Nothing was chosen where there is one cluster.
    let is_chosen = request.clusters().len() > 1;
    if answer.status() != StatusCode::NOT_FOUND || !is_chosen {
        return Ok(answer);
    }
    let (head, incoming) = answer.into_parts();
    let text = body::whole_up_to(incoming, REFUSAL_BYTES_MAX).await.unwrap_or_default();
    let said = Status::from_response(head.status.as_u16(), &text);
    if !said.details.is_some_and(|about| about.kind == "namespaces" && about.name == namespace) {
        return Ok(Response::from_parts(head, body::full(text)));
    }
    let cluster = meant.target.cluster.name();
    let mut elsewhere = evidence::of_namespace(request).await?.evidence.has;
    elsewhere.retain(|other| other != cluster);
    let (resource, namespace) = (request.resource.resource.clone(), Arc::from(namespace));
    let (cluster, ground) = (cluster.clone(), meant.ground);
    Err(ClusterRefusal::NoNamespace { resource, namespace, cluster, ground, elsewhere }.into())
}
