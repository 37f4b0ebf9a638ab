//! Refusal of a new object whose namespace is missing in the chosen cluster.

use std::sync::Arc;

use http::{Response, StatusCode};
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::Status;
use tributary_sharing::body::{self, Body};
use tributary_sharing::limits::REFUSAL_BYTES_MAX;

use super::owner::OwnerTarget;
use super::owner::evidence::find_namespace;
use crate::request::ClientRequest;

/// Explains a 404 for a create or apply, if the namespace is missing in the chosen cluster.
///
/// # Errors
/// A refusal that names the ground that chose the cluster, and the clusters that have the namespace. Other answers are
/// passed on.
pub(super) async fn explain_missing_namespace(
    request: ClientRequest<'_>,
    target: &OwnerTarget,
    answer: Response<Body>,
) -> Result<Response<Body>, Refusal> {
    let Some(namespace) = request.resource.namespace.as_deref() else { return Ok(answer) };
    // With a single cluster there is no choice to explain.
    let is_chosen = request.clusters().len() > 1;
    if answer.status() != StatusCode::NOT_FOUND || !is_chosen {
        return Ok(answer);
    }
    let (head, incoming) = answer.into_parts();
    let text = body::whole_up_to(incoming, REFUSAL_BYTES_MAX).await.unwrap_or_default();
    let status = Status::from_response(head.status.as_u16(), &text);
    if !status.details.is_some_and(|about| about.kind == "namespaces" && about.name == namespace) {
        return Ok(Response::from_parts(head, body::full(text)));
    }
    let cluster = target.cluster.name();
    let mut elsewhere = find_namespace(request).await?.evidence.has;
    elsewhere.retain(|other| other != cluster);
    let (resource, namespace) = (request.resource.resource.clone(), Arc::from(namespace));
    let (cluster, ground) = (cluster.clone(), target.ground);
    Err(ClusterRefusal::NoNamespace { resource, namespace, cluster, ground, elsewhere }.into())
}
