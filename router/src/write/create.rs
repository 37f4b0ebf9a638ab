//! New objects: to the cluster that the request, its owner or the configuration names.

use std::sync::Arc;

use http::{Request, Response};
use tributary_apimachinery::{ClusterName, RequestInfo, ResourceRequest, Status};

use super::answer::Wish;
use super::body::Held;
use super::owner::send;
use crate::Router;
use crate::body::Body;
use crate::discovery::ServedResource;
use crate::negotiate::Answer;
use crate::read::Asked;
use crate::topology::Cluster;

/// What the target is chosen for.
pub struct Placing<'a> {
    request: &'a ResourceRequest,
}

impl<'a> Placing<'a> {
    /// A target for this request.
    pub fn named(request: &'a ResourceRequest) -> Self {
        Self { request }
    }
}

/// Answers a create.
///
/// # Errors
/// 400 where no cluster is named, with the ways to name one; what the member answers passes.
pub async fn create(
    router: &Router,
    request: Request<Body>,
    info: &RequestInfo,
    resource: &ResourceRequest,
    query: Option<&str>,
    served: &ServedResource,
) -> Result<Response<Body>, Status> {
    let asked = Asked { info, request: resource, query, headers: request.headers() };
    let (form, include) = (asked.form(Answer::Object, None)?, asked.include_object()?);
    let held = Held::read(request, info.verb, resource).await?;
    let cluster = place(router, served, &held, &Placing::named(resource)).await?;
    let wish = Wish { form, include, verb: info.verb, request: resource, dry_run: held.is_dry_run() };
    send(router, &cluster, None, &held, info, query, &wish).await
}

/// Chooses the cluster of a new object: its annotation; its owner's cluster, or that of the object that an Event is about; the
/// configured placement; the only cluster there is.
///
/// # Errors
/// 400 where nothing names a cluster, or an unknown one is named.
pub async fn place(
    router: &Router,
    served: &ServedResource,
    held: &Held,
    placing: &Placing<'_>,
) -> Result<Arc<Cluster>, Status> {
    let resource = &placing.request.resource;
    let serves = |cluster: &Arc<Cluster>| served.clusters.contains(cluster.name()) || cluster.discovery().is_none();
    let configured = |name: &str| -> Result<Arc<Cluster>, Status> {
        let found = ClusterName::new(name).ok().and_then(|name| router.fleet().cluster(&name)).filter(serves);
        found.ok_or_else(|| {
            let names: Vec<_> = served.clusters.iter().map(ClusterName::as_str).collect();
            Status::bad_request(format!(
                "{resource} cannot be created in cluster {name:?}: the clusters that serve them are {}",
                names.join(", ")
            ))
        })
    };
    if let Some(named) = &held.facts.cluster {
        return configured(named);
    }
    let uids = held.facts.owner_uids.iter().chain(&held.facts.involved_uid);
    if let Some(cluster) = uids.filter(|uid| !uid.is_empty()).find_map(|uid| cluster_of_uid(router, uid)) {
        return Ok(cluster);
    }
    if let Some(placement) = router.policy(resource).placement {
        return configured(placement.as_str());
    }
    let clusters = router.fleet().clusters();
    match clusters.len() {
        1 => clusters.values().next().cloned().ok_or_else(|| Status::no_target_cluster(resource, &served.clusters)),
        _ => Err(Status::no_target_cluster(resource, &served.clusters)),
    }
}

/// The cluster that holds the object of this uid, in any resource that is held.
///
/// Cost: a walk over what is held, about 20 ns an object; only for new objects that have an owner and name no cluster.
fn cluster_of_uid(router: &Router, uid: &str) -> Option<Arc<Cluster>> {
    router.views().all().iter().find_map(|view| {
        let head = view.log().head().clone();
        let (name, _) = head.iter().find(|(_, snapshot)| snapshot.iter().any(|object| object.uid() == uid))?;
        router.fleet().cluster(name)
    })
}
