//! Merges lists and watches of many clusters under one composite resourceVersion.
//!
//! Everything here is a value: no I/O, no task, no lock, no clock. Time comes in as the `Duration` since the process
//! started; whoever owns a [`Log`] feeds it, and wakes the [`Watcher`]s that wait for its head to move.
//!
//! ```text
//! cacher ──changes──▶ Log ──────▶ Watcher::next ──▶ WatchEvent ──▶ encoded once per SharedKey
//!                      │ head()
//!                      └────────▶ ListCursor ─────▶ chunks of objects, continue token
//! ```

pub mod composite;
pub mod continue_token;
pub mod epochs;
pub mod filter;
pub mod integer;
pub mod item;
pub mod list;
pub mod log;
pub mod watch;

pub use composite::{CompositeResourceVersion, DecodeError, Foreign};
pub use continue_token::{ContinueError, ContinueToken, Position};
pub use epochs::Epochs;
pub use filter::ObjectFilter;
pub use integer::{ClusterIndex, IntegerError, IntegerResourceVersion};
pub use item::{ItemEncoder, item};
pub use list::{ListCursor, ListPage, OpeningList};
pub use log::{Heads, Log, LogConfig, LogVersion, Past, SnapshotError, TooOld};
pub use watch::{EventVersion, ObjectEvent, Progress, SharedKey, WatchEvent, Watcher};
