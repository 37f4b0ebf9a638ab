//! What would tear a Helm release apart is refused.

use tributary_answers::ground::Ground;
use tributary_answers::refusal::{ClusterRefusal, Refusal};
use tributary_apimachinery::Verb;

use super::evidence;
use super::locate::Located;
use crate::grounds::Finding;
use crate::helm_release::Release;
use crate::request::ClientRequest;

/// Refuses to delete an object that is the only one of its name, and any write of a record that is, where several
/// clusters have the Helm release: an uninstallation changes the newest record, whose revision one cluster alone may
/// have, and goes on to the objects even if that is refused.
///
/// # Errors
/// 409 that names the clusters.
pub(super) async fn refuse(request: ClientRequest<'_>, located: &Located) -> Result<(), Refusal> {
    let [(_, Some(object))] = &located.found[..] else { return Ok(()) };
    let release = Release::of_object(request.resource, object);
    let is_deleted = request.info.verb == Verb::Delete;
    let Some(release) = release.filter(|release| is_deleted || release.is_of_record()) else { return Ok(()) };
    let evidence = evidence::of_release(request, &release).await.evidence;
    match evidence.judge(Ground::Release, None) {
        Finding::Several(clusters) => {
            let (resource, name) = (request.resource.resource.clone(), object.name().to_owned());
            let release = Box::new(release.into_name());
            Err(ClusterRefusal::ReleaseInSeveral { resource, name, release, clusters }.into())
        }
        _ => Ok(()),
    }
}
