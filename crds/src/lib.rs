//! Tributary's own configuration objects: types, schemas, validation and loading from YAML.
//!
//! [`UpstreamCluster`] has the address and credentials of a cluster, [`ResourceRegistry`] the resources that are
//! cached, and [`MergedEndpoint`] the policies of the merged view. They are cluster-scoped objects of
//! `tributary.dev/v1alpha1`, with the same form in a file and in a hub cluster. [`ClusterSource`] names a foreign list
//! of clusters, only in a hub cluster. The spelling of Kubernetes (`caData`, `proxyURL`) is used only in this crate.

pub mod circuit_breaker;
pub mod cluster_source;
pub mod configuration;
pub mod denied_users;
pub mod dispatch_policy;
pub mod endpoint_probe;
pub mod flow_control;
mod hub_form;
pub mod identity_rule;
pub mod kubegateway;
pub mod load;
pub mod merged_endpoint;
mod origin;
mod patterns;
pub mod render;
pub mod resource_registry;
mod schema;
pub mod secret;
pub mod status;
pub mod upstream_cluster;
pub mod validate;

pub use circuit_breaker::CircuitBreaker;
pub use cluster_source::{ClusterSource, ClusterSourceSpec, MissingCa};
pub use configuration::ConfigurationObjects;
pub use dispatch_policy::{Deny, Dispatch, DispatchPolicy, DispatchRule, LogMode, Logging, PolicyMode};
pub use endpoint_probe::EndpointProbe;
pub use flow_control::{Exempt, FlowControl, FlowControlSchema, LimitBy, MaxRequestsInflight, Queueing, TokenBucket};
pub use hub_form::{HubObjectError, InsecureMembers, decode_hub_object, hub_problems};
pub use identity_rule::{IdentityRule, IdentityRuleType, IdentityType};
pub use load::{LoadError, LoadErrors, documents, load, parse, read_all_documents};
pub use merged_endpoint::{MERGED_ENDPOINT, MergedEndpoint, MergedEndpointSpec};
pub use origin::Origin;
pub use resource_registry::{ClusterSelection, PlacementDecisionReference, ResourceRegistry, ResourceRegistrySpec};
pub use secret::SecretText;
pub use status::{ClusterSourceStatus, ConfigurationStatus, RefusedSourceItem, UpstreamClusterStatus};
pub use upstream_cluster::{
    Credentials, KubeconfigReference, SecretReference, SecureServing, UpstreamCluster, UpstreamClusterSpec,
};
pub use validate::{Severity, ValidationProblem, registry_conflict};

/// The API group of the configuration objects.
pub const GROUP: &str = "tributary.dev";
/// The version of the configuration objects.
pub const VERSION: &str = "v1alpha1";
/// The `apiVersion` of each configuration object.
pub const API_VERSION: &str = "tributary.dev/v1alpha1";
/// The label of objects that Tributary publishes for controllers of other systems. The value is the namespace of the
/// publisher's Lease. A source of members refuses such objects, because they lead back to Tributary.
pub const PUBLISHED_BY: &str = "tributary.dev/published-by";
