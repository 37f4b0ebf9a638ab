//! The policies for resources and requests, with their names in configuration files and on the command line.

pub mod audit_level;
pub mod cluster_authorization;
pub mod consistency;
pub mod filtered;
pub mod item_resource_versions;
pub mod names;
pub mod partial;
pub mod resource_pattern;
