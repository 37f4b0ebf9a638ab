//! Versions in a write of one object. Tributary decodes them before it searches the object: the search waits for these
//! versions if memory lacks a new object, and a version that can never match is refused early.

use tributary_answers::refusal::{PreconditionRefusal, Refusal};
use tributary_apimachinery::{ClusterName, GroupVersionResource};

use super::buffered::BufferedRequest;
use crate::request::ClientRequest;
use crate::versions::ClientVersion;

/// Decodes the versions in a write.
///
/// # Errors
/// 409 for an unreadable version, and for a version without a component of the cluster that the annotation names.
pub(super) fn read_versions(
    request: ClientRequest<'_>,
    buffered: &BufferedRequest,
) -> Result<Vec<ClientVersion>, Refusal> {
    let facts = &buffered.facts;
    // In an object, the version `0` or an empty version is no precondition.
    let own = facts.resource_version.as_deref().filter(|text| !matches!(*text, "" | "0"));
    let texts = [own, facts.precondition_resource_version.as_deref()].into_iter().flatten();
    let named = buffered.named_cluster().and_then(|named| ClusterName::new(named).ok());
    let named = named.filter(|named| request.cluster(named).is_some());
    let read = texts.map(|text| {
        let decoded = decode_version(request, text)?;
        match &named {
            Some(named) if decoded.native(named, None).is_none() => Err(refuse_other_cluster(request, named)),
            _ => Ok(decoded),
        }
    });
    read.collect()
}

/// Decodes a version from a client.
///
/// # Errors
/// 409 for a version that Tributary did not issue.
pub(super) fn decode_version(request: ClientRequest<'_>, text: &str) -> Result<ClientVersion, Refusal> {
    let (resource, name) = object(request);
    let not_handed_out = |error| PreconditionRefusal::NotHandedOut { resource, name, error };
    Ok(request.versions().decode(text).map_err(not_handed_out)?)
}

/// Makes the 409 for a version without a component of the object's cluster.
pub(super) fn refuse_other_cluster(request: ClientRequest<'_>, owner: &ClusterName) -> Refusal {
    let (resource, name) = object(request);
    PreconditionRefusal::OfAnotherCluster { resource, name, owner: owner.clone() }.into()
}

fn object(request: ClientRequest<'_>) -> (GroupVersionResource, String) {
    (request.resource.resource.clone(), request.resource.name.clone().unwrap_or_default())
}
