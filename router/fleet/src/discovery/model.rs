//! The aggregated discovery document (`apidiscovery.k8s.io/v2`), with the fields that Tributary uses.
//!
//! As in client-go, an absent or `null` field is read as empty, and unknown fields are ignored. If a server lists only
//! the subresources of a resource, the aggregator of a kube-apiserver writes `"verbs": null` for the resource.
//!
//! Source: KEP-3352, kubernetes/api `apidiscovery/v2/types.go`.

use serde::{Deserialize, Serialize};
use tributary_apimachinery::json::null_is_default;
use tributary_apimachinery::{GroupVersion, ResourceRequest};

use super::not_merged::Undescribed;

/// `Accept` header for a request for aggregated discovery only.
pub const AGGREGATED_ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Parameters of the media type of aggregated discovery.
pub const AGGREGATED_PARAMETERS: &str = ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Kind of the aggregated discovery document.
pub const KIND: &str = "APIGroupDiscoveryList";

/// Freshness of an API version whose aggregated API server does not answer. Clients ignore the version's resources.
pub const STALE: &str = "Stale";

/// `APIGroupDiscoveryList`: all API groups of `/api` or `/apis`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupList {
    /// Always `APIGroupDiscoveryList`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub kind: String,
    /// Always `apidiscovery.k8s.io/v2`.
    #[serde(rename = "apiVersion", default, deserialize_with = "null_is_default")]
    pub api_version: String,
    /// Always empty. Clients expect the field.
    #[serde(default, deserialize_with = "null_is_default")]
    pub metadata: GroupListMetadata,
    /// Groups in order of preference.
    #[serde(default, deserialize_with = "null_is_default")]
    pub items: Vec<Group>,
}

/// Metadata of a [`GroupList`]. Tributary uses none of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupListMetadata {}

/// An API group with its versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Metadata with the group's name.
    #[serde(default, deserialize_with = "null_is_default")]
    pub metadata: GroupMetadata,
    /// Versions of the group. The preferred version comes first.
    #[serde(default, deserialize_with = "null_is_default")]
    pub versions: Vec<Version>,
    /// Parser error if the versions of the group cannot be parsed. In this case `versions` is empty. `None` if the
    /// group was parsed.
    #[serde(skip)]
    pub unreadable: Option<String>,
}

/// Metadata of a [`Group`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMetadata {
    /// Name of the group; absent for the core group.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `null` in the answers of kube-apiservers before 1.35. Later kube-apiservers omit the field.
    #[serde(rename = "creationTimestamp", default, skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
}

/// One version of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Name of the version, for example `v1`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub version: String,
    /// Resources of the version.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Resource>,
    /// `Current`, or `Stale` if an aggregated API server did not answer.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "String::is_empty")]
    pub freshness: String,
    /// Parser error of the version. A version with an error is [`STALE`] and has no resources.
    #[serde(skip)]
    pub unreadable: Option<String>,
}

/// Description of a resource in discovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resource {
    /// Plural name of the resource.
    #[serde(default, deserialize_with = "null_is_default")]
    pub resource: String,
    /// Kind of the resource's objects.
    #[serde(rename = "responseKind", default, skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<GroupVersionKind>,
    /// `Namespaced` or `Cluster`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub scope: String,
    /// Singular name of the resource.
    #[serde(rename = "singularResource", default, deserialize_with = "null_is_default")]
    pub singular_resource: String,
    /// Verbs that the resource supports.
    #[serde(default, deserialize_with = "null_is_default")]
    pub verbs: Vec<String>,
    /// Short names of the resource, such as `po`.
    #[serde(
        rename = "shortNames",
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub short_names: Vec<String>,
    /// Categories of the resource, such as `all`.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// Subresources of the objects.
    #[serde(default, deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub subresources: Vec<Subresource>,
}

impl Group {
    /// Returns whether discovery has the resources of all versions of the group.
    pub fn is_described(&self) -> bool {
        self.unreadable.is_none() && self.versions.iter().all(|version| version.freshness != STALE)
    }

    /// Returns the reason why discovery lacks the resources of an API version. `None` if discovery has the resources,
    /// or if the group does not have the version.
    pub fn undescribed(&self, version: &str) -> Option<Undescribed> {
        if let Some(error) = &self.unreadable {
            return Some(Undescribed::Unreadable(error.clone()));
        }
        self.versions.iter().find(|own| own.version == version)?.undescribed()
    }
}

impl Version {
    fn undescribed(&self) -> Option<Undescribed> {
        let reason = || self.unreadable.clone().map_or(Undescribed::Stale, Undescribed::Unreadable);
        (self.freshness == STALE).then(reason)
    }
}

impl Resource {
    /// Returns whether the resource is namespaced.
    pub fn namespaced(&self) -> bool {
        self.scope == "Namespaced"
    }

    /// Returns whether the resource supports a verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| own == verb)
    }

    /// Returns kind and scope. Clusters are merged only if their kind and scope are equal.
    pub fn nature(&self) -> Nature<'_> {
        Nature { kind: self.kind(), namespaced: self.namespaced() }
    }

    /// Returns whether `kind` is the kind of the resource's objects, or the kind of the subresource in the request.
    pub fn answers_with(&self, request: &ResourceRequest, kind: &str) -> bool {
        let below = self.below(request).and_then(|own| own.response_kind.as_ref());
        self.kind() == kind || below.is_some_and(|own| own.kind == kind)
    }

    /// Returns the description of the subresource in a request. `None` if the request has no subresource, or a
    /// subresource that discovery lacks.
    pub fn below(&self, request: &ResourceRequest) -> Option<&Subresource> {
        let name = request.subresource.as_ref()?;
        self.subresources.iter().find(|own| own.subresource == *name)
    }

    /// Returns the kind of the resource's objects. Empty if the discovery document does not name the kind.
    pub fn kind(&self) -> &str {
        self.response_kind.as_ref().map_or("", |kind| &kind.kind)
    }
}

/// Kind and scope of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nature<'a> {
    /// Kind of the resource's objects.
    pub kind: &'a str,
    /// Whether the resource is namespaced.
    pub namespaced: bool,
}

impl std::fmt::Display for Nature<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.kind, if self.namespaced { "namespaced" } else { "cluster-scoped" })
    }
}

/// Description of a subresource in discovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subresource {
    /// Name of the subresource, for example `status`.
    #[serde(default, deserialize_with = "null_is_default")]
    pub subresource: String,
    /// Kind of the subresource's responses.
    #[serde(rename = "responseKind", default, skip_serializing_if = "Option::is_none")]
    pub response_kind: Option<GroupVersionKind>,
    /// Kinds of request bodies that the subresource accepts. The list may be incomplete.
    #[serde(
        rename = "acceptedTypes",
        default,
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub accepted_types: Vec<GroupVersionKind>,
    /// Verbs that the subresource supports.
    #[serde(default, deserialize_with = "null_is_default")]
    pub verbs: Vec<String>,
}

/// Group, version and kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupVersionKind {
    /// API group. Empty for the core group. In discovery, an empty group stands for the group that contains the
    /// resource.
    #[serde(default, deserialize_with = "null_is_default")]
    pub group: String,
    /// API version. In discovery, an empty version stands for the version that contains the resource.
    #[serde(default, deserialize_with = "null_is_default")]
    pub version: String,
    /// Name of the kind.
    #[serde(default, deserialize_with = "null_is_default")]
    pub kind: String,
}

impl GroupList {
    /// Creates a list of these groups.
    pub fn new(items: Vec<Group>) -> Self {
        Self { kind: KIND.into(), api_version: "apidiscovery.k8s.io/v2".into(), metadata: GroupListMetadata {}, items }
    }

    /// Returns each API version whose resources the document lacks, with the reason. If all versions of a group cannot
    /// be parsed, the name of the returned version is empty. Visits each version.
    pub fn undescribed(&self) -> impl Iterator<Item = (GroupVersion, Undescribed)> {
        let of_group = |group: &Group| {
            let named =
                |version: &str| GroupVersion { group: group.metadata.name.clone().into(), version: version.into() };
            match &group.unreadable {
                Some(error) => vec![(named(""), Undescribed::Unreadable(error.clone()))],
                None => group
                    .versions
                    .iter()
                    .filter_map(|version| Some((named(&version.version), version.undescribed()?)))
                    .collect(),
            }
        };
        self.items.iter().filter(|group| !group.is_described()).flat_map(of_group)
    }
}
