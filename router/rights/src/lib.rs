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
//!
//! # What clusters have
//!
//! Their roles and bindings: `mirror` follows them, `feed` takes them over, `compiled` holds the rights that they give,
//! `changes` tells of new ones. How far that is known: `mirror_state`, `confirmation`, and `obstacle` where it is not.
//!
//! # What decides there
//!
//! `detector` finds out whether roles and bindings do, in `rounds`, by `access_review`; `decider` judges what it found,
//! and `basis` is what is judged by. Where they do not, `reviews` asks about a `subject`, `reviewed` reads the answers,
//! and `needed` is what has to be asked first. `judged` is what somebody may do by either.
//!
//! # Who acts
//!
//! `actor` is as whom a request acts, and `remembered_actor` the last of a connection. `impersonation` is what a
//! cluster has to allow for it, and `impersonation_probe` finds out in which way. `existence` says whether a cluster is
//! there for a caller, and `identity` as whom it is sent a request. `known_acting` says whether that one is known to be
//! let be whom they ask to be. `caller_rights` is all of that of one caller.
//!
//! # What is shown
//!
//! `visible` is what a caller may do with what `read_place` names, `readable` what memory answers with it,
//! `readable_cache` what of it was found lately, and `namespaces` where objects may be shown. `candidates` are the
//! clusters there are for a request, `visit` is who may see all, `audience` who may be given the same texts, and
//! `forbidden` what is said else.
//!
//! # What lasts
//!
//! `followed` is what a watch may show, and `granted` what a stream was opened by; `unconfirmed` is for how long either
//! goes on while a cluster is asked.

mod access_review;
mod actor;
mod audience;
mod authenticated;
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
mod hidden_names;
mod identity;
mod impersonation;
mod impersonation_probe;
mod judged;
mod known_acting;
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
mod user;
mod visible;
mod visit;

use std::time::Duration;

pub use actor::{Actor, Whom, bounded, given_user};
pub use audience::{Audience, ClusterItemVersions, ItemVersions};
pub use authenticated::{AuthenticatedUntil, StillKnown};
pub use caller_rights::CallerRights;
pub use candidates::Candidates;
pub use followed::{DeniedAt, FollowedRights, NotedRights, ScopeChange};
pub use granted::FollowedGrant;
pub use identity::SentRequest;
pub use mirror::RightsMirror;
pub use namespaces::NamespaceRights;
pub use read_place::ReadPlace;
pub use readable::{Readable, SelectedClusters};
pub use readable_cache::{ReadableCache, ReadableConfiguration};
pub use remembered_actor::RememberedActor;
pub use user::User;

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
