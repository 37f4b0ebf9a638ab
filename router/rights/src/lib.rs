//! Rights of users in each cluster, in shared mode: memory answers each user within these rights.
//!
//! ```text
//! topology ─▶ mirror ─▶ four cachers of a cluster ─┬─ objects ─▶ feed ─▶ compiled ─┐
//!                                                  └─ states ──▶ mirror_state ─────┴─▶ caller_rights
//!
//! caller_rights ─▶ existence ─┬─▶ visible ─▶ readable   objects of a list, watch or get
//!                             ├─▶ candidates            clusters of a forwarded request
//!                             └─▶ visit                 paths about all clusters
//! ```
//!
//! Cachers read the objects of `rbac.authorization.k8s.io/v1` of each cluster, as for every other resource. They are
//! compiled into one [`tributary_authorization::Fleet`]. Until all four collections of a cluster have been read, its
//! rights are unknown, and it allows nothing.
//!
//! # Roles and bindings
//!
//! `mirror` starts the cachers, `feed` applies their changes, `compiled` has the rights, and `changes` notifies about
//! new ones. `mirror_state` and `confirmation` say how current the rights are, `obstacle` why they are unknown.
//!
//! # Method of a cluster
//!
//! `detector` finds out whether roles and bindings decide, in `rounds`, by `access_review`. `decider` evaluates the
//! result, and `basis` names it. If roles do not decide, `reviews` sends questions about a `subject`, `reviewed` reads
//! the answers, and `needed` collects the open questions. `judged` decides by either method.
//!
//! # Identity
//!
//! `actor` is the user of a request, and `remembered_actor` the last one of a connection. `impersonation` has the
//! rights that a cluster requires for it, and `impersonation_probe` detects the cluster's filter. `existence` says
//! whether a cluster is visible for a caller, `identity` makes the headers for it, and `known_acting` checks an
//! impersonation by known facts alone. `caller_rights` joins all of it for one caller.
//!
//! # Answers
//!
//! `visible` has the objects of a `read_place` that a caller may see, `readable` their form for memory,
//! `readable_cache` recent results, and `namespaces` their namespaces. `candidates` are the clusters of a forwarded
//! request, `visit` decides about paths about all clusters, `audience` about shared texts, and `forbidden` makes each
//! 403.
//!
//! # Streams
//!
//! `followed` ends a watch when its rights change, and `granted` a stream of a cluster. `unconfirmed` limits the time
//! for which a stream goes on while a cluster is asked.

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

/// Settings of the shared mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMode {
    /// Time for which the last rights of an unreachable cluster count. Its objects are as old.
    pub stale_rights: Duration,
    /// Longest duration of streams (watches, followed logs, exec, attach, port-forward); `None` for no limit. Rights
    /// that the mirror cannot see end then: rights of other authorizers, and groups that an issuer no longer gives.
    pub max_stream_age: Option<Duration>,
}

impl Default for SharedMode {
    /// 12 hours of stale rights: a night for the repair of a network, while people read the objects they could. A day
    /// for streams: a port-forward survives a working day, and a user who has left a team keeps no stream for a second
    /// one.
    fn default() -> Self {
        let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
        Self { stale_rights: hours(12), max_stream_age: Some(hours(24)) }
    }
}
