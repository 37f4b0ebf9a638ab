//! Which clusters have an object of a name that a write names.

use tributary_answers::refusal::{Refusal, Trouble};
use tributary_apimachinery::{ClusterName, GroupVersionResource, ResourceRequest};
use tributary_rights::Candidates;

use super::gathered::Gathered;
use crate::forward::locate::{Lookup, ask_unknown, locate};
use crate::grounds::Evidence;
use crate::request::ClientRequest;

/// Which clusters have an object of this name, of those that count.
///
/// # Errors
/// As [`locate`].
pub(in crate::forward) async fn of_name(
    request: ClientRequest<'_>,
    counting: &Candidates,
    resource: &GroupVersionResource,
    namespace: Option<&str>,
    name: &str,
) -> Result<Gathered, Refusal> {
    let union = request.router.fleet().union();
    let Some(served) = union.get(resource) else { return Ok(Gathered::default()) };
    let wanted = object(resource.clone(), namespace.map(str::to_owned), Some(name.to_owned()));
    let candidates = request.candidates_of(&wanted, "get").await.within(counting);
    let hiding = request.hiding(served, &candidates);
    let wanted = request.about(&wanted, served, &candidates);
    let located = ask_unknown(wanted, locate(wanted, Lookup::Present, &[]).await?).await?;
    let has = located.found.iter().map(|(cluster, _)| cluster.name().clone()).collect();
    // Who may not look for a namespace may write in it all the same.
    let forbids = |cluster: &ClusterName| Trouble {
        cluster: cluster.clone(),
        cause: format!("it forbids to ask for {}", resource.group_resource()),
        age: None,
    };
    let may = located.unknown.into_iter().chain(hiding.iter().map(|own| own.cluster.clone()));
    let may = may.chain(located.forbidden.iter().cloned()).collect();
    let told = located.told.into_iter().chain(located.forbidden.iter().map(forbids)).chain(hiding).collect();
    Ok(Gathered { evidence: Evidence { has, may, ..Evidence::default() }, told, not_put: located.not_put })
}

/// A request for an object, or without a name for a collection.
pub(super) fn object(
    resource: GroupVersionResource,
    namespace: Option<String>,
    name: Option<String>,
) -> ResourceRequest {
    ResourceRequest { resource, namespace, name, subresource: None, rest: None, selected_name: None }
}
