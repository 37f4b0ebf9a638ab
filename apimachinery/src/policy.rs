//! The policies for resources and requests, with the names of configuration files and of the command line.

pub mod audit_level;
pub mod cluster_authorization;
pub mod consistency;
pub mod filtered;
pub mod item_resource_versions;
pub mod names;
pub mod partial;
pub mod resource_pattern;
