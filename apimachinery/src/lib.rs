//! Kubernetes' shared vocabulary, as the rest of Tributary speaks it: request paths, resources, resourceVersions,
//! selectors, Status, and objects kept as bytes.
//!
//! Invariant: no tokio, no HTTP client, no clock and no knowledge of more than one cluster at a time.

pub mod change;
pub mod cluster_name;
pub mod json;
pub mod object;
pub mod resource;
pub mod resource_version;
pub mod snapshot;

pub use change::{Change, ChangeType};
pub use cluster_name::{ClusterName, InvalidClusterName};
pub use object::{ClusterAnnotation, DecodeError, Object, ObjectDecoder, ObjectKey, Rendering, SelectableField};
pub use resource::{GroupVersion, GroupVersionResource};
pub use resource_version::{InvalidResourceVersion, ResourceVersion};
pub use snapshot::Snapshot;
