//! The cluster that a request goes to, and its versions in that cluster's own words.

use std::sync::Arc;

use http::Response;
use tributary_apimachinery::rewrite::{self, VersionOf};
use tributary_apimachinery::{Object, Verb};

use super::answer::{TranslationOptions, translate};
use super::buffered::BufferedRequest;
use super::rewritten::translating;
use super::send::send;
use super::{integers, room};
use crate::body::Body;
use crate::refusal::{PreconditionRefusal, Refusal};
use crate::request::ClientRequest;
use crate::topology::Cluster;

/// Where a request goes, and what its versions are translated by.
pub(crate) struct OwnerTarget {
    /// The cluster.
    pub(crate) cluster: Arc<Cluster>,
    /// The object that the request is for, as last seen; `None` for a new one.
    pub(crate) object: Option<Arc<Object>>,
    /// The object that an Event is about, where it was looked up.
    pub(crate) involved: Option<Arc<Object>>,
}

/// Sends a held request to a cluster and gives its answer.
///
/// # Errors
/// 409 for a version of another cluster; 400 where the answer to a write could not carry its version; 429 where there
/// is no room for the answer; 503 and 504 where there is none.
pub(crate) async fn send_translated(
    request: ClientRequest<'_>,
    target: &OwnerTarget,
    held: &BufferedRequest,
    wish: &TranslationOptions,
) -> Result<Response<Body>, Refusal> {
    let ClientRequest { router, info, query, .. } = request;
    if wish.writes {
        integers::fits(request, target.cluster.name(), target.object.as_deref())?;
    }
    let has_annotations = target.object.as_ref().is_none_or(|object| object.has_annotations());
    let mut version = |of: VersionOf, text: &str| match of {
        VersionOf::Object => native(request, target, text),
        VersionOf::Reference => Ok(reference_version(request, target, text)),
    };
    let turn = router.large_bodies().turn(request.caller.holder, held.body.len()).await;
    let message = turn.run(|| held.for_member(has_annotations, wish.accept(), &mut version))?;
    let query = match query {
        // Where there is a body the member reads no options from the query.
        Some(query) if info.verb == Verb::Delete && held.body.is_empty() => {
            Some(translating(&mut version, |version| rewrite::rewrite_query(query, version))?)
        }
        query => query.map(|query| for_live_read(info.verb, query)),
    };
    let known = target.object.as_ref().map_or(0, |object| object.size()).max(held.body.len());
    let room = room::room(router, request.caller, known).await?;
    let answer = send(&target.cluster, request.caller, message, info, query.as_deref()).await?;
    translate(request, &target.cluster, answer, room, wish).await
}

/// A live read asks for the newest: a version of the merged view means nothing to the member.
fn for_live_read(verb: Verb, query: &str) -> String {
    if verb != Verb::Get {
        return query.to_owned();
    }
    let kept: Vec<_> = query.split('&').filter(|pair| !pair.starts_with("resourceVersion=")).collect();
    kept.join("&")
}

/// The member's own version for one that a client sent back, by the object as last seen. Of an object that memory lacks
/// it is what the version says of the cluster: the member ignores it where it makes the object (`Store.Update` in
/// apiserver compares it only with an existing one, and `GuaranteedUpdate` takes it out of what is stored; an apply
/// goes the same way), and refuses it where the object was changed, or made, meanwhile.
///
/// # Errors
/// 409 for what is no version of this cluster's object: another cluster's, a plain number, or garbage.
fn native(request: ClientRequest<'_>, target: &OwnerTarget, text: &str) -> Result<String, Refusal> {
    let resource = &request.resource.resource;
    let name = || request.resource.name.clone().unwrap_or_default();
    let decoded = request.versions().decode(text);
    let cluster = target.cluster.name();
    let Some(object) = &target.object else {
        let native = decoded.ok().and_then(|given| given.native(cluster, None));
        // What is no version of this cluster says nothing of an object that is not there.
        return Ok(native.map(|own| own.to_string()).unwrap_or_default());
    };
    let given = decoded.map_err(|error| PreconditionRefusal::NotHandedOut {
        resource: resource.clone(),
        name: name(),
        error,
    })?;
    let native = given.native(cluster, Some(object.resource_version())).ok_or_else(|| {
        let owner = cluster.clone();
        PreconditionRefusal::OfAnotherCluster { resource: resource.clone(), name: name(), owner }
    })?;
    Ok(native.to_string())
}

/// The member's own version for one that an Event notes of the object that it is about: as [`native`], but what means
/// nothing to the member is left out, because nothing depends on it.
fn reference_version(request: ClientRequest<'_>, target: &OwnerTarget, text: &str) -> String {
    let given = request.configuration.versions_of_any().decode(text).ok();
    let held = target.involved.as_ref().map(|object| object.resource_version());
    let native = given.and_then(|given| given.native(target.cluster.name(), held));
    native.map(|native| native.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_reads_ask_for_the_newest() {
        assert_eq!(for_live_read(Verb::Get, "a=b&resourceVersion=x&c"), "a=b&c");
        assert_eq!(for_live_read(Verb::Patch, "resourceVersion=x"), "resourceVersion=x");
    }
}
