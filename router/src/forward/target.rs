//! Sending of a request to its cluster, with resourceVersions translated into the cluster's own form.

use http::Response;
use tributary_answers::refusal::Refusal;
use tributary_apimachinery::rewrite::{self, VersionOf};
use tributary_apimachinery::{ItemResourceVersions, Verb};
use tributary_sharing::body::Body;

use super::answer::{TranslationOptions, translate};
use super::buffered::BufferedRequest;
use super::owner::OwnerTarget;
use super::reservation::answer_bytes;
use super::rewritten::translating;
use super::send::send;
use super::{integers, preconditions};
use crate::request::ClientRequest;

/// Sends a buffered request to a cluster, and returns its answer.
///
/// # Errors
/// 409 for a version of another cluster. 400 if Tributary could not encode the version of the written object. 429 at
/// the limit of body bytes. 503 and 504 without an answer.
pub(crate) async fn send_translated(
    request: ClientRequest<'_>,
    target: &OwnerTarget,
    buffered: &BufferedRequest,
    wish: &TranslationOptions,
) -> Result<Response<Body>, Refusal> {
    let ClientRequest { router, configuration, info, resource, query, .. } = request;
    if wish.writes && configuration.items(&resource.resource) == ItemResourceVersions::Integer {
        integers::fits(request, target.cluster.name(), target.object.as_deref())?;
    }
    let has_annotations = target.object.as_ref().is_none_or(|object| object.has_annotations());
    let mut version = |of: VersionOf, text: &str| match of {
        VersionOf::Object => native(request, target, text),
        VersionOf::Reference => Ok(reference_version(request, target, text)),
    };
    let body_permit = router.large_bodies().body_permit(buffered.share_key(), buffered.body.readable_bytes()).await;
    let message = body_permit.run(|| buffered.for_member(has_annotations, wish.accept(), &mut version))?;
    let query = match query {
        // With a body, the member ignores the options in the query.
        Some(query) if info.verb == Verb::Delete && buffered.body.text().is_empty() => {
            Some(translating(&mut version, |version| rewrite::rewrite_query(query, version))?)
        }
        // A forwarded get requests the newest object. The member could not read a version of the merged view, so the
        // parameter is removed.
        Some(query) if info.verb == Verb::Get => Some(rewrite::without_parameter(query, "resourceVersion")),
        query => query.map(str::to_owned),
    };
    let known = target.object.as_ref().map_or(0, |object| object.size()).max(buffered.body.readable_bytes());
    // Without memory for the answer, the cluster gets no request.
    let reservation = router.held_bytes().acquire(request.caller.share_key, answer_bytes(known))?;
    let answer = send(&target.cluster, request.caller, message, info, query.as_deref()).await?;
    translate(request, &target.cluster, answer, reservation, wish).await
}

/// Translates a version from a client into the member's own version, by the object in memory.
///
/// Without an object in memory, the result is the component of the member. This is safe: a member without the object
/// ignores the version, and a member with a newer object refuses it (apiserver `Store.Update` compares only with an
/// existing object, and `GuaranteedUpdate` removes the version before it stores the object; an apply does the same).
/// Memory may lack a new object, so Tributary refuses a version without a component of the member.
///
/// # Errors
/// 409 for a version of a different cluster, a plain number, or garbage.
fn native(request: ClientRequest<'_>, target: &OwnerTarget, text: &str) -> Result<String, Refusal> {
    let cached = target.object.as_ref().and_then(|object| object.native_version().number());
    // `0` in a new object is no precondition (`resourceVersion` in apimachinery's `pkg/apis/meta/v1/types.go`).
    if target.object.is_none() && text == "0" {
        return Ok(String::new());
    }
    let decoded = preconditions::decode_version(request, text)?;
    let cluster = target.cluster.name();
    decoded.native(cluster, cached).ok_or_else(|| preconditions::refuse_other_cluster(request, cluster))
}

/// Translates the version in an Event's `involvedObject`, like [`native`]. A version that cannot be translated becomes
/// empty, because no request depends on it.
fn reference_version(request: ClientRequest<'_>, target: &OwnerTarget, text: &str) -> String {
    let decoded = request.configuration.versions_of_any().decode(text).ok();
    let cached = target.involved.as_ref().and_then(|object| object.native_version().number());
    let native = decoded.and_then(|decoded| decoded.native(target.cluster.name(), cached));
    native.unwrap_or_default()
}
