//! Reasons for which Tributary refuses a request.
//!
//! Code that refuses a request returns a variant with the facts. Code that depends on the reason matches the variant.
//! Each group of variants has a file that makes its `Status`; no other code makes a `Status` of a refusal:
//!
//! ```text
//! route          the method or media types of the path's route      405, 406, 415
//! request        the content of the request                         400, 403, 405, 406, 415, 422, 500
//! cluster        the cluster of the request or of its object        400, 404, 409, 429, 503
//! version        the resourceVersion, or continue token, of a read  400, 410, 504
//! precondition   the resourceVersion of a write                     400, 409
//! member         answers of clusters, or missing ones               403, 429, 500, 502, 503, 504, or any
//! policy         the dispatch policies                              403, 429, 500
//! limit          limits, and shares of clients                      406, 413, 429, 504
//! ```

mod account;
mod cluster;
mod failure;
mod karmada;
mod limit;
mod member;
mod policy;
mod precondition;
mod request;
mod route;
mod version;
mod wording;

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;
use tributary_apimachinery::text::printable;
use tributary_apimachinery::{ClusterName, Door, Status};
use tributary_sharing::flow::fair_semaphore::Exceeded;
use tributary_sharing::flow::long_answers::NoWritePermit;

pub use account::{ImpersonationForbidden, MissingPermission};
pub use cluster::{ClusterRefusal, ReleaseName};
pub use failure::ClusterFailure;
pub use limit::LimitRefusal;
pub use member::{MemberRefusal, is_forbidden_by_status, is_list_error, is_permanent_error, is_unserved_by_status};
pub use policy::{PolicyCause, PolicyRefusal};
pub use precondition::PreconditionRefusal;
pub use request::{ForbiddenImpersonation, ForbiddenPath, ForbiddenRequest, RequestRefusal, WatchRemedy};
pub use route::RouteRefusal;
pub use version::VersionRefusal;
pub use wording::{cause_alone, listed, one_cluster, without_name};

use crate::negotiate::NotAcceptable;

/// Reason for which Tributary refuses a request. `Display` gives the message for people. Variants are boxed to keep
/// `Result`s small.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// kube-apiserver has no route for the path, or no cluster serves the path: 404.
    NoRoute,
    /// The cachers do not have the objects of all reachable clusters, so Tributary forwards the request to the
    /// clusters. Internal: no client receives this refusal.
    NotCached(Box<NotCached>),
    /// The path's route rejects the method or a media type. The request reaches no handler, so the answer has no
    /// Warning about the resource.
    Route(Box<RouteRefusal>),
    /// The content of the request is wrong, or the user may not make the request.
    Request(Box<RequestRefusal>),
    /// The cluster of the request is unknown, ambiguous, or lacks the object.
    Cluster(Box<ClusterRefusal>),
    /// The resourceVersion, or continue token, of a read cannot be used.
    Version(Box<VersionRefusal>),
    /// The resourceVersion in a write cannot be used.
    Precondition(Box<PreconditionRefusal>),
    /// Clusters returned an error, or did not answer.
    Member(Box<MemberRefusal>),
    /// A dispatch policy refuses the request.
    Policy(Box<PolicyRefusal>),
    /// The request exceeds a limit, or the client's share of a limit.
    Limit(Box<LimitRefusal>),
}

/// A read that Tributary forwards to clusters because the cachers lack objects.
#[derive(Clone, Debug, Default)]
pub struct NotCached {
    /// Clusters whose objects are not cached. Empty for a request about a single object.
    pub uncached: Vec<ClusterName>,
}

impl Refusal {
    /// Refuses a method that the path's route does not support: 405.
    pub fn method() -> Self {
        RouteRefusal::Method.into()
    }

    /// Wraps the error answer of a cluster: its Status, or, for an answer without a Status, the Status that client-go
    /// would make.
    pub fn from_member_answer(code: StatusCode, text: &[u8]) -> Self {
        MemberRefusal::MemberStatus(Status::from_response(code.as_u16(), text)).into()
    }

    /// Refuses an unparsable request, with Kubernetes' message.
    pub fn malformed(status: Status) -> Self {
        RequestRefusal::Malformed(status).into()
    }

    /// Returns whether the refusal is about impersonation: the user may not impersonate the requested user.
    pub fn is_about_impersonation(&self) -> bool {
        self.is_impersonation_forbidden_by_cluster()
            || matches!(self, Self::Request(refusal) if refusal.is_about_impersonation())
    }

    /// Returns whether one cluster forbids impersonation. Other clusters may allow impersonation, so Tributary
    /// continues without this cluster.
    pub fn is_impersonation_forbidden_by_cluster(&self) -> bool {
        matches!(self, Self::Member(refusal) if matches!(**refusal, MemberRefusal::ForbidsImpersonation(_)))
    }

    /// Returns the Status for a client that connects to Tributary directly.
    pub fn status(&self) -> Status {
        self.status_at(Door::Direct)
    }

    /// Returns the Status for a client of this door. The message names commands and paths that work at the door.
    /// Terminal control characters are removed, because the message may quote a cluster.
    pub fn status_at(&self, door: Door) -> Status {
        let mut status = match self {
            Self::NoRoute => Status::path_not_found(),
            Self::NotCached(_) => Status::service_unavailable("the objects are not cached"),
            Self::Route(refusal) => refusal.status(),
            Self::Request(refusal) => refusal.status(door),
            Self::Cluster(refusal) => refusal.status(door),
            Self::Version(refusal) => refusal.status(door),
            Self::Precondition(refusal) => refusal.status(door),
            Self::Member(refusal) => refusal.status_at(door),
            Self::Policy(refusal) => refusal.status(),
            Self::Limit(refusal) => refusal.status(door),
        };
        if let Cow::Owned(shown) = printable(&status.message) {
            status.message = shown;
        }
        status
    }

    /// Removes the names of clusters from the refusal, because in shared mode not every user may know all clusters.
    pub fn without_names(self) -> Self {
        match self {
            Self::Member(refusal) => Self::Member(Box::new(refusal.without_names())),
            other => other,
        }
    }

    /// Returns whether the object may still exist in a cluster whose cached objects the caller does not see, so that a
    /// forwarded request may find it.
    pub fn may_be_elsewhere(&self) -> bool {
        match self {
            Self::Cluster(refusal) => {
                matches!(**refusal, ClusterRefusal::NotFound { .. } | ClusterRefusal::RightsUnknown { .. })
            }
            Self::Request(refusal) => matches!(**refusal, RequestRefusal::Forbidden(_) | RequestRefusal::Acting(_)),
            _ => false,
        }
    }

    /// Returns whether the reason is that a cluster does not serve the resource.
    pub fn is_not_serving(&self) -> bool {
        matches!(self, Self::Cluster(refusal) if matches!(**refusal, ClusterRefusal::NotServing { .. }))
    }

    /// Returns whether the reason is that no cluster has the object: 404.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Cluster(refusal) if matches!(**refusal, ClusterRefusal::NotFound { .. }))
    }

    /// Adds Warnings to a 404. An answer from memory warns of stale clusters even if the object is missing.
    pub fn with_warnings(mut self, texts: impl FnOnce() -> Vec<String>) -> Self {
        if let Self::Cluster(refusal) = &mut self
            && let ClusterRefusal::NotFound { warnings, .. } = &mut **refusal
        {
            *warnings = texts();
        }
        self
    }

    /// Returns the texts of the answer's Warnings. The texts name only clusters that the caller may know.
    pub fn warnings(&self) -> &[String] {
        match self {
            Self::Cluster(refusal) => match &**refusal {
                ClusterRefusal::NotFound { warnings, .. } => warnings,
                _ => &[],
            },
            _ => &[],
        }
    }

    /// Returns whether Tributary refuses because the caller's rights in some clusters are unknown.
    pub fn is_about_unknown_rights(&self) -> bool {
        matches!(self, Self::Cluster(refusal) if matches!(**refusal, ClusterRefusal::RightsUnknown { .. }))
    }

    /// Adds the clusters with unknown rights to the refusal. Only for a caller that may know all clusters.
    pub fn with_unknown_rights(mut self, failures: Vec<ClusterFailure>) -> Self {
        if let Self::Cluster(refusal) = &mut self
            && let ClusterRefusal::RightsUnknown { clusters, .. } = &mut **refusal
        {
            *clusters = failures;
        }
        self
    }

    /// Removes Retry-After if `lasts` is true: the rights stay unknown until an administrator removes the cause.
    pub fn of_lasting_cause(mut self, lasts: bool) -> Self {
        if let Self::Cluster(refusal) = &mut self
            && let ClusterRefusal::RightsUnknown { is_lasting, .. } = &mut **refusal
        {
            *is_lasting = lasts;
        }
        self
    }

    /// Returns whether the reason is that Tributary has not read the objects of some clusters yet. A retry may succeed.
    pub fn is_unread(&self) -> bool {
        matches!(self, Self::Cluster(refusal) if matches!(**refusal, ClusterRefusal::Unread { .. }))
    }

    /// Returns whether the reason is the request itself. Every cluster would refuse such a request.
    pub fn is_about_request(&self) -> bool {
        match self {
            Self::Request(_) => true,
            Self::Member(refusal) => refusal.is_about_request(),
            _ => false,
        }
    }

    /// Returns whether the client has used up its share of a limit that is common to all clusters.
    pub fn is_about_share(&self) -> bool {
        matches!(self, Self::Limit(refusal) if matches!(**refusal, LimitRefusal::Share(_)))
    }

    /// Returns whether a member answered with a redirect. Tributary does not pass redirects to clients.
    pub fn is_redirect(&self) -> bool {
        matches!(self, Self::Member(refusal) if refusal.is_redirect())
    }

    /// Returns the details if a cluster forbids Tributary's account to act in the user's name.
    pub fn impersonation_forbidden(&self) -> Option<&ImpersonationForbidden> {
        match self {
            Self::Member(refusal) => match &**refusal {
                MemberRefusal::ImpersonationForbidden(impersonation_forbidden) => Some(impersonation_forbidden),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the Status that a cluster returned, if the refusal contains one.
    pub fn member_status(&self) -> Option<&Status> {
        match self {
            Self::Member(refusal) => match &**refusal {
                MemberRefusal::MemberStatus(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the Status that a cluster returned as a mutable reference, if the refusal contains one.
    pub fn member_status_mut(&mut self) -> Option<&mut Status> {
        match self {
            Self::Member(refusal) => match &mut **refusal {
                MemberRefusal::MemberStatus(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.status().message)
    }
}

impl std::error::Error for Refusal {}

impl From<RouteRefusal> for Refusal {
    fn from(refusal: RouteRefusal) -> Self {
        Self::Route(Box::new(refusal))
    }
}

impl From<RequestRefusal> for Refusal {
    fn from(refusal: RequestRefusal) -> Self {
        Self::Request(Box::new(refusal))
    }
}

impl From<ClusterRefusal> for Refusal {
    fn from(refusal: ClusterRefusal) -> Self {
        Self::Cluster(Box::new(refusal))
    }
}

impl From<VersionRefusal> for Refusal {
    fn from(refusal: VersionRefusal) -> Self {
        Self::Version(Box::new(refusal))
    }
}

impl From<PreconditionRefusal> for Refusal {
    fn from(refusal: PreconditionRefusal) -> Self {
        Self::Precondition(Box::new(refusal))
    }
}

impl From<MemberRefusal> for Refusal {
    fn from(refusal: MemberRefusal) -> Self {
        Self::Member(Box::new(refusal))
    }
}

impl From<PolicyRefusal> for Refusal {
    fn from(refusal: PolicyRefusal) -> Self {
        Self::Policy(Box::new(refusal))
    }
}

impl From<LimitRefusal> for Refusal {
    fn from(refusal: LimitRefusal) -> Self {
        Self::Limit(Box::new(refusal))
    }
}

impl From<NotAcceptable> for Refusal {
    fn from(none: NotAcceptable) -> Self {
        RequestRefusal::NotAcceptable(none).into()
    }
}

impl From<Exceeded> for Refusal {
    fn from(exceeded: Exceeded) -> Self {
        LimitRefusal::Share(exceeded).into()
    }
}

impl From<NoWritePermit> for Refusal {
    fn from(none: NoWritePermit) -> Self {
        LimitRefusal::WritePermit(none).into()
    }
}

#[cfg(test)]
mod tests;
