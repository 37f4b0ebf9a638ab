//! Reasons for which a merged resource leaves out a cluster.

use tributary_apimachinery::GroupVersionResource;

/// Reason for which a merged resource leaves out a cluster that serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Otherwise {
    /// The cluster serves the name as a different kind or with a different scope.
    Clashes(String),
    /// The cluster serves the resource in these versions only.
    InVersions(Vec<String>),
    /// Its discovery lists the version without a description.
    Undescribed(Undescribed),
}

/// The reason why discovery of a cluster lacks the description of a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undescribed {
    /// The aggregated server of the resource does not answer.
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
