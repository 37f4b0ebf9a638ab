//! Flow control: which requests are let in, which wait for a moment, and which are refused.
//!
//! A [`Schema`] limits how many requests are in flight, or how many begin in a second, for each user, group, client
//! address, verb or resource. [`FlowControl`] has the schemas of one configuration; its
//! [`GovernedSchema::admit`] lets a request in. What decides is a state machine whose time is an argument
//! (`limiter.rs`), with the accounts of keys (`accounts.rs`), the queues in which flows take turns (`fair_queues.rs`,
//! `queue.rs`); `gate.rs` waits for what it decides. Where several
//! replicas serve together, each has its [part](Schema::divided_among) of every limit.
//!
//! ```text
//! FlowControl ─▶ GovernedSchema ─▶ Gate ─▶ Limiter ─▶ Accounts ─▶ Account ─┬▶ Slots, or SpentTokens
//!  by name        kind, key         waits   decides    by key              └▶ FairQueues, while somebody waits
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
pub use attributes::{Attributes, Dimension, Flow, FlowResource, FlowUser};
pub use control::{DuplicateSchema, FlowControl, GovernedSchema, SchemaUsage};
pub use hand::{Deck, DeckError, HAND_MAX};
pub use refusal::{REFUSAL_REASONS, ReachedLimit, RefusalCause, Refused};
pub use schema::{Limited, MaxRequestsInflight, Queueing, Schema, SchemaKind, TokenBucket};

/// The header of an answer that names the schema that its request was let in, or refused, by. Kubernetes' own,
/// `X-Kubernetes-PF-FlowSchema-UID`, stays what the member says.
pub const SCHEMA_HEADER: &str = "x-tributary-flow-control-schema";
