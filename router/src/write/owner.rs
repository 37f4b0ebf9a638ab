//! Requests for one object: to the cluster that owns it.

use std::sync::Arc;

use http::{Request, Response};
use tributary_apimachinery::{Object, RequestInfo, ResourceRequest, Status, Verb, rewrite};
use tributary_merge::CompositeResourceVersion;

use super::answer::{Wish, translate};
use super::body::Held;
use super::create::{Placing, place};
use super::forward::forward;
use super::locate::locate;
use crate::Router;
use crate::body::Body;
use crate::discovery::ServedResource;
use crate::negotiate::Answer;
use crate::plan::OwnerRequest;
use crate::read::Asked;
use crate::topology::Cluster;

/// Answers a request for one object.
///
/// # Errors
/// 404, 503 or 409 where there is no owner; 409 for a version of another cluster; what the member answers passes.
pub async fn to_owner(
    router: &Router,
    request: Request<Body>,
    info: &RequestInfo,
    resource: &ResourceRequest,
    query: Option<&str>,
    served: &ServedResource,
    kind: OwnerRequest,
) -> Result<Response<Body>, Status> {
    if kind == OwnerRequest::Opaque {
        let located = locate(router, resource, served, request.headers()).await?;
        let (cluster, _) = located.owner(resource, None, &info.path)?.ok_or_else(|| located.missing(resource))?;
        return forward(&cluster, request, &info.path, query).await;
    }
    let asked = Asked { info, request: resource, query, headers: request.headers() };
    let (form, include) = (asked.form(Answer::Object, None)?, asked.include_object()?);
    let held = Held::read(request, info.verb, resource).await?;
    let located = locate(router, resource, served, &held.head.headers).await?;
    let wish = Wish { form, include, verb: info.verb, request: resource, dry_run: held.is_dry_run() };
    let Some((cluster, object)) = located.owner(resource, held.facts.cluster.as_deref(), &info.path)? else {
        return match makes_objects(info.verb, resource, &held) && located.unknown.is_empty() {
            true => {
                let cluster = place(router, served, &held, &Placing::named(resource)).await?;
                send(router, &cluster, None, &held, info, query, &wish).await
            }
            false => Err(located.missing(resource)),
        };
    };
    send(router, &cluster, Some(&object), &held, info, query, &wish).await
}

/// Whether the request makes the object where there is none: an apply, or a PUT (kinds that do not allow it say 404).
fn makes_objects(verb: Verb, resource: &ResourceRequest, held: &Held) -> bool {
    resource.subresource.is_none() && (verb == Verb::Update || held.is_apply())
}

/// Sends a held request to a cluster and gives its answer.
pub async fn send(
    router: &Router,
    cluster: &Arc<Cluster>,
    object: Option<&Arc<Object>>,
    held: &Held,
    info: &RequestInfo,
    query: Option<&str>,
    wish: &Wish<'_>,
) -> Result<Response<Body>, Status> {
    let has_annotations = object.is_none_or(|object| object.has_annotations());
    let mut version = |text: &str| native(router, cluster, object, wish.request, text);
    let request = held.for_member(has_annotations, wish.accept(), &mut version)?;
    let query = match query {
        Some(query) if info.verb == Verb::Delete => Some(rewrite::rewrite_query(query, &mut version)?),
        query => query.map(str::to_owned),
    };
    let query = query.map(|query| for_live_read(info.verb, &query));
    let answer = forward(cluster, request, &info.path, query.as_deref()).await?;
    translate(router, cluster, answer, wish).await
}

/// A live read asks for the newest: a version of the merged view means nothing to the member.
fn for_live_read(verb: Verb, query: &str) -> String {
    if verb != Verb::Get {
        return query.to_owned();
    }
    let kept: Vec<_> = query.split('&').filter(|pair| !pair.starts_with("resourceVersion=")).collect();
    kept.join("&")
}

/// The member's own version for one that a client sent back: the object's as last seen, where the client's vector covers
/// that, else the vector's component, which the member will refuse if it is stale.
///
/// # Errors
/// 409 for what is no version of this cluster's object: another cluster's, a plain number, or garbage.
fn native(
    router: &Router,
    cluster: &Arc<Cluster>,
    object: Option<&Arc<Object>>,
    request: &ResourceRequest,
    text: &str,
) -> Result<String, Status> {
    let name = request.name.as_deref().unwrap_or_default();
    let version = CompositeResourceVersion::decode(text, &router.epochs()).map_err(|error| {
        Status::conflict(
            &request.resource,
            name,
            &format!("its resourceVersion is not one that was handed out here ({error}); read the object again"),
        )
    })?;
    let component = version.get(cluster.name()).ok_or_else(|| {
        Status::conflict(
            &request.resource,
            name,
            &format!(
                "its resourceVersion is not of cluster {}, which has the object; read the object again",
                cluster.name()
            ),
        )
    })?;
    let own = object.map(|object| object.resource_version()).filter(|own| *own <= component);
    Ok(own.unwrap_or(component).to_string())
}
