//! The reasons for which a resourceVersion is rejected, in either form.

use tributary_apimachinery::ClusterName;

use crate::ClusterIndex;

/// The reason why a text is not a usable composite resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionDecodeError {
    /// The text is not a version that Tributary issued. A list answers 400.
    #[error("not a composite resourceVersion: {0}")]
    Malformed(&'static str),
    /// The text is well-formed, but has no meaning here. A list answers 410, because clients relist from scratch only
    /// then.
    #[error(transparent)]
    Foreign(#[from] Foreign),
}

/// The reason why a well-formed resourceVersion has no meaning here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// A number: a cluster's native version, or the integer form of an object's version.
    #[error("the resourceVersion is a plain number, which does not identify a cluster")]
    Number,
    /// The version names more unknown clusters than the reader of the text looks for.
    #[error("the resourceVersion names more than {0} clusters that are not configured here")]
    Clusters(usize),
    /// The integer form of an object's version, with the index of an unknown cluster.
    #[error("the resourceVersion has index {0}, which belongs to no cluster here")]
    Index(ClusterIndex),
    /// The version of a single object whose API server does not number its changes. It cannot be compared or resumed
    /// from.
    #[error("the resourceVersion belongs to an object whose server does not number its changes")]
    Opaque,
    /// A compact form of a later release.
    #[error("the resourceVersion has a format that this release does not support")]
    Form,
    /// The compact form over a list of clusters that this process does not know.
    #[error("the resourceVersion belongs to epoch {0:016x}, which is not known here")]
    Epoch(u64),
    /// The name of a cluster in the version now belongs to a different cluster (the kube-system uid differs). The
    /// message does not contain the name, because the client may not be allowed to know it.
    #[error("a cluster of the resourceVersion was replaced by a different cluster")]
    Incarnation(ClusterName),
}
