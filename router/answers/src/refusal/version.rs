//! Refusals because the resourceVersion or continue token of a read cannot be used.

use std::time::Duration;

use tributary_apimachinery::status::go_quote;
use tributary_apimachinery::{ClusterName, CollectionVersion, Door, GroupVersionResource, ResourceVersion, Status};
use tributary_merge::{ContinueError, SnapshotError, TooOld, VersionDecodeError};

use super::Refusal;

/// Reason for which Tributary cannot use the resourceVersion or continue token of a read.
#[derive(Clone, Debug)]
pub enum VersionRefusal {
    /// The text is not a resourceVersion: 400.
    Invalid {
        /// resourceVersion in the request.
        text: String,
        /// Error in the version.
        error: VersionDecodeError,
    },
    /// The resourceVersion of a list cannot be decoded: 410, because an informer lists from scratch only after 410.
    ForeignToList(VersionDecodeError),
    /// The resourceVersion of a watch cannot be decoded: 410 as an event of the stream.
    ForeignToWatch(VersionDecodeError),
    /// A resourceVersion of the merged view has no component for the cluster of the request: 410. A watch gets the 410
    /// as an event of the stream.
    OfOtherCluster {
        /// Name of the cluster.
        cluster: ClusterName,
    },
    /// The resource exists only in the memory of this process, but its resourceVersion comes from another process, or
    /// is older than the changes that this process remembers: 410. A watch gets the 410 as an event of the stream.
    OfAnotherProcess,
    /// The caller's rights have changed since the resourceVersion was issued: 410, because an informer lists again only
    /// after 410. A watch gets the 410 as an event of the stream.
    AnotherScope,
    /// The resourceVersion of a watch is older than the oldest remembered change: 410 as an event of the stream.
    TooOld(TooOld),
    /// A watch cannot start from the resourceVersion of this single object: 410 as an event of the stream.
    NotAfterItem {
        /// Cluster of the object.
        cluster: ClusterName,
        /// Reason, for people.
        cause: &'static str,
    },
    /// A watch starts from the resourceVersion of an object that the cluster's cacher has not reached: 410 as an event
    /// of the stream.
    ItemNotReached(Refusal),
    /// The text is not a continue token: 400.
    InvalidToken(ContinueError),
    /// The request contains a resourceVersion besides a continue token: 400.
    BesidesToken,
    /// The continue token refers to a state of the list that is no longer in memory: 410.
    ExpiredToken {
        /// Token with which the client can continue the list in a newer state.
        fresh: Option<String>,
    },
    /// No cached state has exactly this resourceVersion: 410 or 504.
    NoSnapshot(SnapshotError),
    /// The cacher of a cluster has not reached the requested version in time: 504.
    NotReached {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Version that the request waited for.
        version: CollectionVersion,
        /// Version of the cluster's cacher at the end of the wait.
        current: CollectionVersion,
        /// Time limit of the wait.
        within: Duration,
    },
    /// The cluster's latest resourceVersion is below the resourceVersion of a get, for example after a restore of a
    /// backup: 504 with kube-apiserver's text.
    ObjectWentBack {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Component of this cluster in the client's resourceVersion.
        version: CollectionVersion,
        /// Latest resourceVersion of the cluster.
        latest: ResourceVersion,
    },
    /// The cluster's latest resourceVersion is below the resourceVersion of a list or watch, for example after a
    /// restore of a backup: 410, so that the client lists again.
    CollectionWentBack {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Component of this cluster in the client's resourceVersion.
        version: CollectionVersion,
        /// Latest resourceVersion of the cluster.
        latest: ResourceVersion,
    },
    /// The resourceVersion has a component of a cluster that does not serve the resource: 410.
    ClusterNotServing {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Resource of the request.
        resource: GroupVersionResource,
    },
    /// The resourceVersion has a component of a cluster that forbids the caller to read the resource: 410.
    ClusterForbids {
        /// Name of the cluster.
        cluster: ClusterName,
        /// Resource of the request.
        resource: GroupVersionResource,
    },
    /// Some clusters did not confirm in time that Tributary has their newest objects in memory: 504.
    NotConfirmed {
        /// Resource of the request.
        resource: GroupVersionResource,
        /// Reasons, one for each cluster, up to a maximum number of clusters.
        reasons: String,
    },
}

impl VersionRefusal {
    pub(super) fn status(&self, door: Door) -> Status {
        match self {
            Self::Invalid { text, error } => Status::invalid_resource_version(text, &error.to_string()),
            Self::ForeignToList(error) => {
                Status::expired(format!("the resourceVersion cannot be used for this list: {error}"))
            }
            Self::ForeignToWatch(error) => {
                Status::expired(format!("a watch cannot resume from the resourceVersion: {error}"))
            }
            Self::OfOtherCluster { cluster } => Status::expired(format!(
                "list {} again: the resourceVersion has no component of cluster {cluster}",
                door.cluster_path(cluster)
            )),
            Self::OfAnotherProcess => Status::expired(
                "list again: the resourceVersion comes from another replica, from before a restart, or is too old",
            ),
            Self::AnotherScope => Status::expired("your rights have changed since the resourceVersion: list again"),
            Self::TooOld(too_old) => Status::expired(too_old.to_string()),
            Self::NotAfterItem { cluster, cause } => not_after_item(cluster, cause),
            Self::ItemNotReached(refusal) => Status::expired(refusal.to_string()),
            Self::InvalidToken(error) => Status::invalid_continue_token(error),
            Self::BesidesToken => Status::bad_request("specifying resource version is not allowed when using continue"),
            Self::ExpiredToken { fresh } => Status::continue_expired(fresh.clone()),
            Self::NoSnapshot(error) => no_snapshot(error),
            Self::NotReached { cluster, version, current, within } => {
                let cause = format!("the cluster did not reach this version within {} s", within.as_secs());
                not_reached(cluster, *version, *current, &cause)
            }
            Self::ObjectWentBack { cluster, version, latest } => {
                not_reached(cluster, *version, (*latest).into(), "the resourceVersions of the cluster went back")
            }
            Self::CollectionWentBack { cluster, version, latest } => Status::expired(format!(
                "cluster {cluster}: too large resource version: {version}, current: {latest}; the resourceVersions of \
                 the cluster went back"
            )),
            Self::ClusterNotServing { cluster, resource } => {
                names_cluster(cluster, &format!("does not serve {resource} in the merged view"))
            }
            Self::ClusterForbids { cluster, resource } => {
                names_cluster(cluster, &format!("forbids reading {resource}"))
            }
            Self::NotConfirmed { resource, reasons } => not_confirmed(resource, reasons),
        }
    }
}

fn not_after_item(cluster: &ClusterName, cause: &str) -> Status {
    Status::expired(format!(
        "a watch cannot resume from the resourceVersion of one object, of cluster {cluster}: {cause}"
    ))
}

fn no_snapshot(error: &SnapshotError) -> Status {
    match error {
        SnapshotError::Expired(_) => Status::list_expired(),
        SnapshotError::TooNew { requested, current, .. } => Status::too_large_resource_version(requested, current),
    }
}

fn not_reached(cluster: &ClusterName, requested: CollectionVersion, current: CollectionVersion, cause: &str) -> Status {
    let mut status = Status::too_large_resource_version(requested, current);
    status.message.push_str(&format!("; cluster {}: {cause}", go_quote(cluster.as_str())));
    status
}

fn names_cluster(cluster: &ClusterName, cause: &str) -> Status {
    Status::expired(format!("the resourceVersion names cluster {cluster}, which {cause}"))
}

fn not_confirmed(resource: &GroupVersionResource, reasons: &str) -> Status {
    Status::timeout(&format!("{resource} of these clusters could not be confirmed to be current: {reasons}"), 1)
}
