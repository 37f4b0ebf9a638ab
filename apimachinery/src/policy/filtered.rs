//! The policy for lists of users who may list only some objects.

use serde::{Deserialize, Serialize};

/// The policy for lists of users who may list only some objects of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Filtered {
    /// The list contains the objects that the user may list, and a `Warning` header reports the restriction.
    #[default]
    Allow,
    /// The list or watch is refused with 403, as a cluster itself would refuse the request.
    Deny,
}
