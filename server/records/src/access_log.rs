//! The access log: one line of JSON for each request, written after its answer.
//!
//! ```text
//! Front::call ─▶ AccessLog::begin ─▶ AccessRecord ─▶ finish ─▶ ObservedBody ─▶ a line ─▶ queue ─▶ a thread ─▶ file
//!                                    (user, verb)    (status)  (end of the body)
//! ```
//!
//! A request never waits for its line: lines beyond the queue's capacity are dropped and counted. Without
//! `--access-log-path` there is no [`AccessLog`], and none of this code runs.

mod line;
mod log;
mod record;

pub use log::{AccessLog, AccessLogError, AccessLogSettings};

pub use record::AccessRecord;
