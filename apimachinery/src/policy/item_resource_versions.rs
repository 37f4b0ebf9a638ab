//! The form of the resourceVersion of single objects.

use serde::{Deserialize, Serialize};

// Lists, bookmarks and continue tokens always have a composite version.
/// The form of the resourceVersion of single objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum ItemResourceVersions {
    /// The composite form, with the component of the object's cluster.
    #[default]
    Composite,
    /// A number computed from the member's version and the cluster's index, for clients that parse versions as numbers.
    Integer,
}
