//! New objects: to the cluster that the request, its owner or the configuration names.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tributary_apimachinery::rewrite::Reference;
use tributary_apimachinery::{ClusterName, GroupVersion, ItemResourceVersions, Object, ObjectKey, ResourceRequest};

use super::answer::TranslationOptions;
use super::buffered::BufferedRequest;
use super::locate::{Found, Lookup, locate};
use super::target::{OwnerTarget, send_translated};
use crate::Router;
use crate::body::{Body, WHOLE_BODY_BYTES_MAX};
use crate::discovery::ServedResource;
use crate::ownership::NoOwner;
use crate::refusal::{ClusterRefusal, Refusal, RequestRefusal};
use crate::request::ClientRequest;
use crate::topology::Cluster;

/// Answers a create.
///
/// # Errors
/// 400 where no cluster is named, with the ways to name one; what the member answers passes.
pub(crate) async fn create(request: ClientRequest<'_>, message: Request<Body>) -> Result<Response<Body>, Refusal> {
    let ClientRequest { info, resource, served, .. } = request;
    let (form, include) = request.object_form()?;
    let held = BufferedRequest::read(request, info.verb, message, WHOLE_BODY_BYTES_MAX).await?;
    if held.facts.resource_version.as_deref().is_some_and(|version| version != "0") {
        return Err(RequestRefusal::VersionOfNew.into());
    }
    let target = place(request, &held).await?;
    let target = target.ok_or_else(|| not_named(resource, served))?;
    if request.configuration.items(&resource.resource) == ItemResourceVersions::Integer {
        hold(request).await;
    }
    let error_form = request.preferences.error_form();
    let wish = TranslationOptions { form, error_form, include, writes: !held.is_dry_run() };
    send_translated(request, &target, &held, &wish).await
}

/// Sees to it that the resource is held before an object of it is made: a watch that goes on after the object's integer
/// needs its event in the log, and in a log that begins later it is not.
async fn hold(request: ClientRequest<'_>) {
    if request.is_held() {
        // An object can be made where the others cannot be read.
        let held = request.view();
        let _ = tokio::time::timeout(HELD_WITHIN, held).await;
    }
}

/// How long a create waits until its resource is held. It does so once, where nobody has read the resource before.
const HELD_WITHIN: Duration = Duration::from_secs(3);

/// Nothing names the cluster of a new object.
pub(super) fn not_named(resource: &ResourceRequest, served: &ServedResource) -> ClusterRefusal {
    ClusterRefusal::NotNamed { resource: resource.resource.clone(), clusters: served.clusters.clone() }
}

/// Chooses the cluster of a new object: its annotation; its owner's cluster, or that of the object that an Event is
/// about; the configured placement; the only cluster there is. `None` where nothing names one.
///
/// # Errors
/// 400 where a cluster is named that does not serve the resource; 503 where the owner may be in a
/// cluster that is unknown.
pub(crate) async fn place(request: ClientRequest<'_>, held: &BufferedRequest) -> Result<Option<OwnerTarget>, Refusal> {
    let ClientRequest { router, served, resource, .. } = request;
    let target = |cluster| OwnerTarget { cluster, object: None, involved: None };
    if let Some(named) = &held.facts.cluster {
        return Ok(Some(target(configured(router, served, named)?)));
    }
    for owner in &held.facts.owners {
        if let Some((cluster, _)) = referenced(request, owner).await? {
            return Ok(Some(target(cluster)));
        }
    }
    if let Some(involved) = &held.facts.involved {
        let found = match just_deleted(router, involved, resource) {
            None => referenced(request, involved).await?,
            deleted => deleted,
        };
        if let Some((cluster, object)) = found {
            return Ok(Some(OwnerTarget { cluster, object: None, involved: object }));
        }
    }
    if let Some(placement) = &request.configuration.policy(&resource.resource).placement {
        return Ok(Some(target(configured(router, served, placement.as_str())?)));
    }
    let clusters = router.fleet().clusters();
    Ok(clusters.values().next().filter(|_| clusters.len() == 1).cloned().map(target))
}

/// The cluster of this name.
///
/// # Errors
/// 400 naming the clusters that serve the resource.
fn configured(router: &Router, served: &ServedResource, name: &str) -> Result<Arc<Cluster>, ClusterRefusal> {
    let serves = |cluster: &Arc<Cluster>| served.clusters.contains(cluster.name()) || cluster.discovery().is_none();
    let found = ClusterName::new(name).ok().and_then(|name| router.fleet().cluster(&name)).filter(serves);
    found.ok_or_else(|| {
        let (resource, clusters) = (served.resource.clone(), served.clusters.clone());
        ClusterRefusal::NotServing { resource, named: name.to_owned(), clusters }
    })
}

/// The object that a reference names, and its cluster. `None` where nobody has it: then it is no ground for a choice.
///
/// The uid decides. Where the reference has none (or a node's name in its place, as kubelets write it) the name does,
/// if only one cluster has it.
///
/// # Errors
/// 503 where it is in no cluster that is known or answers, and some do not: elsewhere garbage collection would take the
/// new object for one that lost its owner. 504 where this process's own writes are not seen within 3 s.
async fn referenced(request: ClientRequest<'_>, reference: &Reference) -> Result<Option<Found>, Refusal> {
    let ClientRequest { router, resource, .. } = request;
    let Some((wanted, served)) = named(router, reference, resource) else { return Ok(None) };
    let wanted = ClientRequest { resource: &wanted, served: &served, ..request };
    let uid = Some(&*reference.uid).filter(|uid| !uid.is_empty() && *uid != reference.name);
    let located = locate(wanted, Lookup::Surely { uid }, &[]).await?;
    match located.owner(None) {
        Ok(found) => Ok(Some(found)),
        Err(NoOwner::Several(_)) => Ok(None),
        Err(NoOwner::Nowhere) if located.refusal.is_none() => Ok(None),
        Err(none) => Err(located.refuse(wanted, none)),
    }
}

/// What a reference names, and who serves it.
fn named(
    router: &Router,
    reference: &Reference,
    resource: &ResourceRequest,
) -> Option<(ResourceRequest, Arc<ServedResource>)> {
    let union = router.fleet().union();
    let group_version = GroupVersion::parse(&reference.api_version);
    let served = union.of_kind(&group_version, &reference.kind).filter(|_| !reference.name.is_empty())?;
    let namespace = Some(&reference.namespace).filter(|own| !own.is_empty()).or(resource.namespace.as_ref());
    let wanted = ResourceRequest {
        resource: served.resource.clone(),
        namespace: namespace.filter(|_| served.description.namespaced()).cloned(),
        name: Some(reference.name.clone()),
        subresource: None,
        rest: None,
        selected_name: None,
    };
    Some((wanted, Arc::clone(served)))
}

/// The object that an Event is about, if it was deleted a moment ago: the last thing that is told of
/// many objects is that they ended.
fn just_deleted(router: &Router, reference: &Reference, resource: &ResourceRequest) -> Option<Found> {
    let (wanted, _) = named(router, reference, resource).filter(|_| !reference.uid.is_empty())?;
    let key = ObjectKey::new(wanted.namespace.as_deref().unwrap_or_default(), &reference.name);
    let is_meant = |object: &Object| object.uid() == reference.uid;
    let namespaces = [None, wanted.namespace.as_deref()].into_iter();
    let views = namespaces.filter_map(|namespace| router.views().get(&wanted.resource, namespace));
    let mut deleted = views.filter_map(|view| {
        let log = view.log();
        let is_there = log.find(key.as_str()).iter().any(|(_, object)| is_meant(object));
        if is_there { None } else { log.find_deleted(key.as_str(), is_meant) }
    });
    let (name, object) = deleted.next()?;
    Some((router.fleet().cluster(&name)?, Some(object)))
}
