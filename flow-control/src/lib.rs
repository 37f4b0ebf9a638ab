//! Flow control: admits, delays or refuses requests by configured limits.
//!
//! A [`Schema`] limits requests in flight, or requests per second, for each user, group, client address, verb or
//! resource. [`FlowControl`] has the schemas of one configuration. [`SchemaLimiter::admit`] admits a request.
//! `limiter.rs` makes the decisions, as a state machine that gets the time as an argument. `accounts.rs` counts the
//! usage of each key. `fair_queues.rs` and `queue.rs` order the waiting requests. `gate.rs` waits for the decisions. If
//! Tributary has several replicas, each replica has a [part](Schema::divided_among) of each limit.
//!
//! ```text
//! FlowControl ─▶ SchemaLimiter ─▶ Gate ─▶ Limiter ─▶ Accounts ─▶ KeyAccount ─┬▶ Slots, or SpentTokens
//!  by name        kind, key         waits   decides    by key              └▶ FairQueues, while requests wait
//! ```

mod accounts;
mod admitted;
mod allowance;
mod attributes;
mod control;
mod fair_queues;
mod gate;
mod hand;
mod limiter;
mod queue;
mod refusal;
mod schema;

pub use admitted::AdmittedRequest;
pub use attributes::{Attributes, Dimension, Flow, FlowResource};
pub use control::{DuplicateSchema, FlowControl, SchemaLimiter, SchemaUsage};
pub use hand::{Deck, DeckError, HAND_MAX};
pub use refusal::{REFUSAL_REASONS, ReachedLimit, RefusalCause, Refused};
pub use schema::{Limited, MaxRequestsInflight, Queueing, Schema, SchemaKind, TokenBucket};

/// Response header with the name of the flow-control schema that admitted or refused the request. Kubernetes' header
/// `X-Kubernetes-PF-FlowSchema-UID` has the value that the member sets.
pub const SCHEMA_HEADER: &str = "x-tributary-flow-control-schema";
