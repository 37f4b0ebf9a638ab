//! How a resource is to be treated, in the words of a registry and of the command line.

pub mod cluster_authorization;
pub mod consistency;
pub mod filtered;
pub mod item_resource_versions;
pub mod names;
pub mod partial;
pub mod resource_pattern;
