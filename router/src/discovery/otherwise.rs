//! Why a cluster is not among those of a resource that it has.

use tributary_apimachinery::GroupVersionResource;

/// Why a cluster's objects are not among those of a resource, though it has some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// It serves the name as another kind or in another scope.
    Clashes(String),
    /// It serves the resource in these versions.
    InVersions(Vec<String>),
    /// It serves the version, but the aggregated server behind it does not answer: what it has is not known.
    Stale,
}

impl Otherwise {
    /// The reason in words, for warnings.
    pub fn reason(&self, resource: &GroupVersionResource) -> String {
        match self {
            Self::Clashes(kind) => format!("it serves them as {kind}"),
            Self::InVersions(versions) => format!("it serves them in {} only", versions.join(", ")),
            Self::Stale => {
                format!("the server behind its {} does not answer", resource.group_version())
            }
        }
    }
}
