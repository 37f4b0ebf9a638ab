//! Why a cluster is not among those of a resource that it has.

use tributary_apimachinery::GroupVersionResource;

/// Why a cluster's objects are not among those of a resource, though it has some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// It serves the name as another kind or in another scope.
    Clashes(String),
    /// It serves the resource in these versions.
    InVersions(Vec<String>),
    /// Its discovery lists the version without a description.
    Undescribed(Undescribed),
}

/// The reason why discovery of a cluster lacks the description of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undescribed {
    /// The aggregated server behind it does not answer.
    Stale,
    /// The error in its description.
    Unreadable(String),
}

impl Otherwise {
    /// Whether the cluster may have objects of the resource without describing it.
    pub fn is_undescribed(&self) -> bool {
        matches!(self, Self::Undescribed(_))
    }

    /// The reason in words, for warnings.
    pub fn reason(&self, resource: &GroupVersionResource) -> String {
        match self {
            Self::Clashes(kind) => format!("it serves them as {kind}"),
            Self::InVersions(versions) => format!("it serves them in {} only", versions.join(", ")),
            Self::Undescribed(Undescribed::Stale) => {
                format!("the server behind its {} does not answer", resource.group_version())
            }
            Self::Undescribed(Undescribed::Unreadable(error)) => {
                format!("its discovery of {} cannot be read: {error}", resource.group_version())
            }
        }
    }
}
