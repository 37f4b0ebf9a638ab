//! Changes of a YAML text that keep all other bytes, with comments and order.

pub(crate) mod edit;
pub mod fields;
pub(crate) mod layout;
