//! The versions that a write of one object names, read before the object is looked for: memory may lack an object that
//! was made a moment ago, so whether there is one decides nothing about a version that cannot be met.

use tributary_apimachinery::{ClusterName, GroupVersionResource};

use super::buffered::BufferedRequest;
use crate::refusal::{PreconditionRefusal, Refusal};
use crate::request::ClientRequest;
use crate::versions::ClientVersion;

/// The versions that a write names of its object.
///
/// # Errors
/// 409 for a version that cannot be read, and for one that says nothing of the cluster that the annotation names.
pub(super) fn versions(request: ClientRequest<'_>, held: &BufferedRequest) -> Result<Vec<ClientVersion>, Refusal> {
    let facts = &held.facts;
    // `0` in an object is no condition, and an empty version is none.
    let own = facts.resource_version.as_deref().filter(|text| !matches!(*text, "" | "0"));
    let texts = [own, facts.precondition_resource_version.as_deref()].into_iter().flatten();
    let named = held.named_cluster().and_then(|named| ClusterName::new(named).ok());
    let named = named.filter(|named| request.cluster(named).is_some());
    let read = texts.map(|text| {
        let given = decode(request, text)?;
        match &named {
            Some(named) if given.native(named, None).is_none() => Err(of_another(request, named)),
            _ => Ok(given),
        }
    });
    read.collect()
}

/// The version that a text is.
///
/// # Errors
/// 409 for one that was not handed out here.
pub(super) fn decode(request: ClientRequest<'_>, text: &str) -> Result<ClientVersion, Refusal> {
    let (resource, name) = object(request);
    let not_handed_out = |error| PreconditionRefusal::NotHandedOut { resource, name, error };
    Ok(request.versions().decode(text).map_err(not_handed_out)?)
}

/// 409 for a version that says nothing of the cluster that the write goes to.
pub(super) fn of_another(request: ClientRequest<'_>, owner: &ClusterName) -> Refusal {
    let (resource, name) = object(request);
    PreconditionRefusal::OfAnotherCluster { resource, name, owner: owner.clone() }.into()
}

fn object(request: ClientRequest<'_>) -> (GroupVersionResource, String) {
    (request.resource.resource.clone(), request.resource.name.clone().unwrap_or_default())
}
