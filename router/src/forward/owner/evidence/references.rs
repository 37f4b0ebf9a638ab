//! Evidence for the ground `owner`: the cluster of the first existing object in `ownerReferences`, or of the object
//! that an Event describes.

use std::sync::Arc;

use futures::{StreamExt, stream};
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::rewrite::{Facts, Reference};
use tributary_apimachinery::{
    GroupVersion, Object, ObjectKey, ResourceRequest, is_namespace_name, is_path_segment_name,
};
use tributary_fleet::discovery::ServedResource;
use tributary_fleet::topology::Cluster;

use super::named::object_request;
use crate::forward::owner::answers::FoundObject;
use crate::forward::owner::decision::{Claim, OwnerError};
use crate::forward::owner::search::{LookupScope, Search};
use crate::request::ClientRequest;

pub(in crate::forward) struct Referenced {
    pub(in crate::forward) cluster: Arc<Cluster>,
    /// Last known state of the object that an Event describes.
    pub(in crate::forward) involved: Option<Arc<Object>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// An entry of `ownerReferences`.
    Owner,
    /// The `involvedObject` or `regarding` of an Event.
    Involved,
}

/// Maximum of ownerReferences that Tributary looks up. Most objects have one owner, and a Pod's volumes and shared
/// resources a handful. Each owner that memory lacks costs a lookup in each cluster, and a client may name a thousand.
const OWNERS_MAX: usize = 16;

/// Finds the first owner of the object that exists, or the object that an Event describes.
///
/// # Errors
/// The errors of [`find_reference`].
pub(in crate::forward) async fn find_referenced(
    request: ClientRequest<'_>,
    facts: &Facts,
) -> Result<Option<Referenced>, Refusal> {
    if let Some(FoundObject { cluster, .. }) = find_first_owner(request, &facts.owners).await? {
        return Ok(Some(Referenced { cluster, involved: None }));
    }
    let Some(involved) = &facts.involved else { return Ok(None) };
    let found = match find_deleted(request, involved).await {
        None => find_reference(request, involved, Role::Involved).await?,
        deleted => deleted,
    };
    Ok(found.map(|FoundObject { cluster, object }| Referenced { cluster, involved: object }))
}

/// Finds the first owner that exists: usually the first reference. The lookups of the other references run in parallel.
async fn find_first_owner(request: ClientRequest<'_>, owners: &[Reference]) -> Result<Option<FoundObject>, Refusal> {
    let Some((first, others)) = owners.split_first() else { return Ok(None) };
    let found = Box::pin(find_reference(request, first, Role::Owner)).await?;
    if found.is_some() {
        return Ok(found);
    }
    let others: Vec<_> =
        others.iter().take(OWNERS_MAX - 1).map(|owner| Box::pin(find_reference(request, owner, Role::Owner))).collect();
    let mut searches = stream::iter(others).buffered(OWNERS_MAX);
    while let Some(found) = searches.next().await {
        let found = found?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Finds the object that a reference names. `None` if no cluster has the object: the reference then does not decide the
/// cluster of the write.
///
/// The uid identifies the object. If the reference has no uid (or a node's name as uid, as kubelets write it), the name
/// identifies the object, provided that only one cluster has an object of the name.
///
/// # Errors
/// 409 if several clusters have an object of that name and uid. 503 if no answering cluster has the object, and some
/// cluster does not answer or forbids the lookup: in the wrong cluster, garbage collection would delete the new object
/// because its owner is missing. 504 if Tributary's own writes do not appear in memory within 3 s.
async fn find_reference(
    request: ClientRequest<'_>,
    reference: &Reference,
    role: Role,
) -> Result<Option<FoundObject>, Refusal> {
    let Some((wanted, served)) = read_reference(request, reference) else { return Ok(None) };
    let candidates = request.candidates_of(&wanted, "get").await;
    // A wrong guess is impossible with one cluster, and harmless for an Event, which garbage collection does not
    // delete.
    let is_guess_harmful = role == Role::Owner && request.clusters().len() > 1;
    let hiding = if is_guess_harmful { request.hiding(&served, &candidates) } else { Vec::new() };
    let uid = Some(&*reference.uid).filter(|uid| !uid.is_empty() && *uid != reference.name);
    let wanted = request.about(&wanted, &served, &candidates);
    let mut searched = Search::new(wanted, LookupScope::AllClusters).with_uid(uid).run().await?;
    searched.add_hiding(hiding);
    let complete = searched.complete(Claim::AnyKnown).await;
    match complete.owner() {
        Ok(found) => Ok(Some(found)),
        Err(OwnerError::Several(clusters)) if uid.is_some() => {
            let (resource, name) = (wanted.resource.resource.clone(), reference.name.clone());
            Err(ClusterRefusal::UidInSeveral { resource, name, clusters }.into())
        }
        Err(OwnerError::Several(_)) => Ok(None),
        Err(OwnerError::NotFound) if !complete.is_refused() => Ok(None),
        Err(none) => Err(complete.refuse(none)),
    }
}

/// Makes the request for the object that a reference names, and finds the served resource. `None` if the names in the
/// reference are not valid in a path.
fn read_reference(request: ClientRequest<'_>, reference: &Reference) -> Option<(ResourceRequest, Arc<ServedResource>)> {
    let merged_discovery = request.router.fleet().merged_discovery();
    let group_version = GroupVersion::parse(&reference.api_version);
    let served =
        merged_discovery.of_kind(&group_version, &reference.kind).filter(|_| is_path_segment_name(&reference.name))?;
    let own_namespace = request.resource.namespace.as_ref();
    let namespace = Some(&reference.namespace).filter(|own| !own.is_empty()).or(own_namespace);
    let namespace = namespace.filter(|_| served.description.namespaced()).cloned();
    if namespace.as_deref().is_some_and(|own| !is_namespace_name(own)) {
        return None;
    }
    Some((object_request(served.resource.clone(), namespace, Some(reference.name.clone())), Arc::clone(served)))
}

/// Finds the object of an Event shortly after the deletion of the object: the last Event often reports this deletion.
async fn find_deleted(request: ClientRequest<'_>, reference: &Reference) -> Option<FoundObject> {
    let router = request.router;
    let (wanted, _) = read_reference(request, reference).filter(|_| !reference.uid.is_empty())?;
    let key = ObjectKey::new(wanted.namespace.as_deref().unwrap_or_default(), &reference.name);
    let has_uid = |object: &Object| object.uid() == reference.uid;
    let namespaces = [None, wanted.namespace.as_deref()].into_iter();
    let views = namespaces.filter_map(|namespace| router.views().get(&wanted.resource, namespace));
    let candidates = request.candidates_of(&wanted, "get").await;
    let mut deleted = views.filter_map(|view| {
        let log = view.log();
        let exists = log.find(key.as_str()).iter().any(|(cluster, object)| candidates.has(cluster) && has_uid(object));
        if exists { None } else { log.find_deleted(key.as_str(), has_uid) }
    });
    let (name, object) = deleted.find(|(cluster, _)| candidates.has(cluster))?;
    Some(FoundObject { cluster: router.fleet().cluster(&name)?, object: Some(object) })
}
