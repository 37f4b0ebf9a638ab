//! Parts of objects that the printers of several kinds read.

use serde::de::IgnoredAny;

use crate::time::Time;
use crate::value::{JoinedTexts, Labels, ListValue, TextValue, parts};

parts! {
    /// The metadata fields that nearly every row needs.
    struct Metadata<'a> {
        name: TextValue<'a>,
        creation_timestamp: Time,
        deletion_timestamp: Option<IgnoredAny>,
    }

    /// The metadata fields of kinds whose cells also depend on labels or annotations.
    struct FullMetadata<'a> {
        name: TextValue<'a>,
        creation_timestamp: Time,
        deletion_timestamp: Option<IgnoredAny>,
        labels: Labels<'a>,
        annotations: Labels<'a>,
    }

    struct MetadataOnly<'a> {
        metadata: Metadata<'a>,
    }

    /// The fields of a pod template that are shown in the row of the template's owner.
    struct PodTemplateSpec<'a> {
        metadata: TemplateMetadata<'a>,
        spec: TemplatePodSpec<'a>,
    }

    struct TemplateMetadata<'a> {
        labels: Labels<'a>,
    }

    struct TemplatePodSpec<'a> {
        containers: ListValue<Container<'a>>,
        node_selector: Labels<'a>,
    }

    struct Container<'a> {
        name: TextValue<'a>,
        image: TextValue<'a>,
    }

    struct KindAndName<'a> {
        kind: TextValue<'a>,
        name: TextValue<'a>,
    }

    /// A condition in the status of any kind.
    struct Condition<'a> {
        r#type: TextValue<'a>,
        status: TextValue<'a>,
        reason: TextValue<'a>,
        last_transition_time: Time,
    }
}

impl PodTemplateSpec<'_> {
    pub(super) fn names(&self) -> String {
        JoinedTexts(",", self.spec.containers.iter().map(|container| &container.name)).to_string()
    }

    pub(super) fn images(&self) -> String {
        JoinedTexts(",", self.spec.containers.iter().map(|container| &container.image)).to_string()
    }
}

impl Condition<'_> {
    /// Returns whether the condition's status is `True`.
    pub(super) fn is_true(&self) -> bool {
        &*self.status == "True"
    }
}
