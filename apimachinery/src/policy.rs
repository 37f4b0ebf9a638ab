//! How a resource is to be treated, in the words of a registry and of the command line.

pub mod resource_pattern;
