//! Rights of users in each cluster, in shared mode: a read from the cachers returns only objects that the user may read
//! in the cluster.
//!
//! ```text
//! topology ─▶ mirror ─▶ four cachers of a cluster ─┬─ objects ─▶ feed ─▶ compiled ─┐
//!                                                  └─ states ──▶ mirror_state ─────┴─▶ caller_rights
//!
//! caller_rights ─▶ cluster_visibility ─┬─▶ visible ─▶ readable   objects of a list, watch or get
//!                                      ├─▶ candidates            clusters of a forwarded request
//!                                      └─▶ non_resource_url      paths about all clusters
//! ```
//!
//! A cacher reads each collection of `rbac.authorization.k8s.io/v1` of each cluster, as for every other resource. The
//! objects are compiled into one [`tributary_authorization::Fleet`]. Until all four collections of a cluster have been
//! read, the rights in the cluster are unknown, and Tributary shows none of its objects.
//!
//! # Roles and bindings
//!
//! - `mirror` starts the cachers of roles and bindings, and `feed` applies their changes.
//! - `compiled` has the compiled rights, and `changes` notifies about new rights.
//! - `mirror_state` and `confirmation` decide how current the rights are; `unknown_rights_reason` explains why rights
//!   are unknown.
//!
//! # Method of a cluster
//!
//! - `detector` finds out whether roles and bindings decide. It runs in `rounds` and sends reviews by `access_review`.
//! - `decider` evaluates the detector's evidence, and `allowed_facts` names the method.
//! - If roles do not decide, `reviews` sends access reviews about a `subject`, `reviewed` evaluates the answers, and
//!   `decision_reviews` collects the missing reviews.
//! - `user_decisions` decides by either method.
//!
//! # Identity
//!
//! - `actor` is the user of a request, and `remembered_actor` caches the last actor of a connection.
//! - `impersonation` knows the rights that a cluster requires for impersonation; `impersonation_probe` detects the
//!   cluster's filter.
//! - `cluster_visibility` decides whether a cluster is visible for a caller, `identity` makes the impersonation
//!   headers, and `known_impersonation` checks an impersonation by known facts alone.
//! - `caller_rights` combines these modules for one caller.
//!
//! # Answers
//!
//! - `visible` finds the objects of a `read_target` that a caller may see, `readable` converts them for reads from the
//!   cachers, `readable_cache` caches the results, and `namespaces` filters objects by namespace.
//! - `candidates` are the clusters of a forwarded request, and `non_resource_url` authorizes paths about all clusters.
//! - `audience` groups users that get byte-identical responses, and `forbidden` makes each 403.
//!
//! # Streams
//!
//! - `followed` ends a watch when its rights change, and `granted` ends a forwarded stream.
//! - `unconfirmed` limits the time for which a stream continues while a cluster's review is missing.

mod access_review;
mod actor;
mod allowed_facts;
mod audience;
mod authenticated;
mod caller_rights;
mod candidates;
mod changes;
mod cluster_visibility;
mod compiled;
mod confirmation;
mod decider;
mod decision_reviews;
mod detector;
mod feed;
mod followed;
mod forbidden;
mod granted;
mod hidden_names;
mod identity;
mod impersonation;
mod impersonation_probe;
mod known_impersonation;
mod mirror;
mod mirror_state;
mod namespaces;
mod non_resource_url;
mod read_target;
mod readable;
mod readable_cache;
mod remembered_actor;
mod reviewed;
mod reviews;
mod rounds;
mod subject;
mod unconfirmed;
mod unknown_rights_reason;
mod user_decisions;
mod visible;

use std::time::Duration;

pub use actor::{Actor, UserSelector, bounded, given_user};
pub use audience::{Audience, ClusterItemVersions, ItemVersions};
pub use authenticated::CredentialValidity;
pub use caller_rights::CallerRights;
pub use candidates::Candidates;
pub use followed::{DeniedAt, FollowedRights, ScopeChange, SubscribedRights};
pub use granted::FollowedGrant;
pub use identity::SentRequest;
pub use mirror::RightsMirror;
pub use namespaces::NamespaceRights;
pub use read_target::ReadTarget;
pub use readable::{Readable, SelectedClusters};
pub use readable_cache::{ReadableCache, ReadableConfiguration};
pub use remembered_actor::RememberedActor;
pub use tributary_authentication::User;

/// Settings of the shared mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMode {
    /// Time for which Tributary uses the last known rights in an unreachable cluster. The cluster's objects in the
    /// cacher are equally old.
    pub stale_rights: Duration,
    /// Maximum duration of a stream (watch, followed log, exec, attach, port-forward). `None` for no limit. The limit
    /// ends the use of rights whose loss the mirror cannot see: rights from other authorizers, and groups that an
    /// issuer no longer gives to the user.
    pub max_stream_age: Option<Duration>,
}

impl Default for SharedMode {
    /// 12 hours of stale rights: a night to repair a network, while users read the objects that they could read before.
    /// 24 hours for streams: a port-forward survives a working day, and a user who has left a team keeps no stream for
    /// a second day.
    fn default() -> Self {
        let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
        Self { stale_rights: hours(12), max_stream_age: Some(hours(24)) }
    }
}
