//! Dispatch policies decide whether a request is dispatched or denied, and which limits apply.
//!
//! ```text
//! Policy (as written) ─┬─▶ examine            reports errors and ineffective parts, each with its path
//!                      └─▶ DispatchPolicies ─┬─▶ decide   finds the first matching rule, with an index
//!                                            └─▶ explain  compares rule by rule, field by field, for people
//! ```
//!
//! The syntax is that of KubeGateway's `dispatchPolicies` (kubewharf/kubegateway `pkg/apis/proxy/v1alpha1`). Where
//! KubeGateway's code differs from its documentation, this crate follows the documentation. For example, several
//! inverted entries (`-x`) exclude all their values.
//!
//! The crate has no I/O, no tasks and no clock.

mod attributes;
mod connections;
mod entries;
mod examine;
mod explanation;
mod index;
mod known_resources;
mod logging_modes;
mod names;
mod outcome;
mod own_paths;
mod pattern;
mod place;
mod policies;
mod policy;
mod rule;
mod shadowed;

pub use attributes::{DispatchAttributes, DispatchTarget, dispatched_verb, user_agent};
pub use connections::MissedConnections;
pub use examine::{Finding, PolicyScope, RULES_MAX, Severity, can_match, examine};
pub use explanation::{Explanation, FieldVerdict, Reason, RuleField, RuleVerdict};
pub use known_resources::{explain_unknown_group, explain_unknown_resource};
pub use logging_modes::{AccessLogSetting, AnswerOutcome, LoggingModes};
pub use outcome::{Action, LogMode, Outcome};
pub use own_paths::{OWN_PATHS, is_exempt_from_policies, is_health_check};
pub use place::{PolicyList, RulePosition};
pub use policies::{DispatchPolicies, PolicyDecision, Verdict};
pub use policy::{Mode, Policy};
pub use rule::Rule;
