//! Which requests are audited, and what is written of them: `Policy` and `Event` of audit.k8s.io/v1, as kube-apiserver
//! reads and writes them.
//!
//! ```text
//! request ─▶ Policy::decide ─▶ AuditDecision ─▶ secrets::cap ─▶ Event ─▶ a line of JSON for each stage
//! ```
//!
//! Values only: no I/O, no task, no clock. Whoever uses it says what time it is and where events go.

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
pub use event::{Annotation, AuditedUser, Event, ObjectReference, RequestFacts, event_list};
pub use level::{Stage, Stages};
pub use micro_time::MicroTime;
pub use policy::{AuditPolicy, GroupResources, InvalidPolicy, PolicyRule};
pub use response_status::ResponseStatus;
pub use secrets::without_tokens;
pub use source_ips::source_ips;
/// How much is written of a request.
pub use tributary_apimachinery::AuditLevel as Level;
pub use truncation::truncated_line;
