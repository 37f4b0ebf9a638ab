//! Label and field selectors, in Kubernetes' grammar and with its errors.

pub mod field;
pub mod label;
mod label_syntax;

pub use field::{FieldRequirement, FieldSelector, FieldSelectorError};
pub use label::{LabelOperator, LabelRequirement, LabelSelector, LabelSelectorError};
