//! Where what an object refers to is: the first of its ownerReferences that is anywhere, or the object that an Event is
//! about.

use std::sync::Arc;

use futures::{StreamExt, stream};
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::rewrite::Reference;
use tributary_apimachinery::{
    GroupVersion, Object, ObjectKey, ResourceRequest, is_namespace_name, is_path_segment_name,
};
use tributary_fleet::discovery::ServedResource;
use tributary_fleet::topology::Cluster;

use super::named::object;
use crate::Router;
use crate::forward::buffered::BufferedRequest;
use crate::forward::locate::{FoundObject, Lookup, locate};
use crate::grounds::{Meaning, NoOwner};
use crate::request::ClientRequest;

/// What was found by a reference.
pub(in crate::forward) struct Referenced {
    /// The cluster that has it.
    pub(in crate::forward) cluster: Arc<Cluster>,
    /// The object that an Event is about, as last seen.
    pub(in crate::forward) involved: Option<Arc<Object>>,
}

/// What a reference is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// An owner.
    Owner,
    /// The object that an Event is about.
    Involved,
}

/// How many owners of an object are looked for. 16: objects have one, a Pod's volumes and shared resources a handful;
/// each that memory does not know costs a question to each cluster, and a client may name a thousand.
const OWNERS_MAX: usize = 16;

/// Where the first of the object's owners is that is anywhere, or the object that an Event is about.
///
/// # Errors
/// As [`referenced`].
pub(in crate::forward) async fn of_references(
    request: ClientRequest<'_>,
    held: &BufferedRequest,
) -> Result<Option<Referenced>, Refusal> {
    if let Some((cluster, _)) = first_owner(request, &held.facts.owners).await? {
        return Ok(Some(Referenced { cluster, involved: None }));
    }
    let Some(involved) = &held.facts.involved else { return Ok(None) };
    let found = match just_deleted(request, involved).await {
        None => referenced(request, involved, Role::Involved).await?,
        deleted => deleted,
    };
    Ok(found.map(|(cluster, involved)| Referenced { cluster, involved }))
}

/// The first of some owners that is anywhere. The first one alone is there most often; the others are looked for at
/// once.
async fn first_owner(request: ClientRequest<'_>, owners: &[Reference]) -> Result<Option<FoundObject>, Refusal> {
    let Some((first, others)) = owners.split_first() else { return Ok(None) };
    let found = Box::pin(referenced(request, first, Role::Owner)).await?;
    if found.is_some() {
        return Ok(found);
    }
    let others: Vec<_> =
        others.iter().take(OWNERS_MAX - 1).map(|owner| Box::pin(referenced(request, owner, Role::Owner))).collect();
    let mut looked_for = stream::iter(others).buffered(OWNERS_MAX);
    while let Some(found) = looked_for.next().await {
        let found = found?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The object that a reference names, and its cluster. `None` where nobody has it: then it is no ground for a choice.
///
/// The uid decides. Where the reference has none (or a node's name in its place, as kubelets write it) the name does,
/// if only one cluster has it.
///
/// # Errors
/// 409 where several clusters have an object of that name and uid. 503 where it is in no cluster that is known or
/// answers, and some do not, or do not let the caller look: elsewhere garbage collection would take the new object for
/// one that lost its owner. 504 where this process's own writes are not seen within 3 s.
async fn referenced(
    request: ClientRequest<'_>,
    reference: &Reference,
    role: Role,
) -> Result<Option<FoundObject>, Refusal> {
    let ClientRequest { router, resource, .. } = request;
    let Some((wanted, served)) = named(router, reference, resource) else { return Ok(None) };
    let candidates = request.candidates_of(&wanted, "get").await;
    // Where there is one cluster there is nothing to guess, and nobody collects an Event whose object is elsewhere.
    let may_guess = role == Role::Owner && request.clusters().len() > 1;
    let hiding = if may_guess { request.hiding(&served, &candidates) } else { Vec::new() };
    let wanted = request.about(&wanted, &served, &candidates);
    let uid = Some(&*reference.uid).filter(|uid| !uid.is_empty() && *uid != reference.name);
    let mut located = locate(wanted, Lookup::Surely { uid }, &[]).await?;
    located.unknown.extend(hiding.iter().map(|own| own.cluster.clone()));
    located.told.extend(hiding);
    match located.owner(Meaning::Known) {
        Ok(found) => Ok(Some(found)),
        Err(NoOwner::Several(clusters)) if uid.is_some() => {
            let (resource, name) = (wanted.resource.resource.clone(), reference.name.clone());
            Err(ClusterRefusal::UidInSeveral { resource, name, clusters }.into())
        }
        Err(NoOwner::Several(_)) => Ok(None),
        Err(NoOwner::Nowhere) if !located.is_refused() => Ok(None),
        Err(none) => Err(located.refuse(wanted, none)),
    }
}

/// What a reference names, and who serves it. Its names become parts of a path: what would lead elsewhere is no
/// reference to anything.
fn named(
    router: &Router,
    reference: &Reference,
    resource: &ResourceRequest,
) -> Option<(ResourceRequest, Arc<ServedResource>)> {
    let union = router.fleet().union();
    let group_version = GroupVersion::parse(&reference.api_version);
    let served = union.of_kind(&group_version, &reference.kind).filter(|_| is_path_segment_name(&reference.name))?;
    let namespace = Some(&reference.namespace).filter(|own| !own.is_empty()).or(resource.namespace.as_ref());
    let namespace = namespace.filter(|_| served.description.namespaced()).cloned();
    if namespace.as_deref().is_some_and(|own| !is_namespace_name(own)) {
        return None;
    }
    Some((object(served.resource.clone(), namespace, Some(reference.name.clone())), Arc::clone(served)))
}

/// The object that an Event is about, if it was deleted a moment ago: the last thing that is told of
/// many objects is that they ended.
async fn just_deleted(request: ClientRequest<'_>, reference: &Reference) -> Option<FoundObject> {
    let ClientRequest { router, resource, .. } = request;
    let (wanted, _) = named(router, reference, resource).filter(|_| !reference.uid.is_empty())?;
    let key = ObjectKey::new(wanted.namespace.as_deref().unwrap_or_default(), &reference.name);
    let is_meant = |object: &Object| object.uid() == reference.uid;
    let namespaces = [None, wanted.namespace.as_deref()].into_iter();
    let views = namespaces.filter_map(|namespace| router.views().get(&wanted.resource, namespace));
    let candidates = request.candidates_of(&wanted, "get").await;
    let mut deleted = views.filter_map(|view| {
        let log = view.log();
        let is_there =
            log.find(key.as_str()).iter().any(|(cluster, object)| candidates.has(cluster) && is_meant(object));
        if is_there { None } else { log.find_deleted(key.as_str(), is_meant) }
    });
    let (name, object) = deleted.find(|(cluster, _)| candidates.has(cluster))?;
    Some((router.fleet().cluster(&name)?, Some(object)))
}
