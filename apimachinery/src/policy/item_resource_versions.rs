//! The form of the resourceVersion that single objects carry.

use serde::{Deserialize, Serialize};

// Lists, bookmarks and continue tokens are composite in either form.
/// The form of the resourceVersion that single objects carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum ItemResourceVersions {
    /// The object's own component in the composite form.
    #[default]
    Composite,
    /// A number made of the member's version and the cluster's index, for clients that parse versions as numbers.
    Integer,
}
