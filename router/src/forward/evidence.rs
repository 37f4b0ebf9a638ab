//! What speaks for a cluster that a write may mean: one file for each ground that asks what clusters have.

mod gathered;
mod helm_records;
mod kind;
mod named;
mod namespace;
mod node;
mod referenced;

pub(super) use self::gathered::Gathered;
pub(super) use self::helm_records::of_release;
pub(super) use self::kind::of_kind;
pub(super) use self::named::of_name;
pub(super) use self::namespace::of_namespace;
pub(super) use self::node::of_node;
pub(super) use self::referenced::{Referenced, of_references};
