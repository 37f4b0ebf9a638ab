//! Simulated clusters with the list and watch contract of a kube-apiserver over HTTP/2 and TLS, for tests, demo and
//! benchmarks.
//!
//! ```text
//! Config ─→ Simulator::start ─→ Member ── kubeconfig, url, token
//!                                  ├─ apply, delete, get, list      writes and reads from Rust
//!                                  └─ control()                     faults on command, counters
//! ```
//!
//! A member behaves like a kube-apiserver for list, watch, get and simple writes: one revision counter, a watch window,
//! bookmarks, pages at a fixed revision, WatchList, selectors, Status errors, discovery. Objects are generated on read,
//! so a million pods need no memory. Only written objects are stored.
//!
//! A [`Relay`] between Tributary and a member, simulated or real, cuts, slows and silences the connections. [`compact`]
//! is a second encoder of the router's compact resourceVersions, for tests that must not rely on the router's encoder.
//!
//! Request bodies may be JSON or protobuf; responses are JSON.
//!
//! Not simulated: admission, schema validation, exec, attach and port-forward (no containers run).

mod api;
mod binding;
mod body;
mod catalog;
mod certificate;
mod churn;
pub mod compact;
mod config;
mod control;
mod discovery;
mod generate;
mod handle;
mod kubeconfig;
mod line;
mod list;
mod listener;
mod log;
mod member;
mod opaque;
mod openapi;
mod patch;
mod path;
mod present;
mod protobuf;
pub mod relay;
mod response;
mod scale;
mod select;
mod status;
mod store;
mod view;
mod watch;
mod workload;
mod write;

pub use config::{Churn, SimulatorConfig};
pub use control::{Authorizer, Control, Listed, Rejection, RequestKind, WriteAnswers};
pub use generate::generated;
pub use handle::OWN_USER;
pub use kubeconfig::kubeconfig;
pub use member::{SimulatedCluster, Simulator, StartError};
pub use relay::{Relay, RelayMode};
pub use store::HistoryEvent;
pub use write::WriteError;
