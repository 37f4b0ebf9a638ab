//! Reasons for which a merged resource omits a cluster.

use tributary_apimachinery::GroupVersionResource;

/// Reason for which a merged resource omits a cluster that serves the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// The cluster serves the name as a different kind or with a different scope.
    Clashes(String),
    /// The cluster serves the resource only in these versions.
    InVersions(Vec<String>),
    /// The cluster's discovery lists the version without its resources.
    Undescribed(Undescribed),
}

/// Reason for which the discovery of a cluster lacks the resources of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undescribed {
    /// The aggregated server of the version does not answer.
    Stale,
    /// Parser error in the description of the version.
    Unreadable(String),
}

impl Otherwise {
    /// Returns whether the cluster may have objects of the resource although its discovery lacks the resource.
    pub fn is_undescribed(&self) -> bool {
        matches!(self, Self::Undescribed(_))
    }

    /// Returns the reason as a text for warnings.
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
