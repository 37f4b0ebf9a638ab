//! The verdict on an object of the hub, which its status shows.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tributary_cluster_sources::SourceKind;
use tributary_crds::{Severity, ValidationProblem};
use tributary_router::cluster_status::ConditionStatus;

/// Maximum length of a condition's message in bytes.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Kind of a configuration object of the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HubKind {
    /// A member cluster: address, credentials and policies.
    UpstreamCluster,
    /// The registered resources and their settings.
    ResourceRegistry,
    /// The policies of the merged view.
    MergedEndpoint,
    /// The users whose requests are refused.
    DeniedUsers,
    /// A foreign list of clusters, whose items are members.
    ClusterSource,
}

impl HubKind {
    /// All kinds, in the order of the variants, so that `kind as usize` is the index of a kind.
    pub const ALL: [Self; 5] =
        [Self::UpstreamCluster, Self::ResourceRegistry, Self::MergedEndpoint, Self::DeniedUsers, Self::ClusterSource];

    /// Returns the kind as in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UpstreamCluster => "UpstreamCluster",
            Self::ResourceRegistry => "ResourceRegistry",
            Self::MergedEndpoint => "MergedEndpoint",
            Self::DeniedUsers => "DeniedUsers",
            Self::ClusterSource => "ClusterSource",
        }
    }

    /// Returns the name of the resource in paths.
    pub fn plural(self) -> &'static str {
        match self {
            Self::UpstreamCluster => "upstreamclusters",
            Self::ResourceRegistry => "resourceregistries",
            Self::MergedEndpoint => "mergedendpoints",
            Self::DeniedUsers => "deniedusers",
            Self::ClusterSource => "clustersources",
        }
    }
}

/// Identity and generation of an object of the hub.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectReference {
    /// The kind of the object.
    pub kind: HubKind,
    /// The name of the object.
    pub name: String,
    /// The uid of the object. An object that is deleted and made anew has a different uid.
    pub uid: String,
    /// The `metadata.generation` of the object.
    pub generation: i64,
}

/// State of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionState {
    /// Whether the condition applies.
    pub status: ConditionStatus,
    /// The reason for programs, in CamelCase.
    pub reason: String,
    /// The reason for people, without secrets.
    pub message: String,
}

impl ConditionState {
    /// Creates the state of a condition that applies.
    pub fn fulfilled(reason: &str, message: impl Into<String>) -> Self {
        Self { status: ConditionStatus::True, reason: reason.to_owned(), message: message.into() }
    }

    /// Creates the state of a condition that does not apply.
    pub fn failed(reason: &str, message: impl Into<String>) -> Self {
        Self { status: ConditionStatus::False, reason: reason.to_owned(), message: message.into() }
    }

    /// Creates the state of a condition that is not known.
    pub(crate) fn unknown(reason: &str, message: impl Into<String>) -> Self {
        Self { status: ConditionStatus::Unknown, reason: reason.to_owned(), message: message.into() }
    }

    /// Creates the state of `Accepted` for an object with an invalid field.
    pub(crate) fn invalid(message: String) -> Self {
        Self::failed("Invalid", shorten(message))
    }
}

/// Shortens a message to [`MESSAGE_BYTES_MAX`].
pub(crate) fn shorten(mut message: String) -> String {
    if message.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX - 3).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message.truncate(end);
        message.push_str("...");
    }
    message
}

/// Refuses an object with errors among its problems. Warnings refuse no object.
///
/// # Errors
/// The state of `Accepted` with the text of all errors.
pub(crate) fn check_problems(problems: impl IntoIterator<Item = ValidationProblem>) -> Result<(), ConditionState> {
    let errors = problems.into_iter().filter(|problem| problem.severity == Severity::Error);
    let errors: Vec<String> = errors.map(|problem| format!("{}: {}", problem.field, problem.message)).collect();
    if errors.is_empty() { Ok(()) } else { Err(ConditionState::invalid(errors.join("; "))) }
}

/// The verdict on an object: whether its present generation is in force, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The object that the verdict concerns.
    pub object: ObjectReference,
    /// The condition `Accepted`.
    pub accepted: ConditionState,
    /// The condition `ResolvedRefs` of an object that refers to a Secret or to clusters.
    pub resolved_refs: Option<ConditionState>,
    /// The condition `Indexed` of a member, if a registry needs the indexes of its members.
    pub indexed: Option<ConditionState>,
    /// The generation in force; `None` if no generation of the object is in force.
    pub generation_in_force: Option<i64>,
    /// The verdicts on the items of a ClusterSource in force; `None` for other objects.
    pub source: Option<Arc<SourceVerdict>>,
}

/// The verdict on the list of a ClusterSource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceVerdict {
    /// The kind of the list.
    pub list: SourceKind,
    /// The items, sorted by name; `None` until the list is read.
    pub items: Option<Vec<ItemVerdict>>,
}

/// The verdict on an item of a ClusterSource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemVerdict {
    /// The name of the object in the list.
    pub name: String,
    /// The name of the member in force, also if the present item is refused.
    pub member: Option<String>,
    /// Whether the present item is in force, with the reason.
    pub accepted: ConditionState,
}

impl ItemVerdict {
    /// Returns whether the present item is in force.
    pub fn is_accepted(&self) -> bool {
        self.accepted.status == ConditionStatus::True
    }
}

impl SourceVerdict {
    /// Returns the number of items in the list; `None` until the list is read.
    pub fn found(&self) -> Option<usize> {
        self.items.as_ref().map(Vec::len)
    }

    /// Returns the number of items in force; `None` until the list is read.
    pub fn accepted(&self) -> Option<usize> {
        Some(self.items.as_ref()?.iter().filter(|item| item.is_accepted()).count())
    }

    /// Returns the refused items, sorted by name.
    pub fn refused(&self) -> impl Iterator<Item = &ItemVerdict> {
        self.items.iter().flatten().filter(|item| !item.is_accepted())
    }
}

impl Verdict {
    /// Returns whether the members that come from the object are known. They are unknown for a ClusterSource whose list
    /// is not read.
    pub(crate) fn has_known_members(&self) -> bool {
        let is_read = self.source.as_ref().is_some_and(|source| source.items.is_some());
        self.object.kind != HubKind::ClusterSource || is_read
    }

    /// Returns the messages of the conditions `Accepted` and `ResolvedRefs` that are `False`; `None` if neither is
    /// `False`.
    pub fn problem(&self) -> Option<String> {
        let states = [Some(&self.accepted), self.resolved_refs.as_ref()];
        let failed = states.into_iter().flatten().filter(|state| state.status == ConditionStatus::False);
        let messages: Vec<&str> = failed.map(|state| state.message.as_str()).collect();
        (!messages.is_empty()).then(|| messages.join(" "))
    }
}
