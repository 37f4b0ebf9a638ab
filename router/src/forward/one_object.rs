//! Requests for one object: to the cluster that owns it.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use tributary_answers::ground::Ground;
use tributary_answers::negotiate::ResponseKind;
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{ClusterName, GetOptions, Names, ResourceRequest, Verb};
use tributary_fleet::topology::Cluster;
use tributary_sharing::body::{Body, WHOLE_BODY_BYTES_MAX};
use tributary_views::view::standing;

use super::answer::TranslationOptions;
use super::buffered::BufferedRequest;
use super::locate::{self, Located, Lookup, locate};
use super::meant::{self, Meant, OfExisting, makes};
use super::missing_namespace::explained;
use super::preconditions;
use super::send::send;
use super::target::{OwnerTarget, send_translated};
use crate::asked::proxied_name;
use crate::grounds::{Meaning, NoOwner};
use crate::plan::OwnerRequest;
use crate::request::ClientRequest;
use crate::versions::ClientVersion;

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
        let mut located = locate(object, Lookup::Present, &[]).await?;
        let meaning = if is_only_read(request, &message) { Meaning::Known } else { bare(request) };
        if meaning == Meaning::Only {
            located = locate::only(object, located).await?;
        }
        let (cluster, _) = located.owner(meaning).map_err(|none| located.refuse(object, none))?;
        return send(&cluster, caller, message, info, query).await;
    }
    let form = request.preferences.form(ResponseKind::Object)?;
    let include = if info.verb == Verb::Get {
        GetOptions::parse(query).map_err(Refusal::malformed)?;
        None
    } else {
        Some(request.finish(form, ResponseKind::Object)?)
    };
    let held = BufferedRequest::read(request, info.verb, message, WHOLE_BODY_BYTES_MAX).await?;
    let seen = preconditions::read_versions(request, &held)?;
    let located = locate(request, lookup(&held), &seen).await?;
    let (meant, doubts) = match info.verb {
        Verb::Get => read_target(request, locate::ask_unknown(request, located).await?)?,
        _ => (write_target(request, &held, &seen, located).await?, Vec::new()),
    };
    let include = include.map_or_else(|| request.finish(form, ResponseKind::Object), Ok)?;
    let (error_form, writes) = (request.preferences.error_form(), !info.verb.is_read() && !held.is_dry_run());
    let wish = TranslationOptions { form, error_form, include, writes };
    let mut answer = send_translated(request, &meant.target, &held, &wish).await?;
    if info.verb == Verb::Get
        && answer.status() == StatusCode::NOT_FOUND
        && request.configuration.asks_members(&resource.resource)
    {
        return moved(request, &meant.target, &held, &wish, answer).await;
    }
    if makes(request, &held) {
        answer = explained(request, &meant, answer).await?;
    }
    answer.headers_mut().extend(doubts.into_iter().map(|warning| (header::WARNING, warning)));
    Ok(answer)
}

/// What a write says of its cluster that names none: where names do not repeat, the one that has it is meant.
fn bare(request: ClientRequest<'_>) -> Meaning<'static> {
    match request.configuration.policy(&request.resource.resource).names {
        Names::Repeated => Meaning::Only,
        Names::Unique => Meaning::Known,
    }
}

/// Whether what passes untouched changes nothing: logs, and what is read through a `proxy`. What is done in a
/// container, or sent to one of its ports, is done to this one object.
fn is_only_read(request: ClientRequest<'_>, message: &Request<Body>) -> bool {
    match request.resource.subresource.as_deref() {
        Some("log") => true,
        Some("proxy") => matches!(*message.method(), Method::GET | Method::HEAD | Method::OPTIONS),
        _ => false,
    }
}

/// Where a read goes, and a Warning for each cluster that may have an object of the name, too.
///
/// # Errors
/// Where there is no owner.
fn read_target(request: ClientRequest<'_>, located: Located) -> Result<(Meant, Vec<HeaderValue>), Refusal> {
    let found = located.owner(Meaning::Known).map_err(|none| located.refuse(request, none))?;
    let unknown = if bare(request) == Meaning::Only { located.unknown } else { Vec::new() };
    let troubles = request.router.fleet().troubles(&unknown, &located.told);
    let name = request.resource.name.as_deref().unwrap_or_default();
    let warnings = standing::doubts(&request.resource.resource, name, &troubles);
    Ok((Meant::of_found(Ground::Name, found), warnings))
}

/// Where a write goes: to the cluster that it means, by the first ground that applies.
///
/// # Errors
/// Where there is no owner, or it is not known whether there is another; as [`meant::of_existing`].
async fn write_target(
    request: ClientRequest<'_>,
    held: &BufferedRequest,
    seen: &[ClientVersion],
    mut located: Located,
) -> Result<Meant, Refusal> {
    let said = meant::of_existing(request, held, seen, &located).await?;
    let (ground, meaning) = match &said {
        OfExisting::Goes(meant) => {
            let cluster = &meant.target.cluster;
            return Ok(Meant::of_found(meant.ground, (Arc::clone(cluster), located.object_of(cluster.name()))));
        }
        OfExisting::Chooses(meant) => (meant.ground, Meaning::Of(meant.target.cluster.name())),
        OfExisting::Annotated(named) => (Ground::Annotation, Meaning::Annotated(named)),
        OfExisting::Nothing => (Ground::Name, bare(request)),
    };
    if meaning == Meaning::Only {
        located = locate::only(request, located).await?;
    }
    match located.owner(meaning) {
        Ok(found) => Ok(Meant::of_found(ground, found)),
        Err(NoOwner::Nowhere) => target_of_new(request, held, seen, &located).await,
        Err(none) => Err(located.refuse(request, none)),
    }
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
    let located = locate(request, Lookup::Elsewhere(target.cluster.name()), &[]).await?;
    match located.owner(Meaning::Known) {
        Ok((cluster, object)) => {
            send_translated(request, &OwnerTarget { cluster, object, involved: None }, held, wish).await
        }
        Err(NoOwner::Nowhere) => Ok(answer),
        Err(none) => Err(located.refuse(request, none)),
    }
}

/// How the object of a request is looked for.
fn lookup(held: &BufferedRequest) -> Lookup<'static> {
    match (held.is_apply(), held.named_cluster()) {
        // A second object of the name would be ambiguous from then on.
        (true, None) => Lookup::ToMake,
        (true, Some(_)) => Lookup::Held,
        (false, _) => Lookup::Present,
    }
}

/// Where a request goes whose object is nowhere: an apply or a PUT makes it (kinds that are not made by a PUT say 404,
/// and so does this where nothing names a cluster).
async fn target_of_new(
    request: ClientRequest<'_>,
    held: &BufferedRequest,
    seen: &[ClientVersion],
    located: &Located,
) -> Result<Meant, Refusal> {
    let ClientRequest { info, resource, .. } = request;
    let verb = info.verb;
    let makes_objects = makes(request, held) || (resource.subresource.is_none() && verb == Verb::Update);
    // An update of what was in a cluster that has left finds nothing.
    let has_left = |cluster: &ClusterName| request.cluster(cluster).is_none();
    let is_left = verb == Verb::Update && seen.iter().filter_map(ClientVersion::only_cluster).any(has_left);
    if !makes_objects || is_left || located.leaves_open(request) {
        return Err(located.refuse(request, NoOwner::Nowhere));
    }
    match meant::of_new(request, held, seen).await? {
        Some(meant) if may_be_elsewhere(request, located, &meant).await => {
            Err(located.refuse(request, NoOwner::Nowhere))
        }
        Some(meant) => Ok(meant),
        None if verb == Verb::Update => Err(located.refuse(request, NoOwner::Nowhere)),
        None => Err(meant::not_named(request, held).into()),
    }
}

/// Whether another cluster than the one that is meant may have been given an object of the name a moment ago: its
/// client may write it there, and not look for it.
async fn may_be_elsewhere(request: ClientRequest<'_>, located: &Located, meant: &Meant) -> bool {
    if !located.is_denied() {
        return false;
    }
    let shown = request.candidates_of(request.resource, "get").await;
    let is_hidden = |cluster: &Arc<Cluster>| !shown.has(cluster.name());
    request.clusters().iter().any(|own| own.name() != meant.target.cluster.name() && is_hidden(own))
}

/// The object behind a request that passes untouched.
fn proxied_object(resource: &ResourceRequest) -> ResourceRequest {
    ResourceRequest { name: resource.name.as_ref().map(|_| proxied_name(resource).to_owned()), ..resource.clone() }
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
