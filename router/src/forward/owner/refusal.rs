//! Refusal of a request whose object has no owner.

use tributary_answers::ground::Ground;
use tributary_answers::refusal::{ClusterFailure, ClusterRefusal, Refusal, ReleaseName};
use tributary_apimachinery::{ClusterName, GroupVersionResource};
use tributary_fleet::topology::Fleet;

use super::decision::OwnerError;
use crate::request::ClientRequest;

/// Object without a known owner, for the text of the refusal.
pub(crate) struct MissingOwner<'a> {
    pub(super) request: ClientRequest<'a>,
    pub(super) ground: Ground,
    pub(super) name: String,
    /// Helm release, if the release was the ground.
    pub(super) release: Option<ReleaseName>,
    /// Reasons why clusters are unknown, in addition to the reasons that the fleet has recorded.
    pub(super) failures: &'a [ClusterFailure],
}

impl<'a> MissingOwner<'a> {
    pub(crate) fn for_name(request: ClientRequest<'a>, failures: &'a [ClusterFailure]) -> Self {
        let name = request.resource.name.clone().unwrap_or_default();
        Self { request, ground: Ground::Name, name, release: None, failures }
    }

    /// Makes the refusal: 404, 409 or 503.
    pub(crate) fn refuse(self, none: OwnerError) -> ClusterRefusal {
        let Self { request, ground, name, release, failures } = self;
        let (fleet, resource) = (request.router.fleet(), request.resource.resource.clone());
        match (none, release.map(Box::new)) {
            (OwnerError::NotFound, _) => ClusterRefusal::NotFound { resource, name, warnings: Vec::new() },
            (OwnerError::RightsUnknown, _) => ClusterRefusal::rights_unknown(resource, name),
            (OwnerError::Unsure { known, unknown }, _) => {
                ClusterRefusal::Unsure { resource, name, ground, known, unknown: fleet.failures(&unknown, failures) }
            }
            (OwnerError::Elsewhere { named, owner }, _) => ClusterRefusal::Elsewhere { resource, name, named, owner },
            (OwnerError::Unknown(clusters), None) => {
                UnknownClusters { clusters: &clusters, failures }.refuse(fleet, resource, name)
            }
            (OwnerError::Unknown(clusters), Some(release)) => {
                let unknown = fleet.failures(&clusters, failures);
                ClusterRefusal::ReleaseUnsure { resource, name, release, unknown }
            }
            (OwnerError::Several(clusters), None) => {
                ClusterRefusal::NameInSeveral { resource, name, clusters, path: request.info.path.clone() }
            }
            (OwnerError::Several(clusters), Some(release)) => {
                ClusterRefusal::ReleaseInSeveral { resource, name, release, clusters }
            }
            (OwnerError::Forbidden(clusters), release) => {
                ClusterRefusal::ReleaseForbidden { resource, name, release: release.unwrap_or_default(), clusters }
            }
        }
    }
}

/// Returns whether the cause of a refusal is that all clusters hide the Helm release of a new object from the client.
pub(super) fn is_of_hidden_release(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::Cluster(refusal) if matches!(**refusal, ClusterRefusal::ReleaseForbidden { .. }))
}

/// Clusters that may have an object or serve a resource.
pub(crate) struct UnknownClusters<'a> {
    pub(crate) clusters: &'a [ClusterName],
    /// Reasons why clusters are unknown, in addition to the reasons that the fleet has recorded.
    pub(crate) failures: &'a [ClusterFailure],
}

impl UnknownClusters<'_> {
    /// Makes the 503. Sets Retry-After if these clusters may soon answer. `name` is empty if the resource itself was
    /// not found.
    pub(crate) fn refuse(self, fleet: &Fleet, resource: GroupVersionResource, name: String) -> ClusterRefusal {
        let mut own = self.clusters.iter().filter_map(|name| fleet.cluster(name));
        let is_lasting = own.any(|cluster| !cluster.may_answer_soon(&resource));
        let unknown = fleet.failures(self.clusters, self.failures);
        ClusterRefusal::Unknown { resource, name, unknown, is_lasting }
    }
}
