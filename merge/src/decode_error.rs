//! The reasons why a resourceVersion of a client is rejected.

use tributary_apimachinery::ClusterName;

use crate::ClusterIndex;

/// The reason why a text is not a usable composite resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionDecodeError {
    /// The text is not a version that Tributary issued. A list answers 400.
    #[error("not a composite resourceVersion: {0}")]
    Malformed(&'static str),
    /// The text is well-formed, but this process cannot use the version. A list answers 410, because only after a 410
    /// do clients list again without a version.
    #[error(transparent)]
    Foreign(#[from] Foreign),
}

/// The reason why this process cannot use a well-formed resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// The version is a number. A number is a cluster's own resourceVersion, or the integer form of an object's version
    /// (resourceVersion × 10⁴ + cluster index).
    #[error("the resourceVersion is a plain number, which does not identify a cluster")]
    Number,
    /// The version contains more clusters that are not configured than the caller tolerates. The value is the tolerated
    /// number.
    #[error("the resourceVersion names more than {0} clusters that are not configured")]
    Clusters(usize),
    /// The version is the integer form of an object's version, and its index belongs to no configured cluster.
    #[error("the resourceVersion has index {0}, which belongs to no configured cluster")]
    Index(ClusterIndex),
    /// The version belongs to a single object whose API server uses resourceVersions that are not numbers. Such a
    /// version cannot be compared, and no watch can resume from it.
    #[error("the resourceVersion belongs to an object whose API server has resourceVersions that are not numbers")]
    Opaque,
    /// The version has a compact form that a later release introduced.
    #[error("the resourceVersion has a format that this release does not support")]
    Form,
    /// The version has the compact form. It refers to a list of clusters (an epoch, with this number) that this process
    /// does not have.
    #[error("the resourceVersion belongs to the list of clusters {0:016x}, which is unknown to this server")]
    Epoch(u64),
    /// A cluster name in the version now belongs to a different cluster (the kube-system uid differs). The message does
    /// not contain the name, because the client may not be allowed to see the cluster.
    #[error("a cluster of the resourceVersion was replaced by a different cluster")]
    Incarnation(ClusterName),
}
