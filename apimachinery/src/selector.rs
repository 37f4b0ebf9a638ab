//! Label and field selectors, in Kubernetes' grammar and with its error messages.

mod bounds;
pub mod field;
pub mod label;
mod label_syntax;

pub use bounds::{SelectorBounds, TooMany};
pub use field::{FieldRequirement, FieldSelector, FieldSelectorError};
pub use label::{LabelOperator, LabelRequirement, LabelSelector, LabelSelectorError};
