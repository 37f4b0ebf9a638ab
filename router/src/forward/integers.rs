//! Whether the answer to a write can carry an integer, asked before the write is sent.

use tributary_answers::refusal::{PreconditionRefusal, Refusal};
use tributary_apimachinery::{ClusterName, ItemResourceVersions, Object, ResourceVersion};
use tributary_merge::IntegerResourceVersion;

use crate::request::ClientRequest;

/// How far below the highest version that has an integer form a member's newest known version has to be. A thousand
/// million changes: more than any member makes while its newest version is on the way here, and a quarter of an hour
/// where a version counts microseconds.
const HEADROOM: u64 = 1_000_000_000;

/// Checks that what the member will answer has an integer form, where objects carry integers. Found out only then, the
/// write would have been carried out and its answer be one that the client cannot read.
///
/// # Errors
/// 400 that names the bound and what to do.
pub(crate) fn fits(request: ClientRequest<'_>, cluster: &ClusterName, object: Option<&Object>) -> Result<(), Refusal> {
    let ClientRequest { router, resource, info, .. } = request;
    if request.configuration.items(&resource.resource) != ItemResourceVersions::Integer {
        return Ok(());
    }
    let held = router.views().get(&resource.resource, None).and_then(|view| view.version_of(cluster));
    let own = object.map(|object| object.resource_version().into());
    let newest = held.max(own).unwrap_or_default();
    let max = ResourceVersion(IntegerResourceVersion::VERSION_MAX.0 - HEADROOM);
    if newest <= max {
        return Ok(());
    }
    let (resource, cluster, path) = (resource.resource.clone(), cluster.clone(), info.path.clone());
    Err(PreconditionRefusal::NoIntegerForm { resource, cluster, newest, max, path }.into())
}
