//! Changes of a YAML text that keep every other byte, comments and order too.

pub(crate) mod edit;
pub(crate) mod fields;
pub(crate) mod layout;
