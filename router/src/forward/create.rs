//! New objects: to the cluster that they mean.

use std::time::Duration;

use http::{Request, Response};
use tributary_answers::refusal::{Refusal, RequestRefusal};
use tributary_apimachinery::ItemResourceVersions;
use tributary_sharing::body::{Body, WHOLE_BODY_BYTES_MAX};

use super::answer::TranslationOptions;
use super::buffered::BufferedRequest;
use super::meant;
use super::missing_namespace::explained;
use super::target::send_translated;
use crate::request::ClientRequest;

/// Answers a create.
///
/// # Errors
/// As [`meant::of_new`]; 400 where no cluster is meant, with the ways to name one; what the member answers passes.
pub(crate) async fn create(request: ClientRequest<'_>, message: Request<Body>) -> Result<Response<Body>, Refusal> {
    let ClientRequest { info, resource, .. } = request;
    let (form, include) = request.object_form()?;
    let held = BufferedRequest::read(request, info.verb, message, WHOLE_BODY_BYTES_MAX).await?;
    if held.facts.resource_version.as_deref().is_some_and(|version| version != "0") {
        return Err(RequestRefusal::VersionOfNew.into());
    }
    let meant = meant::of_new(request, &held, &[]).await?.ok_or_else(|| meant::not_named(request, &held))?;
    if request.configuration.items(&resource.resource) == ItemResourceVersions::Integer {
        cache_resource(request).await;
    }
    let error_form = request.preferences.error_form();
    let wish = TranslationOptions { form, error_form, include, writes: !held.is_dry_run() };
    let answer = send_translated(request, &meant.target, &held, &wish).await?;
    explained(request, &meant, answer).await
}

/// Sees to it that the resource is held before an object of it is made: a watch that goes on after the object's integer
/// needs its event in the log, and in a log that begins later it is not.
async fn cache_resource(request: ClientRequest<'_>) {
    if request.is_held() {
        // An object can be made where the others cannot be read.
        let held = request.view();
        let _ = tokio::time::timeout(HELD_WITHIN, held).await;
    }
}

/// How long a create waits until its resource is held. It does so once, where nobody has read the resource before.
const HELD_WITHIN: Duration = Duration::from_secs(3);
