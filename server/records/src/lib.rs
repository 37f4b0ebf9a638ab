//! The records of requests: the audit log, the access log and traces.
//!
//! ```text
//!           ┌─▶ audit ───────┬─▶ line_log ─▶ a file, or standard output
//! request ─▶├─▶ access_log ──┘
//!           └─▶ traces ────────▶ an OpenTelemetry collector
//! ```
//!
//! A request does not wait for its records, except the audit log in its blocking modes.

pub mod access_log;
pub mod audit;
mod bodies;
pub mod line_log;
mod text;
pub mod traces;
