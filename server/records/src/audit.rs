//! The audit log: the users, the requests and their results (crate `tributary_audit`), written to a file and sent to a
//! webhook.
//!
//! ```text
//! Front ─▶ AuditedRequest::begin ─▶ Trail ─▶ Trail::finish ─▶ AuditedBody ─▶ Sinks ─▶ log, webhook
//!          RequestReceived                   ResponseStarted  ResponseComplete
//! ```
//!
//! Without `--audit-policy-file` there is no [`Auditor`], and none of this code runs.

mod audited_request;
mod auditor;
mod bodies;
mod emission;
mod error;
mod id;
mod log;
mod metrics;
mod settings;
mod shared_output;
mod sinks;
mod trail;
mod truncation;
mod webhook;

pub use audited_request::AuditedRequest;
pub use auditor::Auditor;
pub(crate) use auditor::{FORWARDED_FOR, REAL_IP};
pub use error::AuditError;
pub use settings::{AuditLogSettings, AuditMode, AuditSettings, AuditWebhookSettings, ThrottleSettings};
pub use trail::Trail;
pub use truncation::Truncation;
