//! Helm releases as a ground (reason to choose a cluster): a release belongs to the cluster with its records. Other
//! files of the router use only this interface.

pub(crate) mod known_releases;
mod records;
pub(crate) mod release;

use tributary_answers::ground::Ground;
use tributary_answers::helm_record::are_records;
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::Verb;

pub(super) use self::records::find_records;
pub(super) use self::release::Release;
use super::answers::FoundObject;
use super::decision::OwnerError;
use super::searched::Searched;
use crate::request::ClientRequest;

/// Returns whether [`refuse_torn_release`] may refuse the write: a deletion, or a write of a resource that may be a
/// record.
pub(super) fn may_refuse(request: ClientRequest<'_>) -> bool {
    request.info.verb == Verb::Delete || are_records(&request.resource.resource)
}

/// Refuses two kinds of writes to the only object of a name: the deletion of an object whose Helm release is in several
/// clusters, and each write to a record of such a release. `helm uninstall` first changes the newest record, whose
/// revision only one cluster may have. Helm continues with the deletion of objects even if the write of the record is
/// refused.
///
/// # Errors
/// 409 with the clusters.
pub(super) async fn refuse_torn_release(searched: &Searched<'_>) -> Result<(), Refusal> {
    let request = searched.request;
    let [FoundObject { object: Some(object), .. }] = &searched.answers.found[..] else { return Ok(()) };
    let is_deleted = request.info.verb == Verb::Delete;
    let release = Release::of_object(request.resource, object);
    let Some(release) = release.filter(|release| is_deleted || release.is_known_by_record()) else { return Ok(()) };
    let evidence = find_records(request, &release).await.evidence;
    match evidence.owner_by_ground(Ground::Release, None) {
        Err(OwnerError::Several(clusters)) => {
            let (resource, name) = (request.resource.resource.clone(), object.name().to_owned());
            let release = Box::new(release.into_name());
            Err(ClusterRefusal::ReleaseInSeveral { resource, name, release, clusters }.into())
        }
        _ => Ok(()),
    }
}
