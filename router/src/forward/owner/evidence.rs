//! Evidence for the grounds (reasons to choose a cluster) of a write. Each ground has one file.

mod gathered;
mod kind;
mod named;
mod namespace;
mod node;
mod references;

pub(super) use self::gathered::Gathered;
pub(super) use self::kind::find_serving;
pub(super) use self::named::object_request;
pub(in crate::forward) use self::named::{NamedObject, find_named};
pub(in crate::forward) use self::namespace::find_namespace;
pub(super) use self::node::find_node;
pub(super) use self::references::{Referenced, find_referenced};
