//! Whether the answer to a write can carry an integer, asked before the write is sent.

use tributary_apimachinery::{ResourceVersion, Status};
use tributary_merge::IntegerResourceVersion;

use super::Call;
use super::owner::Target;
use crate::policy::ItemResourceVersions;

/// How far below the highest version that has an integer form a member's newest known version has to be. A thousand million
/// changes: more than any member makes while its newest version is on the way here, and a quarter of an hour where a version counts
/// microseconds.
const HEADROOM: u64 = 1_000_000_000;

/// Checks that what the member will answer has an integer form, where objects carry integers. Found out only then, the write would have
/// been carried out and its answer be one that the client cannot read.
///
/// # Errors
/// 400 that names the bound and what to do.
pub fn fits(call: Call<'_>, target: &Target) -> Result<(), Status> {
    let Call { router, resource, info, .. } = call;
    if router.items(&resource.resource) != ItemResourceVersions::Integer {
        return Ok(());
    }
    let cluster = target.cluster.name();
    let held = router.views().get(&resource.resource, None).and_then(|view| view.version_of(cluster));
    let own = target.object.as_ref().map(|object| object.resource_version().into());
    let newest = held.max(own).unwrap_or_default();
    let max = ResourceVersion(IntegerResourceVersion::VERSION_MAX.0 - HEADROOM);
    if newest <= max {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "{} of cluster {cluster} cannot be written here: their resourceVersions, {newest} by now, are above {max} and have no integer \
         form (itemResourceVersions: Integer); set Composite, or write to /clusters/{cluster}{}",
        resource.resource, info.path
    )))
}
