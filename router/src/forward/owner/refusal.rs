//! Refusal of a request whose object has no owner.

use tributary_answers::ground::Ground;
use tributary_answers::refusal::{ClusterRefusal, Refusal, ReleaseName, Trouble};
use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_fleet::topology::Fleet;

use super::decision::NoOwner;
use crate::request::ClientRequest;

/// Object whose owner is unknown, for the text of the refusal.
pub(crate) struct OwnerQuestion<'a> {
    pub(super) request: ClientRequest<'a>,
    pub(super) ground: Ground,
    pub(super) name: String,
    /// Helm release, if the ground is a release.
    pub(super) release: Option<ReleaseName>,
    /// Causes of clusters' missing answers, in addition to the causes that the fleet has recorded.
    pub(super) troubles: &'a [Trouble],
}

impl<'a> OwnerQuestion<'a> {
    pub(crate) fn for_name(request: ClientRequest<'a>, troubles: &'a [Trouble]) -> Self {
        let name = request.resource.name.clone().unwrap_or_default();
        Self { request, ground: Ground::Name, name, release: None, troubles }
    }

    /// Makes the refusal: 404, 409 or 503.
    pub(crate) fn refuse(self, none: NoOwner) -> ClusterRefusal {
        let Self { request, ground, name, release, troubles } = self;
        let (fleet, resource) = (request.router.fleet(), request.resource.resource.clone());
        match (none, release.map(Box::new)) {
            (NoOwner::Nowhere, _) => ClusterRefusal::NotFound { resource, name, warnings: Vec::new() },
            (NoOwner::RightsUnknown, _) => ClusterRefusal::rights_unknown(resource, name),
            (NoOwner::Unsure { known, unknown }, _) => {
                ClusterRefusal::Unsure { resource, name, ground, known, unknown: fleet.troubles(&unknown, troubles) }
            }
            (NoOwner::Elsewhere { named, owner }, _) => ClusterRefusal::Elsewhere { resource, name, named, owner },
            (NoOwner::Unknown(clusters), None) => {
                UnknownClusters { clusters: &clusters, troubles }.refuse(fleet, resource, name)
            }
            (NoOwner::Unknown(clusters), Some(release)) => {
                let unknown = fleet.troubles(&clusters, troubles);
                ClusterRefusal::ReleaseUnsure { resource, name, release, unknown }
            }
            (NoOwner::Several(clusters), None) => {
                ClusterRefusal::NameInSeveral { resource, name, clusters, path: request.info.path.clone() }
            }
            (NoOwner::Several(clusters), Some(release)) => {
                ClusterRefusal::ReleaseInSeveral { resource, name, release, clusters }
            }
            (NoOwner::Forbidden(clusters), release) => {
                ClusterRefusal::ReleaseForbidden { resource, name, release: release.unwrap_or_default(), clusters }
            }
        }
    }
}

/// Returns whether a refusal means that all clusters hide the Helm release of a new object from the client.
pub(super) fn is_of_hidden_release(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Cluster(refusal) if matches!(**refusal, ClusterRefusal::ReleaseForbidden { .. }))
}

/// Clusters that may have an object or serve a resource.
pub(crate) struct UnknownClusters<'a> {
    pub(crate) clusters: &'a [ClusterName],
    /// Causes of clusters' missing answers, in addition to the causes that the fleet has recorded.
    pub(crate) troubles: &'a [Trouble],
}

impl UnknownClusters<'_> {
    /// Makes the 503. Retry-After is set if these clusters may soon answer. The name is empty if the resource itself
    /// was not found.
    pub(crate) fn refuse(self, fleet: &Fleet, resource: GroupVersionResource, name: String) -> ClusterRefusal {
        let mut own = self.clusters.iter().filter_map(|name| fleet.cluster(name));
        let is_out_of_reach = own.any(|cluster| cluster.is_out_of_reach());
        let unknown = fleet.troubles(self.clusters, self.troubles);
        ClusterRefusal::Unknown { resource, name, unknown, is_out_of_reach }
    }
}
