//! Which clusters have the namespace that a write is in.

use tributary_answers::refusal::Refusal;
use tributary_apimachinery::GroupVersionResource;

use super::gathered::Gathered;
use super::kind::of_kind;
use super::named::of_name;
use crate::grounds::Evidence;
use crate::request::ClientRequest;

/// Which of the clusters that serve the resource have the namespace. Where the caller may not make anything in it
/// nothing can be meant, and nobody is asked.
///
/// # Errors
/// As [`of_name`].
pub(in crate::forward) async fn of_namespace(request: ClientRequest<'_>) -> Result<Gathered, Refusal> {
    let Some(namespace) = &request.resource.namespace else { return Ok(Gathered::default()) };
    let makers = request.candidates_of(request.resource, "create").await.within(request.candidates);
    let request = request.about(request.resource, request.served, &makers);
    let namespaces = GroupVersionResource::new("", "v1", "namespaces");
    let mut found = of_name(request, &makers, &namespaces, None, namespace).await?;
    let Evidence { has, may, .. } = of_kind(request);
    found.evidence.has.retain(|cluster| has.contains(cluster) || may.contains(cluster));
    found.evidence.may.retain(|cluster| has.contains(cluster) || may.contains(cluster));
    Ok(found)
}
