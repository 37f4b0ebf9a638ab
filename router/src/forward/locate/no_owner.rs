//! The answer to a request for a name that no cluster owns.

use tributary_answers::ground::Ground;
use tributary_answers::refusal::{ClusterRefusal, Refusal, Trouble};
use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_fleet::topology::Fleet;

use crate::grounds::NoOwner;
use crate::request::ClientRequest;

impl NoOwner {
    /// The answer to a request for the name: 404, 503 or 409. `told` has the reasons why unknown clusters were not
    /// asked for the object, where the fleet does not know them.
    pub(crate) fn refusal(self, request: ClientRequest<'_>, told: &[Trouble]) -> Refusal {
        let resource = request.resource.resource.clone();
        let name = request.resource.name.clone().unwrap_or_default();
        let refusal = match self {
            Self::Nowhere => ClusterRefusal::NotFound { resource, name, warnings: Vec::new() },
            Self::RightsUnknown => ClusterRefusal::rights_unknown(resource, name),
            Self::Unknown(clusters) => unknown(request.router.fleet(), resource, name, (&clusters, told)),
            Self::Unsure { owner, unknown } => {
                let (ground, unknown) = (Ground::Name, request.router.fleet().troubles(&unknown, told));
                ClusterRefusal::Unsure { resource, name, ground, known: owner, unknown }
            }
            Self::Several(clusters) => {
                ClusterRefusal::Ambiguous { resource, name, clusters, path: request.info.path.clone() }
            }
            Self::Elsewhere { named, owner } => ClusterRefusal::Elsewhere { resource, name, named, owner },
        };
        refusal.into()
    }
}

/// 503: not found in the clusters that are known. The advice to come again soon is given where the others may soon be
/// known, too. The name is empty where the resource itself was not found.
pub(crate) fn unknown(
    fleet: &Fleet,
    resource: GroupVersionResource,
    name: String,
    (clusters, told): (&[ClusterName], &[Trouble]),
) -> ClusterRefusal {
    let mut own = clusters.iter().filter_map(|name| fleet.cluster(name));
    let is_out_of_reach = own.any(|cluster| cluster.is_out_of_reach());
    ClusterRefusal::Unknown { resource, name, unknown: fleet.troubles(clusters, told), is_out_of_reach }
}
