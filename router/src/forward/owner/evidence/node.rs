//! Evidence for the ground `node`: the clusters that have the node of a new Pod, or the target of a Binding.

use tributary_answers::refusal::Refusal;
use tributary_apimachinery::GroupVersionResource;
use tributary_apimachinery::rewrite::Facts;
use tributary_rights::Candidates;

use super::gathered::Gathered;
use super::named::{NamedObject, find_named};
use crate::request::ClientRequest;

/// Finds the clusters that have the node of a new Pod. For a Binding, finds the clusters with the Pod, or else with the
/// node.
///
/// # Errors
/// The errors of [`find_named`].
pub(in crate::forward) async fn find_node(request: ClientRequest<'_>, facts: &Facts) -> Result<Gathered, Refusal> {
    let all = Candidates::default();
    let object = |resource, namespace, name| NamedObject {
        resource: GroupVersionResource::new("", "v1", resource),
        namespace,
        name,
    };
    if let (Some(target), Some(name)) = (&facts.target, &facts.name) {
        let pod = object("pods", request.resource.namespace.as_deref(), name);
        let pod = find_named(request, &all, pod).await?;
        return match pod.evidence.has.len() {
            1 => Ok(pod),
            _ => find_named(request, &all, object("nodes", None, &target.name)).await,
        };
    }
    match &facts.node_name {
        Some(name) => find_named(request, &all, object("nodes", None, name)).await,
        None => Ok(Gathered::default()),
    }
}
