//! Requests for one object, forwarded to the cluster that owns the object.

use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use tributary_answers::ground::Ground;
use tributary_answers::negotiate::ResponseKind;
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::{GetOptions, ResourceRequest, Verb};
use tributary_sharing::body::{Body, WHOLE_BODY_BYTES_MAX};
use tributary_views::view::cache_state;

use super::answer::TranslationOptions;
use super::buffered::BufferedRequest;
use super::missing_namespace::explain_missing_namespace;
use super::owner::{Claim, Complete, FoundObject, LookupScope, OwnerError, OwnerTarget, Search, Write, unnamed_claim};
use super::preconditions;
use super::send::send;
use super::target::send_translated;
use crate::asked::proxied_name;
use crate::request::ClientRequest;

/// Forwards a request unchanged to the owner of the object, and returns the unchanged answer.
///
/// # Errors
/// 404, 503 or 409 without an owner; the errors of [`send`].
pub(crate) async fn pass_to_owner(
    request: ClientRequest<'_>,
    message: Request<Body>,
) -> Result<Response<Body>, Refusal> {
    let claim = if is_only_read(request, &message) { Claim::AnyKnown } else { unnamed_claim(request) };
    let object = proxied_object(request.resource);
    let object = ClientRequest { resource: &object, ..request };
    let complete = Search::new(object, LookupScope::Existing).run().await?.complete(claim).await;
    let owner = complete.owner().map_err(|none| complete.refuse(none))?;
    send(&owner.cluster, request.caller, message, request.info, request.query).await
}

/// Forwards a get to the owner of the object.
///
/// # Errors
/// 404, 503 or 409 without an owner; the errors of [`send_translated`].
pub(crate) async fn get(request: ClientRequest<'_>, message: Request<Body>) -> Result<Response<Body>, Refusal> {
    let form = request.preferences.form(ResponseKind::Object)?;
    GetOptions::parse(request.query).map_err(Refusal::malformed)?;
    let body = BufferedRequest::read(request, Verb::Get, message, WHOLE_BODY_BYTES_MAX).await?;
    let seen = preconditions::read_versions(request, &body)?;
    let search = Search::new(request, LookupScope::Existing).with_versions(&seen).with_unknown_clusters();
    let complete = search.run().await?.complete(Claim::AnyKnown).await;
    let owner = complete.owner().map_err(|none| complete.refuse(none))?;
    let target = found_target(owner);
    let include = request.finish(form, ResponseKind::Object)?;
    let wish = TranslationOptions { form, error_form: request.preferences.error_form(), include, writes: false };
    let mut answer = send_translated(request, &target, &body, &wish).await?;
    if answer.status() == StatusCode::NOT_FOUND && request.configuration.asks_members(&request.resource.resource) {
        // The object may have moved to a different cluster since memory was updated.
        let search = Search::new(request, LookupScope::AllClusters).outside(target.cluster.name());
        let complete = search.run().await?.complete(Claim::AnyKnown).await;
        return match complete.owner() {
            Ok(owner) => send_translated(request, &found_target(owner), &body, &wish).await,
            Err(OwnerError::NotFound) => Ok(answer),
            Err(none) => Err(complete.refuse(none)),
        };
    }
    answer
        .headers_mut()
        .extend(unknown_owner_warnings(request, &complete).into_iter().map(|warning| (header::WARNING, warning)));
    Ok(answer)
}

/// Forwards a write of one object to the cluster of the object, or to the cluster that the request names.
///
/// # Errors
/// 404, 503 or 409 without an owner; the errors of [`send_translated`]. The member's own refusals are passed on.
pub(crate) async fn write(request: ClientRequest<'_>, message: Request<Body>) -> Result<Response<Body>, Refusal> {
    let form = request.preferences.form(ResponseKind::Object)?;
    let include = request.finish(form, ResponseKind::Object)?;
    let body = BufferedRequest::read(request, request.info.verb, message, WHOLE_BODY_BYTES_MAX).await?;
    let seen = preconditions::read_versions(request, &body)?;
    let write = Write { request, body: &body, seen: &seen };
    let scope = match (body.is_apply(), body.named_cluster()) {
        // The apply may create the object. A second object would make the name ambiguous, so the search is as deep as
        // for a create.
        (true, None) => LookupScope::ToMake,
        (true, Some(_)) => LookupScope::Memory,
        (false, _) => LookupScope::Existing,
    };
    let target = write.owner(Search::new(request, scope).with_versions(&seen).run().await?).await?;
    let (error_form, writes) = (request.preferences.error_form(), !body.is_dry_run());
    let wish = TranslationOptions { form, error_form, include, writes };
    let answer = send_translated(request, &target, &body, &wish).await?;
    match write.makes_object() {
        true => explain_missing_namespace(request, &target, answer).await,
        false => Ok(answer),
    }
}

/// Returns the target of a read, for an object that was found by its name.
fn found_target(FoundObject { cluster, object }: FoundObject) -> OwnerTarget {
    OwnerTarget { ground: Ground::Name, cluster, object, involved: None }
}

/// Returns a Warning for each cluster that may also have an object of the name; none if names are unique.
fn unknown_owner_warnings(request: ClientRequest<'_>, complete: &Complete<'_>) -> Vec<HeaderValue> {
    let failures = if unnamed_claim(request) == Claim::OnlyOne { complete.unknown_failures() } else { Vec::new() };
    let name = request.resource.name.as_deref().unwrap_or_default();
    cache_state::doubts(&request.resource.resource, name, &failures)
}

/// Returns whether a request that is forwarded unchanged is a read: logs, and reads through a `proxy`. Commands in a
/// container, and bytes to its ports, change the object.
fn is_only_read(request: ClientRequest<'_>, message: &Request<Body>) -> bool {
    match request.resource.subresource.as_deref() {
        Some("log") => true,
        Some("proxy") => matches!(*message.method(), Method::GET | Method::HEAD | Method::OPTIONS),
        _ => false,
    }
}

/// Returns the object of a request that is forwarded unchanged.
fn proxied_object(resource: &ResourceRequest) -> ResourceRequest {
    ResourceRequest { name: resource.name.as_ref().map(|_| proxied_name(resource).to_owned()), ..resource.clone() }
}
