//! Stages of a request, one file for each stage. `handle.rs` has the stages in order, each with a reason.
//!
//! A stage may keep a resource until the answer ends, or add headers to the answer: by its return value, or by a second
//! function of its file. A new stage is a file in this folder and a line in `handle.rs`.

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
