//! Audit policies and events: decides which requests are audited, and encodes their events. `Policy` and `Event` of
//! audit.k8s.io/v1 have the same meaning as in kube-apiserver.
//!
//! ```text
//! request ─▶ Policy::decide ─▶ AuditDecision ─▶ secrets::cap ─▶ Event ─▶ a line of JSON for each stage
//! ```
//!
//! The crate has only values: no I/O, no tasks, no clock. The caller passes the time, and stores the events.

mod body;
mod checker;
mod event;
mod json;
mod level;
mod micro_time;
mod policy;
mod response_status;
mod secrets;
mod source_ips;
mod truncation;

pub use body::{AuditBody, BODY_BYTES_MAX};
pub use checker::{AuditAttributes, AuditDecision, decoded};
pub use event::{Annotation, Event, ObjectReference, RequestFacts, event_list};
pub use level::{Stage, Stages};
pub use micro_time::MicroTime;
pub use policy::{AuditPolicy, GroupResources, InvalidPolicy, PolicyRule};
pub use response_status::ResponseStatus;
pub use secrets::without_tokens;
pub use source_ips::source_ips;
/// The level of detail of a request's events.
pub use tributary_apimachinery::AuditLevel as Level;
pub use truncation::truncated_line;
