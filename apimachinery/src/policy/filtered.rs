//! Whether a list may show less than there is, because its reader may see no more.

use serde::{Deserialize, Serialize};

/// What happens where somebody may list some of a collection and not all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schemars", derive(schemars::JsonSchema))]
pub enum Filtered {
    /// The list has what they may list, and a Warning says so.
    #[default]
    Allow,
    /// The list, or watch, is refused with 403, as a cluster would.
    Deny,
}
