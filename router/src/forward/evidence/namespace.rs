//! Which clusters have the namespace that a write is in.

use tributary_apimachinery::GroupVersionResource;

use super::gathered::Gathered;
use super::kind::of_kind;
use super::named::of_name;
use crate::grounds::Evidence;
use crate::refusal::Refusal;
use crate::request::ClientRequest;

/// Which of the clusters that serve the resource have the namespace.
///
/// # Errors
/// As [`of_name`].
pub(in crate::forward) async fn of_namespace(request: ClientRequest<'_>) -> Result<Gathered, Refusal> {
    let Some(namespace) = &request.resource.namespace else { return Ok(Gathered::default()) };
    let mut found = of_name(request, &GroupVersionResource::new("", "v1", "namespaces"), None, namespace).await?;
    let Evidence { has, may, .. } = of_kind(request);
    found.evidence.has.retain(|cluster| has.contains(cluster) || may.contains(cluster));
    found.evidence.may.retain(|cluster| has.contains(cluster) || may.contains(cluster));
    Ok(found)
}
