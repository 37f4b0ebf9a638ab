//! The parts of objects that several kinds share.

use serde::de::IgnoredAny;

use crate::time::Time;
use crate::value::{JoinedTexts, Labels, ListValue, TextValue, parts};

parts! {
    /// The metadata that nearly every row needs.
    struct Metadata<'a> {
        name: TextValue<'a>,
        creation_timestamp: Time,
        deletion_timestamp: Option<IgnoredAny>,
    }

    /// The metadata of kinds whose cells depend on labels or annotations.
    struct FullMetadata<'a> {
        name: TextValue<'a>,
        creation_timestamp: Time,
        deletion_timestamp: Option<IgnoredAny>,
        labels: Labels<'a>,
        annotations: Labels<'a>,
    }

    /// An object whose row needs only the metadata.
    struct MetadataOnly<'a> {
        metadata: Metadata<'a>,
    }

    /// The parts of a pod template in the row of its owner.
    struct PodTemplateSpec<'a> {
        metadata: TemplateMetadata<'a>,
        spec: TemplatePodSpec<'a>,
    }

    /// The metadata of a pod template.
    struct TemplateMetadata<'a> {
        labels: Labels<'a>,
    }

    /// The spec of a pod template.
    struct TemplatePodSpec<'a> {
        containers: ListValue<Container<'a>>,
        node_selector: Labels<'a>,
    }

    /// The name and image of a container.
    struct Container<'a> {
        name: TextValue<'a>,
        image: TextValue<'a>,
    }

    /// A reference to an object by kind and name.
    struct KindAndName<'a> {
        kind: TextValue<'a>,
        name: TextValue<'a>,
    }

    /// A condition of any kind's status.
    struct Condition<'a> {
        r#type: TextValue<'a>,
        status: TextValue<'a>,
        reason: TextValue<'a>,
        last_transition_time: Time,
    }
}

impl PodTemplateSpec<'_> {
    /// Returns the containers' names.
    pub(super) fn names(&self) -> String {
        JoinedTexts(",", self.spec.containers.iter().map(|container| &container.name)).to_string()
    }

    /// Returns the containers' images.
    pub(super) fn images(&self) -> String {
        JoinedTexts(",", self.spec.containers.iter().map(|container| &container.image)).to_string()
    }
}

impl Condition<'_> {
    /// Returns whether the status is `True`.
    pub(super) fn is_true(&self) -> bool {
        &*self.status == "True"
    }
}
