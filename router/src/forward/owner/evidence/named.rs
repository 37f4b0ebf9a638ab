//! Finds the clusters of an object to which a write refers, such as its namespace.

use tributary_answers::refusal::{ClusterFailure, Refusal};
use tributary_apimachinery::{ClusterName, GroupVersionResource, ResourceRequest};
use tributary_rights::Candidates;

use super::gathered::Gathered;
use crate::forward::owner::answers::Answers;
use crate::forward::owner::decision::Evidence;
use crate::forward::owner::search::{LookupScope, Search};
use crate::request::ClientRequest;

pub(in crate::forward) struct NamedObject<'a> {
    pub(in crate::forward) resource: GroupVersionResource,
    pub(in crate::forward) namespace: Option<&'a str>,
    pub(in crate::forward) name: &'a str,
}

/// Finds the clusters among `counting` that have the object.
///
/// # Errors
/// The errors of [`Search::run`].
pub(in crate::forward) async fn find_named(
    request: ClientRequest<'_>,
    counting: &Candidates,
    NamedObject { resource, namespace, name }: NamedObject<'_>,
) -> Result<Gathered, Refusal> {
    let merged_discovery = request.router.fleet().merged_discovery();
    let Some(served) = merged_discovery.get(&resource) else { return Ok(Gathered::default()) };
    let wanted = object_request(resource, namespace.map(str::to_owned), Some(name.to_owned()));
    let candidates = request.candidates_of(&wanted, "get").await.within(counting);
    let hiding = request.hiding(served, &candidates);
    let search =
        Search::new(request.about(&wanted, served, &candidates), LookupScope::Existing).with_unknown_clusters();
    let Answers { found, unknown, failures, forbidden, not_sent, .. } = search.run().await?.answers;
    let has = found.iter().map(|found| found.cluster.name().clone()).collect();
    // A client that may not get a namespace may still write in the namespace. So a cluster that forbids the lookup may
    // have the object.
    let forbids = |cluster: &ClusterName| ClusterFailure {
        cluster: cluster.clone(),
        cause: format!("the cluster forbids you to get {}", wanted.resource.group_resource()),
        age: None,
    };
    let failures = failures.into_iter().chain(forbidden.iter().map(forbids)).chain(hiding.iter().cloned()).collect();
    let may = unknown.into_iter().chain(hiding.into_iter().map(|own| own.cluster)).chain(forbidden).collect();
    Ok(Gathered { evidence: Evidence { has, may, ..Evidence::default() }, failures, not_sent })
}

/// Makes a request for an object, or without a name for a collection.
pub(in crate::forward::owner) fn object_request(
    resource: GroupVersionResource,
    namespace: Option<String>,
    name: Option<String>,
) -> ResourceRequest {
    ResourceRequest { resource, namespace, name, subresource: None, rest: None, selected_name: None }
}
