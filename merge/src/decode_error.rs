//! Why the text of a version is not taken, in either of its forms.

use tributary_apimachinery::ClusterName;

use crate::ClusterIndex;

/// Why a text is not a composite resourceVersion that can be honoured here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionDecodeError {
    /// Garbage: no version that anybody ever handed out. On a list this is 400.
    #[error("not a composite resourceVersion: {0}")]
    Malformed(&'static str),
    /// Well-formed, but without meaning here. On a list this is 410, because a client relists from scratch only then.
    #[error(transparent)]
    Foreign(#[from] Foreign),
}

/// Why a well-formed resourceVersion has no meaning here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// A number: one member's own version, or the integer form of one object.
    #[error("a plain number does not say which cluster it belongs to")]
    Number,
    /// A version of more clusters that are not known than are looked for.
    #[error("the resourceVersion names more than {0} clusters that are not configured here")]
    Clusters(usize),
    /// The integer form of one object, of a cluster that is not known.
    #[error("the resourceVersion has index {0}, which belongs to no cluster here")]
    Index(ClusterIndex),
    /// The version of one object that is not a number, from which nothing can be read or followed.
    #[error("the resourceVersion is one object's, whose server does not count its changes")]
    Opaque,
    /// A compact form of a later release.
    #[error("the resourceVersion has a form that this release does not know")]
    Form,
    /// The compact form over a list of clusters that this process does not know.
    #[error("the resourceVersion belongs to epoch {0:016x}, which is not known here")]
    Epoch(u64),
    /// The cluster of that name is another one now (its kube-system uid differs). The text does not name it: its reader
    /// may not know of it.
    #[error("a cluster of the resourceVersion is no longer the one that it was made for")]
    Incarnation(ClusterName),
}
