//! Creation of objects. The first ground (reason to choose a cluster) that applies decides about the cluster.

use std::time::Duration;

use http::{Request, Response};
use tributary_answers::negotiate::ResponseKind;
use tributary_answers::refusal::{Refusal, RequestRefusal};
use tributary_apimachinery::ItemResourceVersions;
use tributary_sharing::body::{Body, WHOLE_BODY_BYTES_MAX};

use super::answer::TranslationOptions;
use super::buffered::BufferedRequest;
use super::missing_namespace::explain_missing_namespace;
use super::owner::Write;
use super::target::send_translated;
use crate::request::ClientRequest;

/// Creates an object in a cluster. The first ground (reason to choose a cluster) that applies decides about the
/// cluster.
///
/// # Errors
/// As [`Write::owner_of_new`]; 400 if no ground names a cluster, with the ways to name one. The member's own refusals
/// are passed on.
pub(crate) async fn create(request: ClientRequest<'_>, message: Request<Body>) -> Result<Response<Body>, Refusal> {
    let ClientRequest { info, resource, .. } = request;
    let form = request.preferences.form(ResponseKind::Object)?;
    let include = request.finish(form, ResponseKind::Object)?;
    let buffered = BufferedRequest::read(request, info.verb, message, WHOLE_BODY_BYTES_MAX).await?;
    if buffered.facts.resource_version.as_deref().is_some_and(|version| version != "0") {
        return Err(RequestRefusal::VersionOfNew.into());
    }
    let write = Write { request, body: &buffered, seen: &[] };
    let target = write.owner_of_new().await?.ok_or_else(|| write.refuse_unnamed())?;
    if request.configuration.items(&resource.resource) == ItemResourceVersions::Integer {
        cache_resource(request).await;
    }
    let error_form = request.preferences.error_form();
    let wish = TranslationOptions { form, error_form, include, writes: !buffered.is_dry_run() };
    let answer = send_translated(request, &target, &buffered, &wish).await?;
    explain_missing_namespace(request, &target, answer).await
}

/// Caches the resource before the creation of an object. A client may watch from the integer version of the new object,
/// and such a watch begins at the creation in the view's log of changes. So the log must begin before the creation.
async fn cache_resource(request: ClientRequest<'_>) {
    if request.is_cached() {
        // The result is ignored: a cluster whose objects cannot be read may still accept a new object.
        let _ = tokio::time::timeout(CACHED_WITHIN, request.view()).await;
    }
}

/// Time that a create waits until its resource is cached. Only the first create of an uncached resource waits.
const CACHED_WITHIN: Duration = Duration::from_secs(3);
