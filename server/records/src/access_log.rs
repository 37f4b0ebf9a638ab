//! The access log: a line of JSON of each request, once it has been answered.
//!
//! ```text
//! Front::call ─▶ AccessLog::begin ─▶ Followed ─▶ Followed::finish ─▶ ObservedBody ─▶ a line ─▶ queue ─▶ a thread ─▶ file
//!                                    (who, what)  (status)            (its end)
//! ```
//!
//! A line is never waited for: what the queue has no room for is dropped, and counted. Without `--access-log-path`
//! there is no [`AccessLog`], and nothing here runs.

mod follow;
mod line;
mod log;

pub use log::{AccessLog, AccessLogError, AccessLogSettings};

pub use follow::Followed;
