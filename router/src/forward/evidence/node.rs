//! Which clusters have the node that a new Pod names, or what a Binding names.

use tributary_answers::refusal::Refusal;
use tributary_apimachinery::GroupVersionResource;
use tributary_rights::Candidates;

use super::gathered::Gathered;
use super::named::of_name;
use crate::forward::buffered::BufferedRequest;
use crate::request::ClientRequest;

/// Which clusters have the node that a new Pod is bound to; for a Binding, the Pod that is bound, or else the node.
///
/// # Errors
/// As [`of_name`].
pub(in crate::forward) async fn of_node(
    request: ClientRequest<'_>,
    held: &BufferedRequest,
) -> Result<Gathered, Refusal> {
    let facts = &held.facts;
    if let (Some(target), Some(name)) = (&facts.target, &facts.name) {
        let pods = GroupVersionResource::new("", "v1", "pods");
        let pod = of_name(request, &Candidates::default(), &pods, request.resource.namespace.as_deref(), name).await?;
        return if pod.evidence.has.len() == 1 { Ok(pod) } else { node(request, &target.name).await };
    }
    match &facts.node_name {
        Some(name) => node(request, name).await,
        None => Ok(Gathered::default()),
    }
}

/// Which clusters have a node of this name.
async fn node(request: ClientRequest<'_>, name: &str) -> Result<Gathered, Refusal> {
    let nodes = GroupVersionResource::new("", "v1", "nodes");
    of_name(request, &Candidates::default(), &nodes, None, name).await
}
