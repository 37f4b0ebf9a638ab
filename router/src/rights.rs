//! What users may do in each cluster, as far as memory has to know it to answer them: in the shared mode alone.
//!
//! ```text
//! topology ─▶ mirror ─▶ four cachers of a cluster ─┬─ what they hold ─▶ feed ─▶ compiled ─┐
//!                                                  └─ how they are ───▶ standing ─────────┴─▶ visible ─▶ Admission of a read
//! ```
//!
//! The objects of `rbac.authorization.k8s.io/v1` of each cluster are held as every other resource is, by cachers, and
//! compiled into one [`tributary_authorization::Fleet`]. A cluster whose four collections have not all been read allows
//! nothing to anybody; it is unknown, and never open.

mod actor;
mod admissions;
mod audience;
mod candidates;
mod compiled;
mod confirmation;
mod feed;
mod followed;
mod mirror;
mod standing;
mod visible;

use std::time::Duration;

pub(crate) use actor::{Actor, given_user};
pub(crate) use admissions::Admissions;
pub(crate) use audience::{Audience, AudienceKey, ItemVersions};
pub(crate) use candidates::Candidates;
pub(crate) use followed::{FollowedRights, ScopeChange};
pub(crate) use mirror::RightsMirror;
pub(crate) use visible::{Admission, CallerRights, NamespaceRights, ReadPlace};

/// What serves many users beyond one: memory answers each with what they may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMode {
    /// How long the last rights of a cluster hold that is cut off as a whole. Its objects are as old.
    pub stale_rights: Duration,
}

impl Default for SharedMode {
    /// 12 hours: a night for whoever mends the line, while people go on reading what they could.
    fn default() -> Self {
        Self { stale_rights: Duration::from_secs(12 * 60 * 60) }
    }
}
