//! What the records of requests have in common: the audit log, the access log and the spans.

pub(crate) mod bodies;
pub mod line_log;
pub(crate) mod text;
