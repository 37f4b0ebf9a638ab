//! All doors: the path prefixes that lead to the merged view, and to a member with the name `a`.

use std::fmt;
use std::sync::Arc;

use tributary_apimachinery::{Door, ForeignDoors, Mount};

/// A door, by the prefix that its clients use.
pub(crate) struct DoorRow {
    /// The path before the paths of the target.
    pub(crate) prefix: &'static str,
    /// Makes the mount of the listener that has the prefix.
    pub(crate) mount: fn(Arc<ForeignDoors>) -> Mount,
    pub(crate) form: DoorForm,
}

/// The deliberate differences of a door's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DoorForm {
    /// The answers are those of the first row.
    Equal,
    /// Objects have Karmada's annotation, too. Karmada's control plane answers paths without a resource.
    WithKarmada,
    /// Like `WithKarmada`. The target serves no watches, and no writes without a name. The refusals 404, 405 and 409
    /// are plain text.
    InKarmadasWords,
}

fn merged_host(_: Arc<ForeignDoors>) -> Mount {
    Mount::Merged
}

const fn row(prefix: &'static str, mount: fn(Arc<ForeignDoors>) -> Mount, form: DoorForm) -> DoorRow {
    DoorRow { prefix, mount, form }
}

/// The doors of the merged view. The first row is the reference.
pub(crate) const MERGED_VIEWS: &[DoorRow] = &[
    row("", merged_host, DoorForm::Equal),
    row("/apis/aggregation.tributary.dev/v1alpha1/views/all/proxy", Mount::Aggregated, DoorForm::Equal),
    row("/apis/search.karmada.io/v1alpha1/proxying/karmada/proxy", Mount::Aggregated, DoorForm::WithKarmada),
    row("/apis/cluster.karmada.io/v1alpha1/clusters/*/proxy", Mount::Aggregated, DoorForm::InKarmadasWords),
];

/// The doors of the member `a`. The first row is the reference.
pub(crate) const MEMBERS: &[DoorRow] = &[
    row("/clusters/a", merged_host, DoorForm::Equal),
    row("/k8s/clusters/a", merged_host, DoorForm::Equal),
    row("/apis/aggregation.tributary.dev/v1alpha1/clusters/a/proxy", Mount::Aggregated, DoorForm::Equal),
    row("/apis/cluster.core.oam.dev/v1alpha1/clustergateways/a/proxy", Mount::Aggregated, DoorForm::Equal),
    row("/apis/cluster.karmada.io/v1alpha1/clusters/a/proxy", Mount::Aggregated, DoorForm::Equal),
];

impl DoorRow {
    /// Returns the way by which clients with the prefix reach the target.
    pub(crate) fn door(&self, doors: Arc<ForeignDoors>) -> Door {
        (self.mount)(doors).resolve(&format!("{}/api", self.prefix)).unwrap().door
    }

    /// Returns whether the target is the merged view, and not a member.
    pub(crate) fn is_merged(&self) -> bool {
        MERGED_VIEWS.iter().any(|row| row.prefix == self.prefix)
    }

    pub(crate) fn allows_watches(&self) -> bool {
        self.form != DoorForm::InKarmadasWords
    }
}

impl fmt::Debug for DoorRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "door {:?}", self.prefix)
    }
}
