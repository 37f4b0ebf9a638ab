//! Tests of every door: the contracts of a cluster's own path and of the merged view hold below each prefix of
//! [`table`].

pub(crate) mod at_door;
mod figures;
mod identity;
mod messages;
mod reads;
mod secrets;
pub(crate) mod table;
mod transcripts;
mod watches;
mod writes;
