//! Check before a write that the object in the answer will have a version that Tributary can encode as an integer.

use tributary_answers::refusal::{PreconditionRefusal, Refusal};
use tributary_apimachinery::{ClusterName, Object, ResourceVersion};
use tributary_merge::IntegerResourceVersion;

use crate::request::ClientRequest;

/// Margin between a member's newest known version and the highest version that Tributary can encode as an integer. A
/// member makes fewer than a billion changes while its answer is in transit. For versions that count microseconds, a
/// billion are a quarter of an hour.
const HEADROOM: u64 = 1_000_000_000;

/// Checks that Tributary can encode the version of the written object as an integer. Needed only for resources whose
/// objects have integer versions. A check after the write would be too late: Tributary could not return the answer to a
/// completed write.
///
/// # Errors
/// 400 with the limit and the remedy.
pub(crate) fn fits(request: ClientRequest<'_>, cluster: &ClusterName, object: Option<&Object>) -> Result<(), Refusal> {
    let ClientRequest { router, resource, info, .. } = request;
    let cached = router.views().get(&resource.resource, None).and_then(|view| view.version_of(cluster));
    let own = object.map(|object| object.resource_version().into());
    let newest = cached.max(own).unwrap_or_default();
    let max = ResourceVersion(IntegerResourceVersion::VERSION_MAX.0 - HEADROOM);
    if newest <= max {
        return Ok(());
    }
    let (resource, cluster, path) = (resource.resource.clone(), cluster.clone(), info.path.clone());
    Err(PreconditionRefusal::NoIntegerForm { resource, cluster, newest, max, path }.into())
}
