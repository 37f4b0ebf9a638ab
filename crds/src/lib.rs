//! Tributary's own configuration objects: types, schemas, validation and loading from YAML.
//!
//! [`UpstreamCluster`] says how a member cluster is reached, [`ResourceRegistry`] which resources of which clusters are
//! served from memory and how. Both are cluster-scoped objects of `tributary.dev/v1alpha1` and are the same in a file
//! as in a hub cluster. Kubernetes' spelling (`caData`, `proxyURL`) stops at this crate.

pub mod configuration;
pub mod denied_users;
pub mod load;
pub mod render;
pub mod resource_registry;
mod schema;
pub mod secret;
pub mod upstream_cluster;
pub mod validate;

pub use configuration::ConfigurationObjects;
pub use load::{LoadError, LoadErrors, load, parse};
pub use resource_registry::{ClusterSelection, ResourceRegistry, ResourceRegistrySpec};
pub use secret::SecretText;
pub use upstream_cluster::{Credentials, KubeconfigReference, SecureServing, UpstreamCluster, UpstreamClusterSpec};
pub use validate::{Severity, ValidationProblem};

/// The API group of the configuration objects.
pub const GROUP: &str = "tributary.dev";
/// The version that this crate reads and writes.
pub const VERSION: &str = "v1alpha1";
/// What `apiVersion` says in every configuration object.
pub const API_VERSION: &str = "tributary.dev/v1alpha1";
