//! Which requests are audited: `Policy` of audit.k8s.io/v1, as kube-apiserver reads it.
//!
//! Values only: no I/O, no task, no clock.

mod checker;
mod level;
mod policy;

pub use checker::{AuditAttributes, AuditDecision, AuditedResource};
pub use level::{Level, Stage, Stages};
pub use policy::{GroupResources, InvalidPolicy, Policy, PolicyRule};
