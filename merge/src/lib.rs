//! Merges lists and watches of many clusters under one composite resourceVersion.
//!
//! Every type is a value: no I/O, no task, no lock, no clock. Callers pass the time as the `Duration` since the process
//! started. The owner of a [`Log`] appends the clusters' changes, and wakes the [`Watcher`]s that wait for new entries.
//!
//! ```text
//! cacher ──changes──▶ Log ──────▶ Watcher::next ──▶ WatchEvent ──▶ encoded once per SharedKey
//!                      │ head()
//!                      └────────▶ ListCursor ─────▶ chunks of objects, continue token
//! ```
//!
//! A complete watch over two clusters:
//!
//! ```
//! use std::error::Error;
//! use std::sync::Arc;
//! use std::time::Duration;
//! use tributary_apimachinery::{Change, ChangeType, ClusterName, Filter, ObjectDecoder, ResourceVersion, Snapshot};
//! use tributary_merge::{Log, LogConfig, Progress, WatchEvent, Watcher};
//!
//! # fn main() -> Result<(), Box<dyn Error>> {
//! let (eu, us) = (ClusterName::new("eu")?, ClusterName::new("us")?);
//! let now = Duration::ZERO;
//! let empty = |version| {
//!     let mut snapshot = Snapshot::default();
//!     snapshot.set_resource_version(ResourceVersion(version));
//!     snapshot
//! };
//! let mut log = Log::new(LogConfig::default());
//! log.join(&eu, empty(10), now);
//! log.join(&us, empty(7), now);
//! let listed = log.resource_version();
//!
//! // A pod is created in one cluster.
//! let text = br#"{"metadata":{"name":"web-0","namespace":"shop","uid":"u","resourceVersion":"11"}}"#;
//! let pod = Arc::new(ObjectDecoder::new("v1", "Pod", [].into()).decode(text)?);
//! let mut after = log.snapshot(&eu).cloned().unwrap_or_default();
//! after.insert(Arc::clone(&pod));
//! after.set_resource_version(ResourceVersion(11));
//! log.append(&eu, vec![Change { change_type: ChangeType::Added, object: pod, previous: None }], after, now);
//!
//! // A client that listed before the change receives one event.
//! let mut watcher = Watcher::resume(&log, &listed, Filter::default())?;
//! let mut events = Vec::new();
//! assert_eq!(watcher.next(&log, 100, &mut events).progress, Progress::CaughtUp);
//! let [WatchEvent::Object(event)] = &events[..] else { panic!("one event") };
//! assert_eq!((event.change_type, &event.cluster, event.object.name()), (ChangeType::Added, &eu, "web-0"));
//!
//! // A client that resumes from the log's current version receives no event.
//! let mut later = Watcher::resume(&log, &log.resource_version(), Filter::default())?;
//! events.clear();
//! assert_eq!(later.next(&log, 100, &mut events).progress, Progress::CaughtUp);
//! assert!(events.is_empty());
//! # Ok(())
//! # }
//! ```

pub mod composite;
pub mod continue_token;
pub mod decode_error;
pub mod epochs;
pub mod filter;
pub mod integer;
pub mod item;
pub mod list;
pub mod log;
pub mod opaque;
pub mod scope_text;
pub mod version_text;
pub mod watch;

pub use composite::CompositeResourceVersion;
pub use continue_token::{ContinueError, ContinueToken, Position};
pub use decode_error::{Foreign, VersionDecodeError};
pub use epochs::Epochs;
pub use filter::ObjectFilter;
pub use integer::{ClusterIndex, IntegerError, IntegerResourceVersion};
pub use item::{ItemEncoder, item};
pub use list::{ListCursor, ListPage, OpeningList};
pub use log::{ClusterSnapshots, Log, LogConfig, LogVersion, PastState, SnapshotError, TooOld};
pub use opaque::OpaqueVersion;
pub use scope_text::{scope_prefix, split_scope};
pub use watch::{BatchOutcome, EventVersion, ObjectEvent, Progress, SharedKey, WatchEvent, Watcher, concerns};
