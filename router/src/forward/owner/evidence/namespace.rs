//! Evidence for the ground `namespace`: the clusters that have the namespace of a write.

use tributary_answers::refusal::Refusal;
use tributary_apimachinery::GroupVersionResource;

use super::gathered::Gathered;
use super::kind::find_serving;
use super::named::{NamedObject, find_named};
use crate::forward::owner::decision::Evidence;
use crate::request::ClientRequest;

/// Finds the clusters that serve the resource and have the namespace. Ignores clusters where the caller may not create
/// an object in the namespace, and sends them no lookup.
///
/// # Errors
/// The errors of [`find_named`].
pub(in crate::forward) async fn find_namespace(request: ClientRequest<'_>) -> Result<Gathered, Refusal> {
    let Some(namespace) = &request.resource.namespace else { return Ok(Gathered::default()) };
    let makers = request.candidates_of(request.resource, "create").await.within(request.candidates);
    let request = request.about(request.resource, request.served, &makers);
    let resource = GroupVersionResource::new("", "v1", "namespaces");
    let mut found = find_named(request, &makers, NamedObject { resource, namespace: None, name: namespace }).await?;
    let Evidence { has, may, .. } = find_serving(request);
    found.evidence.has.retain(|cluster| has.contains(cluster) || may.contains(cluster));
    found.evidence.may.retain(|cluster| has.contains(cluster) || may.contains(cluster));
    Ok(found)
}
