//! Reasons for which a resource of the merged view omits a cluster.

use tributary_apimachinery::GroupVersionResource;

/// Reason for which a resource of the merged view omits a cluster that serves the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotMergedReason {
    /// The cluster serves a resource of this name with a different kind or scope.
    Clashes(String),
    /// The cluster serves the resource only in these API versions.
    InVersions(Vec<String>),
    /// The cluster's discovery lists the API version without the version's resources.
    Undescribed(Undescribed),
}

/// Reason for which the discovery of a cluster lacks the resources of an API version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undescribed {
    /// The aggregated API server of the version does not answer.
    Stale,
    /// The description of the version cannot be parsed. The value is the error.
    Unreadable(String),
}

impl NotMergedReason {
    /// Returns whether the cluster may have objects of the resource although its discovery lacks the resource.
    pub fn is_undescribed(&self) -> bool {
        matches!(self, Self::Undescribed(_))
    }

    /// Returns the reason as a text for `Warning` headers.
    pub fn reason(&self, resource: &GroupVersionResource) -> String {
        match self {
            Self::Clashes(kind) => format!("the cluster serves the resource as {kind}"),
            Self::InVersions(versions) => format!("the cluster serves the resource only in {}", versions.join(", ")),
            Self::Undescribed(Undescribed::Stale) => {
                format!("the server behind its {} does not answer", resource.group_version())
            }
            Self::Undescribed(Undescribed::Unreadable(error)) => {
                format!("the discovery of {} cannot be read: {error}", resource.group_version())
            }
        }
    }
}
