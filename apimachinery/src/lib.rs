//! Kubernetes' shared vocabulary, as the rest of Tributary speaks it: request paths, resources, resourceVersions,
//! selectors, Status, and objects kept as bytes.
//!
//! Invariant: no tokio, no HTTP client, no clock and no knowledge of more than one cluster at a time.

pub mod change;
pub mod cluster_name;
pub mod collection_version;
pub mod duration;
pub mod explain;
pub mod filter;
pub mod json;
pub mod object;
pub mod options;
pub mod query;
pub mod request_info;
pub mod resource;
pub mod resource_version;
pub mod rewrite;
pub mod selectable_fields;
pub mod selector;
pub mod snapshot;
pub mod status;
pub mod wire;

pub use change::{Change, ChangeType};
pub use cluster_name::{ClusterName, InvalidClusterName};
pub use collection_version::CollectionVersion;
pub use explain::explain;
pub use filter::{ClusterSelector, Filter};
pub use object::{
    ClusterAnnotation, DecodeError, Object, ObjectDecoder, ObjectKey, Rendering, SelectableField, mark_object,
};
pub use options::{GetOptions, ListOptions, ResourceVersionMatch, Timeout, WatchOptions};
pub use query::Query;
pub use request_info::{RequestClass, RequestInfo, ResourceRequest, Target, Verb};
pub use resource::{GroupVersion, GroupVersionResource};
pub use resource_version::{InvalidResourceVersion, ResourceVersion};
pub use selectable_fields::selectable_fields;
pub use selector::{FieldSelector, LabelSelector, SelectorBounds};
pub use snapshot::{Scope, Snapshot, Walk};
pub use status::{FieldError, Reason, Status, StatusCause, StatusDetails, StatusMetadata, Trouble, Unanswered};
