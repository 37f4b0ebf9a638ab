//! Requests that go on to members: to the owner of an object, to the target of a new one, to all.

pub(crate) mod answer;
pub(crate) mod buffered;
pub(crate) mod create;
pub(crate) mod delete_collection;
mod findings;
pub(crate) mod integers;
pub(crate) mod list;
pub(crate) mod locate;
mod meant;
mod namespace;
pub(crate) mod one_cluster;
pub(crate) mod owner;
mod records;
pub(crate) mod release;
mod rewritten;
mod room;
pub(crate) mod self_review;
pub(crate) mod send;
pub(crate) mod shared_questions;
pub(crate) mod storage_versions;
mod target;
pub(crate) mod whole;
