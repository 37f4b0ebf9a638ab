//! What tests and fuzzing of other crates look at, and nobody else needs.

pub use crate::discovery::{MemberDiscovery, Union, model};
pub use crate::negotiate::{AnswerForm, NotAcceptable, Preferences, ResponseKind};
