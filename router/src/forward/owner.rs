//! Requests for one object: to the cluster that owns it.

use http::{Request, Response, StatusCode};
use tributary_apimachinery::{GetOptions, Query, ResourceRequest, Verb};
use tributary_merge::CompositeResourceVersion;

use super::answer::TranslationOptions;
use super::buffered::BufferedRequest;
use super::create::{not_named, place};
use super::locate::{Located, locate, locate_elsewhere, locate_now, locate_surely};
use super::send::send;
use super::target::{OwnerTarget, send_translated};
use crate::body::{Body, WHOLE_BODY_BYTES_MAX};
use crate::negotiate::ResponseKind;
use crate::ownership::NoOwner;
use crate::plan::OwnerRequest;
use crate::refusal::Refusal;
use crate::request::ClientRequest;

/// Answers a request for one object.
///
/// # Errors
/// 404, 503 or 409 where there is no owner; 409 for a version of another cluster; what the member answers passes.
pub(crate) async fn to_owner(
    request: ClientRequest<'_>,
    message: Request<Body>,
    kind: OwnerRequest,
) -> Result<Response<Body>, Refusal> {
    let ClientRequest { caller, info, resource, query, .. } = request;
    if kind == OwnerRequest::Opaque {
        let object = proxied_object(resource);
        let object = ClientRequest { resource: &object, ..request };
        let located = locate_now(object).await?;
        let (cluster, _) = located.owner(None).map_err(|none| located.refuse(object, none))?;
        return send(&cluster, caller, message, &info.path, query).await;
    }
    let form = request.preferences.form(ResponseKind::Object)?;
    let include = if info.verb == Verb::Get {
        GetOptions::parse(query).map_err(Refusal::malformed)?;
        None
    } else {
        Some(request.finish(form, ResponseKind::Object)?)
    };
    let held = BufferedRequest::read(request, info.verb, message, WHOLE_BODY_BYTES_MAX).await?;
    let located = if held.is_apply() && held.facts.cluster.is_none() {
        // What an apply does not find it makes, and a second object of the name would be ambiguous from then on.
        locate_surely(request, |_| true).await?
    } else if held.is_apply() {
        locate(request).await?
    } else {
        locate_now(request).await?
    };
    let located = seen_as_much(request, &held, located).await?;
    let target = match located.owner(held.facts.cluster.as_deref()) {
        Ok((cluster, object)) => OwnerTarget { cluster, object, involved: None },
        Err(NoOwner::Nowhere) => target_of_new(request, &held, &located).await?,
        Err(none) => return Err(located.refuse(request, none)),
    };
    let include = include.map_or_else(|| request.finish(form, ResponseKind::Object), Ok)?;
    let (error_form, writes) = (request.preferences.error_form(), !info.verb.is_read() && !held.is_dry_run());
    let wish = TranslationOptions { form, error_form, include, writes };
    let answer = send_translated(request, &target, &held, &wish).await?;
    if info.verb == Verb::Get
        && answer.status() == StatusCode::NOT_FOUND
        && request.configuration.asks_members(&resource.resource)
    {
        return moved(request, &target, &held, &wish, answer).await;
    }
    Ok(answer)
}

/// The answer to a get that asks the members and whose owner, as memory knows it, has the object no longer:
/// another may have it.
async fn moved(
    request: ClientRequest<'_>,
    target: &OwnerTarget,
    held: &BufferedRequest,
    wish: &TranslationOptions,
    answer: Response<Body>,
) -> Result<Response<Body>, Refusal> {
    let located = locate_elsewhere(request, target.cluster.name()).await;
    match located.owner(None) {
        Ok((cluster, object)) => {
            send_translated(request, &OwnerTarget { cluster, object, involved: None }, held, wish).await
        }
        Err(NoOwner::Nowhere) => Ok(answer),
        Err(none) => Err(located.refuse(request, none)),
    }
}

/// The object as it is once memory knows as much of its cluster as the client does, who may have it from a live read,
/// from an event of another process, or from a write past this one. Without this its fresh version
/// would be taken for a stale one.
///
/// # Errors
/// As [`locate`]. A version that does not come is no error here: the member judges what is sent.
async fn seen_as_much(
    request: ClientRequest<'_>,
    held: &BufferedRequest,
    located: Located,
) -> Result<Located, Refusal> {
    let ClientRequest { info, resource, query, .. } = request;
    let query = Query::parse(query.filter(|_| info.verb == Verb::Delete));
    let facts = &held.facts;
    let texts = [facts.resource_version.as_deref(), facts.precondition_resource_version.as_deref()];
    let texts = texts.into_iter().chain([query.get("resourceVersion")]).flatten();
    let versions = request.configuration.versions(&resource.resource);
    let seen: Vec<_> = texts.filter_map(|text| versions.decode(text).ok()).collect();
    if seen.is_empty() || !request.is_held() {
        return Ok(located);
    }
    let (view, _) = request.view().await?;
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
    let again = locate(request).await?;
    Ok(if again.found.is_empty() { located } else { again })
}

/// Where a request goes whose object is nowhere: an apply or a PUT makes it (kinds that are not made by a PUT say 404,
/// and so does this where nothing names a cluster).
async fn target_of_new(
    request: ClientRequest<'_>,
    held: &BufferedRequest,
    located: &Located,
) -> Result<OwnerTarget, Refusal> {
    let ClientRequest { info, resource, served, .. } = request;
    let verb = info.verb;
    let makes_objects = resource.subresource.is_none() && (verb == Verb::Update || held.is_apply());
    if !makes_objects || located.refusal.is_some() {
        return Err(located.refuse(request, NoOwner::Nowhere));
    }
    place(request, held).await?.ok_or_else(|| match verb {
        Verb::Update => located.refuse(request, NoOwner::Nowhere),
        _ => not_named(resource, served).into(),
    })
}

/// The object behind a request that passes untouched: what is proxied may be named `[scheme:]name:port`
/// (`SplitSchemeNamePort` in apimachinery).
fn proxied_object(resource: &ResourceRequest) -> ResourceRequest {
    let mut object = resource.clone();
    if resource.subresource.as_deref() == Some("proxy")
        && let Some(named) = &resource.name
    {
        let parts: Vec<_> = named.split(':').collect();
        object.name = match parts[..] {
            [name, _] | [_, name, _] => Some(name.to_owned()),
            _ => object.name,
        };
    }
    object
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
}
