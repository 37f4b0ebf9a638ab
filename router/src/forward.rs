//! Requests that Tributary forwards to members: to the owner of an object, to the cluster of a new object, or to all
//! members.

pub(crate) mod answer;
mod body_permits;
pub(crate) mod buffered;
pub(crate) mod create;
pub(crate) mod delete_collection;
mod impersonation_forbidden;
pub(crate) mod integers;
pub(crate) mod karmada;
pub(crate) mod list;
mod long_running;
mod lookup;
mod media_type;
mod missing_namespace;
pub(crate) mod one_cluster;
pub(crate) mod one_object;
pub(crate) mod owner;
mod preconditions;
mod reservation;
mod rewritten;
pub(crate) mod self_review;
pub(crate) mod send;
pub(crate) mod storage_versions;
mod target;
pub(crate) mod unlisted;
pub(crate) mod whole;
