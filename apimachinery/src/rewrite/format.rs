//! The formats of request bodies, and the paths of resourceVersions in them.

use super::VersionOf;
use crate::{ResourceRequest, Verb};

/// A resourceVersion's role and its path in a body.
type VersionPath = (VersionOf, &'static [&'static str]);

const OWN: VersionPath = (VersionOf::Object, &["metadata", "resourceVersion"]);
const RELATED: VersionPath = (VersionOf::Reference, &["related", "resourceVersion"]);

/// The format of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `application/json`, or a body without a media type.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
    /// `application/json-patch+json` (RFC 6902).
    JsonPatch,
    /// `application/merge-patch+json` (RFC 7386).
    MergePatch,
    /// `application/strategic-merge-patch+json`.
    StrategicMergePatch,
    /// `application/apply-patch+yaml`.
    ApplyYaml,
}

impl Format {
    /// The supported media types, for the message of a 415.
    pub const MEDIA_TYPES: [&'static str; 7] = [
        "application/json",
        "application/yaml",
        "application/vnd.kubernetes.protobuf",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
    ];

    /// Returns whether a Content-Type names objects or patches in CBOR. Tributary does not support CBOR, and a
    /// kube-apiserver supports it only behind a feature gate. Clients that receive 415 retry with JSON.
    pub fn is_cbor(content_type: &str) -> bool {
        media_type(content_type).ends_with("cbor")
    }

    /// Returns the format of a Content-Type, ignoring its parameters. `None` for an unsupported media type, for example
    /// CBOR.
    pub fn from_content_type(content_type: &str) -> Option<Self> {
        match media_type(content_type).as_str() {
            "" | "application/json" => Some(Self::Json),
            "application/yaml" => Some(Self::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Self::Protobuf),
            "application/json-patch+json" => Some(Self::JsonPatch),
            "application/merge-patch+json" => Some(Self::MergePatch),
            "application/strategic-merge-patch+json" => Some(Self::StrategicMergePatch),
            "application/apply-patch+yaml" => Some(Self::ApplyYaml),
            _ => None,
        }
    }
}

/// Returns a Content-Type without its parameters, in lower case.
fn media_type(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The kind of a request's body, which determines the paths of resourceVersions. The request determines the kind,
/// because a member parses a body according to the request's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BodyKind {
    /// An object with `metadata`, or a patch of one.
    Object,
    /// A Pod, with `spec.nodeName`.
    Pod,
    /// A Binding, with `target`.
    Binding,
    /// A core Event, with `involvedObject`.
    CoreEvent,
    /// An Event of `events.k8s.io`, with `regarding`.
    Event,
    /// An Eviction, with `deleteOptions`.
    Eviction,
    /// The DeleteOptions of a delete or deletecollection.
    DeleteOptions,
}

impl BodyKind {
    /// Returns the body kind of a request.
    pub fn for_request(verb: Verb, request: &ResourceRequest) -> Self {
        let resource = (&*request.resource.group, &*request.resource.resource);
        match (verb, resource, request.subresource.as_deref()) {
            (Verb::Delete | Verb::DeleteCollection, ..) => Self::DeleteOptions,
            (_, ("", "pods"), Some("eviction")) => Self::Eviction,
            (_, ("", "pods"), Some("binding")) | (_, ("", "bindings"), None) => Self::Binding,
            (_, ("", "pods"), None) => Self::Pod,
            (_, ("", "events"), None) => Self::CoreEvent,
            (_, ("events.k8s.io", "events"), None) => Self::Event,
            _ => Self::Object,
        }
    }

    /// Returns the paths of resourceVersions.
    pub(super) fn versions(self) -> &'static [VersionPath] {
        match self {
            Self::Object | Self::Pod | Self::Binding => &[OWN],
            Self::CoreEvent => &[OWN, (VersionOf::Reference, &["involvedObject", "resourceVersion"]), RELATED],
            Self::Event => &[OWN, (VersionOf::Reference, &["regarding", "resourceVersion"]), RELATED],
            Self::Eviction => &[OWN, (VersionOf::Object, &["deleteOptions", "preconditions", "resourceVersion"])],
            Self::DeleteOptions => &[(VersionOf::Object, &["preconditions", "resourceVersion"])],
        }
    }

    /// Returns the path of DeleteOptions, if the body has any.
    pub(super) fn delete_options(self) -> Option<&'static [&'static str]> {
        match self {
            Self::DeleteOptions => Some(&[]),
            Self::Eviction => Some(&["deleteOptions"]),
            _ => None,
        }
    }

    /// Returns the field that refers to an Event's object, if the kind is an Event.
    pub(super) fn reference(self) -> Option<&'static str> {
        match self {
            Self::CoreEvent => Some("involvedObject"),
            Self::Event => Some("regarding"),
            _ => None,
        }
    }
}
