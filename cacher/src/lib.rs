//! Keeps one resource of one cluster in memory, by list and watch.
//!
//! ```text
//!   member ──bytes──▶ frames / list_stream ──▶ watch_event ──▶ store ──▶ UpdateObserver (in order, one at a time)
//!                            ▲                                   └─────▶ Cacher::snapshot (O(1) clone)
//!                            │ requests
//!                        reflector ◀──inputs, actions──▶ machine (pure)
//! ```
//!
//! [`Cacher::start`] spawns a task, the reflector. The reflector lists and watches the collection, updates the store
//! and reports each change to an [`UpdateObserver`] in the member's order. Dropping the [`Cacher`] ends the task and
//! cancels its request.
//!
//! Invariants: a cacher has one cluster and one resource (or one namespace of the resource). It does not merge
//! clusters, and keeps no history of changes. One task writes; readers take an O(1) snapshot and never block the task.
//! The observer receives each change before readers see the change.

mod backoff;
mod cacher;
mod config;
mod early_wakeups;
mod frames;
mod health;
mod list_permits;
mod list_stream;
mod machine;
mod member_health;
mod memory_limit;
mod page;
mod page_size;
mod precedence;
mod progress;
mod published;
mod reflector;
mod request;
mod shared;
mod state;
mod stats;
mod store;
mod stream;
mod update;
mod wait;
mod watch_event;

pub use cacher::Cacher;
pub use config::{CacherConfig, ObjectRetention, ReflectorTuning};
pub use list_permits::ListPermits;
pub use list_stream::ListError;
pub use member_health::{MemberHealth, MemberLoss};
pub use memory_limit::ObjectMemoryLimit;
pub use precedence::Precedence;
pub use request::{LatestError, MemberError};
pub use state::{CacherState, Continuity, StaleReason};
pub use stats::Stats;
pub use update::{Update, UpdateObserver};
pub use wait::{NotReached, StillExists};

use tributary_apimachinery::body::{Body, BoxError};

/// Parsers of list and watch responses. The module is public for the router, which reads lists without storing them,
/// and for fuzz tests.
pub mod wire {
    pub use crate::frames::{FrameSplitter, FrameTooLarge};
    pub use crate::list_stream::{ListError, ListMeta, ListParser, ListPart};
    pub use crate::watch_event::{FrameError, MemberEvent};
}

/// The HTTP client of a member. Requests have path and query only; the transport adds authority, credentials and
/// HTTP/2.
///
/// Dropping the future or the body of the response cancels the request.
pub type Transport = tower::util::BoxCloneSyncService<http::Request<Body>, http::Response<Body>, BoxError>;
