//! The shared types of Tributary for Kubernetes' API: request paths, resources, resourceVersions, selectors, Status,
//! and objects stored as bytes.
//!
//! ```
//! use std::error::Error;
//! use tributary_apimachinery::{ClusterAnnotation, ClusterName, ObjectDecoder, Rendering, RequestInfo, Verb};
//!
//! # fn main() -> Result<(), Box<dyn Error>> {
//! // The prefix of a path names a cluster; the remaining path is a Kubernetes path.
//! let info = RequestInfo::parse("GET", "/clusters/eu/api/v1/namespaces/shop/pods/web-0", None)?;
//! assert_eq!((info.verb, info.path.as_str()), (Verb::Get, "/api/v1/namespaces/shop/pods/web-0"));
//!
//! // An object keeps the text of its cluster. A response inserts the cluster annotation and the version.
//! let text = br#"{"metadata":{"name":"web-0","namespace":"shop","uid":"u","resourceVersion":"7"}}"#;
//! let pod = ObjectDecoder::new("v1", "Pod", [].into()).decode(text)?;
//! let annotation = ClusterAnnotation::new(&ClusterName::new("eu")?);
//! let mut written = Vec::new();
//! let version = Some("eyJldSI6IjcifQ");
//! let rendering = Rendering { resource_version: version, annotation: Some(&annotation), list_item: false };
//! pod.render(&rendering, &mut written);
//! let written = String::from_utf8(written)?;
//! assert!(written.contains(r#""tributary.dev/cluster":"eu""#) && written.contains(r#""eyJldSI6IjcifQ""#));
//! # Ok(())
//! # }
//! ```
//!
//! Invariant: no tokio, no HTTP client, no clock, and no state of more than one cluster.

pub mod body;
pub mod built_in;
pub mod change;
pub mod cluster_name;
pub mod collection_version;
pub mod dns_name;
pub mod duration;
pub mod explain;
pub mod filter;
pub mod host;
pub mod json;
pub mod mount;
pub mod native_version;
pub mod object;
pub mod options;
mod or_pending;
pub mod permit;
pub mod policy;
mod poll_round;
pub mod query;
pub mod request_info;
pub mod resource;
pub mod resource_names;
pub mod resource_version;
pub mod rewrite;
pub mod selectable_fields;
pub mod selector;
pub mod service_account;
pub mod snapshot;
pub mod status;
pub mod text;
pub mod user_info;
pub mod user_names;
pub mod when_woken;
pub mod wire;

pub use change::{Change, ChangeType};
pub use cluster_name::{ClusterName, InvalidClusterName};
pub use collection_version::CollectionVersion;
pub use dns_name::{dns_subdomain_errors, is_dns_subdomain, is_namespace_name};
pub use explain::explain;
pub use filter::{ClusterSelector, Filter, SelectableResource};
pub use host::{Host, HostName, InvalidHost, without_brackets};
pub use mount::{CLUSTER_PREFIXES, Door, ForeignDoors, ForeignSystem, MERGED_VIEW, Mount, MountTarget, Mounted};
pub use native_version::NativeVersion;
pub use object::decode::ObjectDecoder;
pub use object::decode_error::ObjectDecodeError;
pub use object::mark::{mark_object, unmark_object};
pub use object::render::Rendering;
pub use object::{ClusterAnnotation, ClusterAnnotations, Object, ObjectKey, SelectableField};
pub use options::{GetOptions, ListOptions, ResourceVersionMatch, Timeout, WatchOptions};
pub use or_pending::or_pending;
pub use permit::Permit;
pub use policy::audit_level::AuditLevel;
pub use policy::cluster_authorization::ClusterAuthorization;
pub use policy::consistency::Consistency;
pub use policy::filtered::Filtered;
pub use policy::item_resource_versions::ItemResourceVersions;
pub use policy::names::Names;
pub use policy::partial::Partial;
pub use policy::resource_pattern::{InvalidResourcePattern, ResourcePattern};
pub use poll_round::{PollRound, PollSide};
pub use query::Query;
pub use request_info::requested_resource::RequestedResource;
pub use request_info::{
    METHODS, RequestClass, RequestInfo, RequestTarget, ResourceRequest, Verb, is_path_segment_name,
};
pub use resource::{GroupVersion, GroupVersionResource};
pub use resource_names::ResourceNames;
pub use resource_version::{InvalidResourceVersion, ResourceVersion};
pub use selectable_fields::selectable_fields;
pub use selector::{FieldSelector, LabelSelector, SelectorBounds};
pub use service_account::{SERVICE_ACCOUNT_USERNAME_PREFIX, ServiceAccount};
pub use snapshot::{Scope, Snapshot, Walk};
pub use status::{FieldError, Status, StatusCause, StatusDetails, StatusMetadata, StatusReason};
pub use user_info::UserInfo;
pub use user_names::{
    ANONYMOUS_USER, AUTHENTICATED_GROUP, MASTERS_GROUP, NOBODY, NODE_USER_PREFIX, NODES_GROUP, SYSTEM_PREFIX,
    UNAUTHENTICATED_GROUP,
};
pub use when_woken::WhenWoken;
