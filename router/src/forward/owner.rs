//! Requests for one object: to the cluster that owns it.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use tributary_apimachinery::rewrite::{self, VersionOf};
use tributary_apimachinery::{GetOptions, Object, Query, ResourceRequest, Status, Verb};
use tributary_merge::CompositeResourceVersion;

use super::Call;
use super::answer::{Wish, translate};
use super::create::place;
use super::integers;
use super::locate::{Asker, Located, locate, locate_elsewhere, locate_now, locate_surely};
use super::whole;
use crate::Router;
use crate::body::{Body, WHOLE_BODY_BYTES_MAX};
use crate::forward::buffered::Held;
use crate::forward::send::forward;
use crate::negotiate::Answer;
use crate::plan::OwnerRequest;
use crate::topology::Cluster;
use crate::versions::Given;

/// Where a request goes, and what its versions are translated by.
pub struct Target {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// The object that the request is for, as last seen; `None` for a new one.
    pub object: Option<Arc<Object>>,
    /// The object that an Event is about, where it was looked up.
    pub involved: Option<Arc<Object>>,
}

/// Answers a request for one object.
///
/// # Errors
/// 404, 503 or 409 where there is no owner; 409 for a version of another cluster; what the member answers passes.
pub async fn to_owner(call: Call<'_>, request: Request<Body>, kind: OwnerRequest) -> Result<Response<Body>, Status> {
    let Call { router, info, resource, query, served, .. } = call;
    if kind == OwnerRequest::Opaque {
        let object = proxied_object(resource);
        let located = locate_now(router, &object, served, Asker::of(request.headers(), request.extensions())).await?;
        let (cluster, _) =
            located.owner(router, &object, None, &info.path)?.ok_or_else(|| located.missing(router, &object))?;
        return forward(&cluster, request, &info.path, query).await;
    }
    let form = call.preferences.form(Answer::Object)?;
    let include = if info.verb == Verb::Get {
        GetOptions::parse(query)?;
        None
    } else {
        Some(call.finish(form)?)
    };
    let held = Held::read(call, info.verb, request, WHOLE_BODY_BYTES_MAX).await?;
    let located = if held.is_apply() && held.facts.cluster.is_none() {
        // What an apply does not find it makes, and a second object of the name would be ambiguous from then on.
        locate_surely(router, resource, served, held.asker(), |_| true).await?
    } else if held.is_apply() {
        locate(router, resource, served, held.asker()).await?
    } else {
        locate_now(router, resource, served, held.asker()).await?
    };
    let located = seen_as_much(call, &held, located).await?;
    let target = match located.owner(router, resource, held.facts.cluster.as_deref(), &info.path)? {
        Some((cluster, object)) => Target { cluster, object, involved: None },
        None => target_of_new(call, &held, &located).await?,
    };
    let include = include.map_or_else(|| call.finish(form), Ok)?;
    let (error_form, writes) = (call.preferences.error_form(), !info.verb.is_read() && !held.is_dry_run());
    let wish = Wish { form, error_form, include, request: resource, writes };
    let answer = send(call, &target, &held, &wish).await?;
    if info.verb == Verb::Get && answer.status() == StatusCode::NOT_FOUND && router.asks_members(&resource.resource) {
        return moved(call, &target, &held, &wish, answer).await;
    }
    Ok(answer)
}

/// The answer to a get that asks the members and whose owner, as memory knows it, has the object no longer: another may have it.
async fn moved(
    call: Call<'_>,
    target: &Target,
    held: &Held,
    wish: &Wish<'_>,
    answer: Response<Body>,
) -> Result<Response<Body>, Status> {
    let Call { router, info, resource, served, .. } = call;
    let located = locate_elsewhere(router, resource, served, held.asker(), target.cluster.name()).await;
    match located.owner(router, resource, None, &info.path)? {
        Some((cluster, object)) => send(call, &Target { cluster, object, involved: None }, held, wish).await,
        None if located.unknown.is_empty() => Ok(answer),
        None => Err(located.missing(router, resource)),
    }
}

/// The object as it is once memory knows as much of its cluster as the client does, who may have it from a live read, from an
/// event of another process, or from a write past this one. Without this its fresh version would be taken for a stale one.
///
/// # Errors
/// As [`locate`]. A version that does not come is no error here: the member judges what is sent.
async fn seen_as_much(call: Call<'_>, held: &Held, located: Located) -> Result<Located, Status> {
    let Call { router, info, resource, query, served, .. } = call;
    let query = Query::parse(query.filter(|_| info.verb == Verb::Delete));
    let facts = &held.facts;
    let texts = [facts.resource_version.as_deref(), facts.precondition_resource_version.as_deref()];
    let texts = texts.into_iter().chain([query.get("resourceVersion")]).flatten();
    let versions = router.versions(&resource.resource);
    let seen: Vec<_> = texts.filter_map(|text| versions.decode(text).ok()).collect();
    if seen.is_empty() || !router.is_held(served, resource.namespace.as_deref()) {
        return Ok(located);
    }
    let (view, _) = router.view(served, resource.namespace.as_deref(), held.holder()).await?;
    let of_owners = located.found.iter().flat_map(|(cluster, _)| {
        let name = cluster.name();
        seen.iter().filter_map(move |given| Some((name.clone(), given.component(name)?)))
    });
    let mut missing = CompositeResourceVersion::new();
    for (cluster, version) in of_owners {
        if view.version_of(&cluster).is_none_or(|own| own < version) {
            missing.raise(&cluster, version);
        }
    }
    if missing.is_empty() {
        return Ok(located);
    }
    let _ = view.reached(&missing).await;
    let again = locate(router, resource, served, held.asker()).await?;
    Ok(if again.found.is_empty() { located } else { again })
}

/// Where a request goes that makes the object if there is none: an apply, or a PUT (kinds that are not made by a PUT say 404,
/// and so does this where nothing names a cluster).
async fn target_of_new(call: Call<'_>, held: &Held, located: &Located) -> Result<Target, Status> {
    let Call { router, info, resource, served, .. } = call;
    let verb = info.verb;
    let makes_objects = resource.subresource.is_none() && (verb == Verb::Update || held.is_apply());
    if !makes_objects || !located.unknown.is_empty() || located.refusal.is_some() {
        return Err(located.missing(router, resource));
    }
    place(call, held).await?.ok_or_else(|| match verb {
        Verb::Update => located.missing(router, resource),
        _ => Status::no_target_cluster(&resource.resource, &served.clusters),
    })
}

/// The object behind a request that passes untouched: what is proxied may be named `[scheme:]name:port`
/// (`SplitSchemeNamePort` in apimachinery).
fn proxied_object(request: &ResourceRequest) -> ResourceRequest {
    let mut object = request.clone();
    if request.subresource.as_deref() == Some("proxy")
        && let Some(named) = &request.name
    {
        let parts: Vec<_> = named.split(':').collect();
        object.name = match parts[..] {
            [name, _] | [_, name, _] => Some(name.to_owned()),
            _ => object.name,
        };
    }
    object
}

/// Sends a held request to a cluster and gives its answer.
///
/// # Errors
/// 409 for a version of another cluster; 400 where the answer to a write could not carry its version; 429 where there is no room for the
/// answer; 503 and 504 where there is none.
pub async fn send(call: Call<'_>, target: &Target, held: &Held, wish: &Wish<'_>) -> Result<Response<Body>, Status> {
    let Call { router, info, query, .. } = call;
    if wish.writes {
        integers::fits(call, target)?;
    }
    let has_annotations = target.object.as_ref().is_none_or(|object| object.has_annotations());
    let mut version = |of: VersionOf, text: &str| match of {
        VersionOf::Object => native(router, target, wish.request, text),
        VersionOf::Reference => Ok(reference_version(router, target, text)),
    };
    let turn = router.large_bodies().turn(held.holder(), held.body.len()).await;
    let request = turn.run(|| held.for_member(has_annotations, wish.accept(), &mut version))?;
    let query = match query {
        // Where there is a body the member reads no options from the query.
        Some(query) if info.verb == Verb::Delete && held.body.is_empty() => {
            Some(rewrite::rewrite_query(query, &mut version)?)
        }
        query => query.map(|query| for_live_read(info.verb, query)),
    };
    let known = target.object.as_ref().map_or(0, |object| object.size()).max(held.body.len());
    let room = whole::room(router, &held.head.extensions, known)?;
    let answer = forward(&target.cluster, request, &info.path, query.as_deref()).await?;
    translate(router, &target.cluster, answer, room, wish).await
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
/// that, else the vector's component, which the member will refuse if it is stale. An integer is of one object, so what it says is
/// taken as it is. Of a new object the version says nothing, as in kube-apiserver's own `Store.Update`.
///
/// # Errors
/// 409 for what is no version of this cluster's object: another cluster's, a plain number, or garbage.
fn native(router: &Router, target: &Target, request: &ResourceRequest, text: &str) -> Result<String, Status> {
    let Some(object) = &target.object else { return Ok(String::new()) };
    let refuse = |cause: &str| {
        let name = request.name.as_deref().unwrap_or_default();
        Status::conflict(&request.resource, name, &format!("its resourceVersion is not {cause}; read the object again"))
    };
    let given = router
        .versions(&request.resource)
        .decode(text)
        .map_err(|error| refuse(&format!("one that was handed out here ({error})")))?;
    let cluster = target.cluster.name();
    let component =
        given.component(cluster).ok_or_else(|| refuse(&format!("of cluster {cluster}, which has the object")))?;
    let own = object.resource_version();
    let covered = matches!(given, Given::Vector(_)) && component >= own;
    Ok(if covered { own } else { component.revision() }.to_string())
}

/// The member's own version for one that an Event notes of the object that it is about: as [`native`], but what means nothing to
/// the member is left out, because nothing depends on it.
fn reference_version(router: &Router, target: &Target, text: &str) -> String {
    let given = router.versions_of_any().decode(text).ok();
    match given.as_ref().and_then(|given| Some((given, given.component(target.cluster.name())?))) {
        None => String::new(),
        Some((Given::Item(..), own)) => own.revision().to_string(),
        Some((Given::Vector(_), component)) => {
            let own = target.involved.as_ref().map(|object| object.resource_version());
            own.filter(|own| component >= *own).unwrap_or(component.revision()).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_apimachinery::RequestInfo;

    use super::*;

    #[test]
    fn proxied_names_are_taken_apart() {
        for (path, expected) in [
            ("/api/v1/namespaces/n/services/web/proxy", "web"),
            ("/api/v1/namespaces/n/services/web:80/proxy/x", "web"),
            ("/api/v1/namespaces/n/services/https:web:443/proxy/", "web"),
            ("/api/v1/namespaces/n/pods/p/log", "p"),
        ] {
            let info = RequestInfo::parse("GET", path, None).unwrap();
            assert_eq!(proxied_object(info.resource().unwrap()).name.as_deref(), Some(expected), "{path}");
        }
    }

    #[test]
    fn live_reads_ask_for_the_newest() {
        assert_eq!(for_live_read(Verb::Get, "a=b&resourceVersion=x&c"), "a=b&c");
        assert_eq!(for_live_read(Verb::Patch, "resourceVersion=x"), "resourceVersion=x");
    }
}
