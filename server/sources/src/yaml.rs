//! Edits parts of a YAML text. All other bytes, including comments, and the order stay.

pub(crate) mod edit;
pub mod fields;
pub(crate) mod layout;
