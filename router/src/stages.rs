//! The stages of a request, one file for each. `handle.rs` has them in order, each with its reason.
//!
//! A stage may hold a resource until the answer ends, or add headers to the answer: by the value that it returns, or by
//! a second function of its file. A new stage is a file here and a line in `handle.rs`.

pub(crate) mod admit;
pub(crate) mod answer;
pub(crate) mod authorize;
pub(crate) mod configure;
pub(crate) mod deadline;
pub(crate) mod dispatch;
pub(crate) mod encode;
pub(crate) mod limit;
pub(crate) mod observe;
pub(crate) mod parse;
pub(crate) mod plan;
pub(crate) mod staged_request;
