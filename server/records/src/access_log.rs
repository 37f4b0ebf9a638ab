//! The access log: one line of JSON for each request, written after its answer.
//!
//! ```text
//! Front::call ─▶ AccessLog::begin ─▶ Followed ─▶ Followed::finish ─▶ ObservedBody ─▶ a line ─▶ queue ─▶ a thread ─▶ file
//!                                    (user, verb)  (status)           (its end)
//! ```
//!
//! A request never waits for its line: lines beyond the queue's capacity are dropped and counted. Without
//! `--access-log-path` there is no [`AccessLog`], and none of this code runs.

mod line;
mod log;
mod record;

pub use log::{AccessLog, AccessLogError, AccessLogSettings};

pub use record::AccessRecord;
