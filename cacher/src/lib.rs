//! Holds one resource of one cluster in memory: reflector, store and state.
//!
//! ```text
//!   member ──bytes──▶ frames / list_stream ──▶ watch_event ──▶ store ──▶ UpdateObserver (in order, one at a time)
//!                            ▲                                   └─────▶ Cacher::snapshot (O(1) clone)
//!                            │ requests
//!                        reflector ◀──inputs, actions──▶ machine (pure)
//! ```
//!
//! [`Cacher::start`] spawns one task, the reflector. It lists and watches the collection, keeps the store and
//! tells an [`UpdateObserver`] every change in the member's order. Dropping the [`Cacher`] ends the task and
//! cancels its request.
//!
//! Invariants: one cluster and one resource (or one namespace of it) each; no other cluster, no merging and no history.
//! One task writes; readers take an O(1) snapshot and never block it. What a reader sees,
//! the observer has been told before.

mod amount;
mod backoff;
mod cacher;
mod config;
mod frames;
mod health;
mod list_places;
mod list_stream;
mod machine;
mod member_health;
mod object_room;
mod page;
mod precedence;
mod progress;
mod reflector;
mod request;
mod shared;
mod state;
mod stats;
mod store;
mod stream;
mod told;
mod update;
mod wait;
mod wakes;
mod watch_event;

pub use cacher::Cacher;
pub use config::{CacherConfig, HeldObjects, ReflectorTuning};
pub use list_places::ListPlaces;
pub use list_stream::ListError;
pub use member_health::{MemberHealth, MemberLoss};
pub use object_room::ObjectRoom;
pub use precedence::Precedence;
pub use request::{LatestError, MemberError};
pub use state::{CacherState, Continuity, StaleReason};
pub use stats::Stats;
pub use update::{Update, UpdateObserver};
pub use wait::{NotReached, StillThere};

use tributary_apimachinery::body::{Body, BoxError};

/// What members send, taken apart as it arrives. Public for those who test it with bytes of their own.
pub mod wire {
    pub use crate::frames::{FrameSplitter, FrameTooLarge};
    pub use crate::list_stream::{ListError, ListMeta, ListParser, ListPart};
    pub use crate::watch_event::{FrameError, MemberEvent};
}

/// The way to one member: requests carry path and query only; authority, credentials and HTTP/2 are the
/// transport's part.
///
/// Dropping the future or the answer's body cancels the request.
pub type Transport = tower::util::BoxCloneSyncService<http::Request<Body>, http::Response<Body>, BoxError>;
