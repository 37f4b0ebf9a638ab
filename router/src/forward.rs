//! Requests that Tributary forwards to members: to the owner of an object, to the cluster of a new object, or to all
//! members.

pub(crate) mod answer;
mod ask;
mod body_turns;
pub(crate) mod buffered;
pub(crate) mod create;
pub(crate) mod delete_collection;
pub(crate) mod integers;
mod lasting;
pub(crate) mod list;
mod media_type;
mod missing_namespace;
mod not_let;
pub(crate) mod one_cluster;
pub(crate) mod one_object;
pub(crate) mod owner;
mod preconditions;
mod rewritten;
mod room;
pub(crate) mod self_review;
pub(crate) mod send;
pub(crate) mod storage_versions;
mod target;
pub(crate) mod unlisted;
pub(crate) mod whole;
