//! The hub: a Kubernetes cluster that stores configuration objects, credentials and the status of members.

mod client;

pub use client::{HubAddress, HubClient, HubError};
