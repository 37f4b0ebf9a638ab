//! What cannot be done with the resourceVersion, or the continue token, that a read names.

use std::time::Duration;

use tributary_apimachinery::status::go_quote;
use tributary_apimachinery::{ClusterName, CollectionVersion, GroupVersionResource, ResourceVersion, Status};
use tributary_merge::{ContinueError, SnapshotError, TooOld, VersionDecodeError};

use super::Refusal;

/// Why the version of a read cannot be honoured.
#[derive(Clone, Debug)]
pub enum VersionRefusal {
    /// The text is no version: 400.
    Invalid {
        /// The text.
        text: String,
        /// What is wrong with it.
        error: VersionDecodeError,
    },
    /// A list's version means nothing here: 410, because an informer lists from scratch on that alone.
    ForeignToList(VersionDecodeError),
    /// A watch's version cannot be read: 410, to be told in the stream.
    ForeignToWatch(VersionDecodeError),
    /// A version of the merged view says nothing of the one cluster that is read: 410, of a watch to be told in the
    /// stream.
    OfOtherCluster {
        /// The cluster.
        cluster: ClusterName,
    },
    /// It was made under other rights than the caller has now: 410, because an informer lists from scratch on that
    /// alone; of a watch to be told in the stream.
    AnotherScope,
    /// A watch's version is older than what is remembered: 410, to be told in the stream.
    TooOld(TooOld),
    /// A watch cannot go on from the number of one object: 410, to be told in the stream.
    NotAfterItem {
        /// The object's cluster.
        cluster: ClusterName,
        /// Why not.
        cause: &'static str,
    },
    /// A watch cannot go on from the number of one object, which is not reached: 410, to be told in the stream.
    ItemNotReached(Refusal),
    /// The text is no continue token: 400.
    InvalidToken(ContinueError),
    /// A version besides a continue token: 400.
    BesidesToken,
    /// What the continue token stands for is no longer held: 410.
    ExpiredToken {
        /// A token to go on with at a newer version.
        fresh: Option<String>,
    },
    /// There is no state of exactly this version: 410 or 504.
    NoSnapshot(SnapshotError),
    /// A cluster has not come to the version in time: 504.
    NotReached {
        /// The cluster.
        cluster: ClusterName,
        /// The version that was waited for.
        version: CollectionVersion,
        /// Where the cluster stands.
        current: CollectionVersion,
        /// How long it was waited for.
        within: Duration,
    },
    /// The member itself has not come so far, of which a get is told: 504, as kube-apiserver words it.
    ObjectWentBack {
        /// The member.
        cluster: ClusterName,
        /// The version's component.
        version: CollectionVersion,
        /// The member's own latest version.
        latest: ResourceVersion,
    },
    /// The same, of which a list or watch is told: 410. A client that knows of undone changes is to list anew, which it
    /// does on that alone.
    CollectionWentBack {
        /// The member.
        cluster: ClusterName,
        /// The version's component.
        version: CollectionVersion,
        /// The member's own latest version.
        latest: ResourceVersion,
    },
    /// It names a cluster that does not serve the resource, so that nothing will come: 410.
    ClusterNotServing {
        /// The cluster.
        cluster: ClusterName,
        /// The resource.
        resource: GroupVersionResource,
    },
    /// It names a cluster that forbids to read the resource, so that nothing will come: 410.
    ClusterForbids {
        /// The cluster.
        cluster: ClusterName,
        /// The resource.
        resource: GroupVersionResource,
    },
    /// Clusters do not confirm that what is held is their newest state: 504.
    NotConfirmed {
        /// The resource.
        resource: GroupVersionResource,
        /// The clusters and their reasons, as many as are told.
        reasons: String,
    },
}

impl VersionRefusal {
    pub(super) fn status(&self) -> Status {
        match self {
            Self::Invalid { text, error } => Status::invalid_resource_version(text, &error.to_string()),
            Self::ForeignToList(error) => {
                Status::expired(format!("the resourceVersion cannot be honoured here: {error}"))
            }
            Self::ForeignToWatch(error) => {
                Status::expired(format!("the resourceVersion cannot be resumed here: {error}"))
            }
            Self::OfOtherCluster { cluster } => Status::expired(format!(
                "list /clusters/{cluster} again: the resourceVersion says nothing of cluster {cluster}"
            )),
            Self::AnotherScope => Status::expired("what you may list has changed since: list again"),
            Self::TooOld(too_old) => Status::expired(too_old.to_string()),
            Self::NotAfterItem { cluster, cause } => not_after_item(cluster, cause),
            Self::ItemNotReached(refusal) => Status::expired(refusal.to_string()),
            Self::InvalidToken(error) => Status::invalid_continue_token(error),
            Self::BesidesToken => Status::bad_request("specifying resource version is not allowed when using continue"),
            Self::ExpiredToken { fresh } => Status::continue_expired(fresh.clone()),
            Self::NoSnapshot(error) => no_snapshot(error),
            Self::NotReached { cluster, version, current, within } => {
                let cause = format!("it did not reach that version within {} s", within.as_secs());
                not_reached(cluster, *version, *current, &cause)
            }
            Self::ObjectWentBack { cluster, version, latest } => {
                not_reached(cluster, *version, (*latest).into(), "its revisions went back")
            }
            Self::CollectionWentBack { cluster, version, latest } => Status::expired(format!(
                "cluster {cluster}: too large resource version: {version}, current: {latest}; its revisions went back"
            )),
            Self::ClusterNotServing { cluster, resource } => {
                names_cluster(cluster, &format!("does not serve {resource} here"))
            }
            Self::ClusterForbids { cluster, resource } => {
                names_cluster(cluster, &format!("forbids reading {resource}"))
            }
            Self::NotConfirmed { resource, reasons } => not_confirmed(resource, reasons),
        }
    }
}

fn not_after_item(cluster: &ClusterName, cause: &str) -> Status {
    Status::expired(format!("the resourceVersion of one object, of cluster {cluster}, cannot be resumed: {cause}"))
}

fn no_snapshot(error: &SnapshotError) -> Status {
    match error {
        SnapshotError::Expired(_) => Status::list_expired(),
        SnapshotError::TooNew { requested, current, .. } => Status::too_large_resource_version(requested, current),
    }
}

fn not_reached(cluster: &ClusterName, given: CollectionVersion, current: CollectionVersion, cause: &str) -> Status {
    let mut status = Status::too_large_resource_version(given, current);
    status.message.push_str(&format!("; cluster {}: {cause}", go_quote(cluster.as_str())));
    status
}

fn names_cluster(cluster: &ClusterName, cause: &str) -> Status {
    Status::expired(format!("the resourceVersion names cluster {cluster}, which {cause}"))
}

fn not_confirmed(resource: &GroupVersionResource, reasons: &str) -> Status {
    Status::timeout(&format!("{resource} of these clusters could not be confirmed to be the newest: {reasons}"), 1)
}
