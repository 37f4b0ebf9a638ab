//! Refusals because the resourceVersion of a write cannot be used.

use tributary_apimachinery::{ClusterName, CollectionVersion, Door, GroupVersionResource, ResourceVersion, Status};
use tributary_merge::VersionDecodeError;

use super::wording::can_be_typed;

/// Reason for which Tributary cannot use the resourceVersion in a write, or cannot encode the resourceVersion of the
/// answer.
#[derive(Clone, Debug)]
pub enum PreconditionRefusal {
    /// A write contains a resourceVersion that Tributary cannot decode, so Tributary did not issue it: 409.
    NotHandedOut {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the object.
        name: String,
        /// Decoding error of the resourceVersion.
        error: VersionDecodeError,
    },
    /// A write to the merged view contains the resourceVersion of a different cluster than the cluster of the write:
    /// 409.
    OfAnotherCluster {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the object.
        name: String,
        /// The cluster of the write.
        owner: ClusterName,
    },
    /// A write to the path of a single cluster contains a resourceVersion of a different cluster: 409.
    OfOtherContext {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the object. Empty for a collection, and for a new object whose name the cluster generates.
        name: String,
        /// Cluster of the request's path.
        cluster: ClusterName,
    },
    /// The resourceVersion of a deletion cannot be decoded: 400.
    Invalid(VersionDecodeError),
    /// The resourceVersion of a deletion belongs to an object of a different cluster: 409.
    OfOtherObject {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// resourceVersion in the request.
        text: String,
        /// Cluster that the resourceVersion belongs to.
        owner: ClusterName,
    },
    /// The composite resourceVersion of a deletion has no component for a cluster: 400.
    LacksCluster {
        /// Name of the cluster.
        cluster: ClusterName,
    },
    /// The answer to the write needs an integer resourceVersion (`itemResourceVersions: Integer`), but the cluster's
    /// resourceVersions exceed the maximum that the integer form can encode: 400.
    NoIntegerForm {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Name of the cluster.
        cluster: ClusterName,
        /// Newest known resourceVersion of the cluster.
        newest: CollectionVersion,
        /// Maximum resourceVersion of the cluster that the integer form can encode.
        max: ResourceVersion,
        /// Path of the request without the part that selects a cluster, as kube-apiserver would see it.
        path: String,
    },
}

impl PreconditionRefusal {
    pub(super) fn status(&self, door: Door) -> Status {
        match self {
            Self::NotHandedOut { resource, name, error } => {
                of_write(resource, name, &format!("known to this server ({error})"))
            }
            Self::OfAnotherCluster { resource, name, owner } => {
                of_write(resource, name, &format!("of cluster {owner}, to which the write goes"))
            }
            Self::OfOtherContext { resource, name, cluster } => of_other_context(door, (resource, name), cluster),
            Self::Invalid(error) => Status::bad_request(format!("resourceVersion: {error}")),
            Self::OfOtherObject { resource, text, owner } => {
                Status::conflict(resource, "", &format!("resourceVersion {text} belongs to cluster {owner}"))
            }
            Self::LacksCluster { cluster } => {
                Status::bad_request(format!("resourceVersion has no component of cluster {cluster}"))
            }
            Self::NoIntegerForm { resource, cluster, newest, max, path } => Status::bad_request(format!(
                "{resource} of cluster {cluster} cannot be written through the merged view: their resourceVersions, \
                 now {newest}, are above {max} and have no integer form (itemResourceVersions: Integer); set \
                 Composite, or write to the cluster itself ({}, or the path {}{path})",
                door.kubectl(cluster),
                door.cluster_path(cluster),
            )),
        }
    }
}

fn of_other_context(door: Door, (resource, name): (&GroupVersionResource, &str), cluster: &ClusterName) -> Status {
    let status = Status::conflict(resource, name, "");
    let kind = resource.group_resource().to_string();
    let command = match name {
        "" => format!("{} get {kind}: ", door.kubectl(cluster)),
        name => format!("{} get {kind} {name}: ", door.kubectl(cluster)),
    };
    let is_plain = can_be_typed(&kind) && (name.is_empty() || can_be_typed(name));
    let advice = if is_plain { command } else { String::new() };
    Status { message: format!("{advice}the resourceVersion is of another cluster than {cluster}"), ..status }
}

fn of_write(resource: &GroupVersionResource, name: &str, cause: &str) -> Status {
    Status::conflict(
        resource,
        name,
        &format!("the resourceVersion of the object is not {cause}; read the object again"),
    )
}
