//! What users may do in each cluster, as far as memory has to know it to answer them: in the shared mode alone.
//!
//! ```text
//! topology ─▶ mirror ─▶ four cachers of a cluster ─┬─ what they hold ─▶ feed ─▶ compiled ─┐
//!                                                  └─ how they are ───▶ mirror_state ─────┴─▶ caller_rights
//!
//! caller_rights ─▶ existence ─┬─▶ visible ─▶ readable   what a list, watch or get may read
//!                             ├─▶ candidates            the clusters that there are for what members answer
//!                             └─▶ visit                 who may see what is told of all clusters
//! ```
//!
//! The objects of `rbac.authorization.k8s.io/v1` of each cluster are held as every other resource is, by cachers, and
//! compiled into one [`tributary_authorization::Fleet`]. A cluster whose four collections have not all been read allows
//! nothing to anybody; it is unknown, and never open.

mod access_review;
mod actor;
mod audience;
mod basis;
mod caller_rights;
mod candidates;
mod changes;
mod compiled;
mod confirmation;
mod decider;
mod detector;
mod existence;
mod feed;
mod followed;
mod forbidden;
mod granted;
mod identity;
mod impersonation;
mod impersonation_probe;
mod judged;
mod mirror;
mod mirror_state;
mod namespaces;
mod needed;
mod obstacle;
mod read_place;
mod readable;
mod readable_cache;
mod remembered_actor;
mod reviewed;
mod reviews;
mod rounds;
mod subject;
mod unconfirmed;
mod visible;
mod visit;

use std::time::Duration;

pub(crate) use actor::{Actor, bounded, given_user};
pub(crate) use audience::{Audience, AudienceKey, ClusterItemVersions, ItemVersions};
pub(crate) use caller_rights::CallerRights;
pub(crate) use candidates::Candidates;
pub(crate) use followed::{FollowedRights, NotedRights, ScopeChange};
pub(crate) use granted::FollowedGrant;
pub(crate) use identity::SentRequest;
pub(crate) use mirror::RightsMirror;
pub(crate) use namespaces::NamespaceRights;
pub(crate) use read_place::ReadPlace;
pub(crate) use readable::Readable;
pub(crate) use readable_cache::ReadableCache;
pub use remembered_actor::RememberedActor;

/// What serves many users beyond one: memory answers each with what they may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMode {
    /// How long the last rights of a cluster hold that is cut off as a whole. Its objects are as old.
    pub stale_rights: Duration,
    /// How long what lasts may last (watches, logs that are followed, exec, attach, port-forward); `None` as long as it
    /// will. What the mirror does not see taken away is taken away then: rights by another authorizer than RBAC, and
    /// groups that whoever vouches for a user no longer names.
    pub max_stream_age: Option<Duration>,
}

impl Default for SharedMode {
    /// 12 hours: a night for whoever mends the line, while people go on reading what they could. A day for what lasts:
    /// a port-forward lives through a working day, and nobody who has left a team keeps one for a second.
    fn default() -> Self {
        let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
        Self { stale_rights: hours(12), max_stream_age: Some(hours(24)) }
    }
}
