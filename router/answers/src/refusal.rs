//! Why a request is not answered as it was meant.
//!
//! Whoever refuses names the cause, with what it is about; whoever decides by it matches the cause; what a client reads
//! of it is made here and nowhere else, each group beside its causes:
//!
//! ```text
//! route          what the route of its path takes                   405, 406, 415
//! request        what the request itself says                       400, 403, 405, 406, 415, 422, 500
//! cluster        which cluster it is for, and has its object        400, 404, 409, 429, 503
//! version        the resourceVersion, or continue token, of a read  400, 410, 504
//! precondition   the resourceVersion of a write                     400, 409
//! member         what members answer, or that they do not           403, 429, 500, 502, 503, 504, whatever they say
//! policy         which requests go on, as the administrator says     403, 429, 500
//! limit          what is bounded, or shared among clients           406, 413, 429, 504
//! ```

mod account;
mod cluster;
mod limit;
mod member;
mod policy;
mod precondition;
mod request;
mod route;
mod trouble;
mod version;
mod wording;

use std::borrow::Cow;
use std::fmt;

use http::StatusCode;
use tributary_apimachinery::text::printable;
use tributary_apimachinery::{ClusterName, Status};
use tributary_sharing::flow::fair_share::Exceeded;
use tributary_sharing::flow::long_answers::NoTurn;

pub use account::{Beyond, NotLet};
pub use cluster::{ClusterRefusal, ReleaseName};
pub use limit::LimitRefusal;
pub use member::{MemberRefusal, says_forbidden, says_never, says_not_served, says_of_list};
pub use policy::{PolicyCause, PolicyRefusal};
pub use precondition::PreconditionRefusal;
pub use request::{ForbiddenActing, ForbiddenPath, ForbiddenRequest, RequestRefusal};
pub use route::RouteRefusal;
pub use trouble::Trouble;
pub use version::VersionRefusal;
pub use wording::{ONE_CLUSTER, cause_alone, listed, without_name};

use crate::negotiate::NotAcceptable;

/// Why a request is not answered as it was meant. As an error it displays what people read of it. A pointer, so that
/// `Result`s stay small.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// kube-apiserver has no route of this form, or nobody serves what the path names: 404.
    NoRoute,
    /// Memory lacks objects of reachable clusters, so the clusters have to answer. No client gets this refusal.
    NotCached(Box<NotCached>),
    /// There is a route, which does not take such a request. No handler has seen it, so that nothing is known of the
    /// resource that could be warned of.
    Route(Box<RouteRefusal>),
    /// What the request itself says.
    Request(Box<RequestRefusal>),
    /// Which cluster it is for.
    Cluster(Box<ClusterRefusal>),
    /// What the resourceVersion, or continue token, of a read stands for.
    Version(Box<VersionRefusal>),
    /// What the resourceVersion of a write stands for.
    Precondition(Box<PreconditionRefusal>),
    /// What members answer, or that they do not.
    Member(Box<MemberRefusal>),
    /// What a dispatch policy says.
    Policy(Box<PolicyRefusal>),
    /// What is bounded, or shared among clients.
    Limit(Box<LimitRefusal>),
}

/// A read that the clusters have to answer, because memory cannot.
#[derive(Clone, Debug, Default)]
pub struct NotCached {
    /// The clusters whose objects of the collection memory lacks; empty for a single object.
    pub unheld: Vec<ClusterName>,
}

impl Refusal {
    /// The route does not take the method.
    pub fn method() -> Self {
        RouteRefusal::Method.into()
    }

    /// What a member said itself: its Status, or what a client without one would make of the answer.
    pub fn from_member_answer(code: StatusCode, text: &[u8]) -> Self {
        MemberRefusal::Said(Status::from_response(code.as_u16(), text)).into()
    }

    /// What cannot be read of a request, in Kubernetes' words.
    pub fn malformed(status: Status) -> Self {
        RequestRefusal::Malformed(status).into()
    }

    /// Whether it says that the user may not act as whom they ask to be.
    pub fn is_of_acting(&self) -> bool {
        self.forbids_acting() || matches!(self, Self::Request(refusal) if refusal.is_of_acting())
    }

    /// Whether it is the word of one cluster, which does not let the user act as whom they ask to be: others may, and
    /// that one is not there for the request.
    pub fn forbids_acting(&self) -> bool {
        matches!(self, Self::Member(refusal) if matches!(**refusal, MemberRefusal::ForbidsActing(_)))
    }

    /// What the client is told. It may quote a member; nothing in it is obeyed by a terminal.
    pub fn status(&self) -> Status {
        let mut status = match self {
            Self::NoRoute => Status::path_not_found(),
            Self::NotCached(_) => Status::service_unavailable("the objects are not cached"),
            Self::Route(refusal) => refusal.status(),
            Self::Request(refusal) => refusal.status(),
            Self::Cluster(refusal) => refusal.status(),
            Self::Version(refusal) => refusal.status(),
            Self::Precondition(refusal) => refusal.status(),
            Self::Member(refusal) => refusal.status(),
            Self::Policy(refusal) => refusal.status(),
            Self::Limit(refusal) => refusal.status(),
        };
        if let Cow::Owned(shown) = printable(&status.message) {
            status.message = shown;
        }
        status
    }

    /// What of it everybody may be told, where many users are served.
    pub fn without_names(self) -> Self {
        match self {
            Self::Member(refusal) => Self::Member(Box::new(refusal.without_names())),
            other => other,
        }
    }

    /// Whether memory shows no object of the name to the caller, which a cluster may that memory shows nothing of.
    pub fn may_be_elsewhere(&self) -> bool {
        match self {
            Self::Cluster(refusal) => {
                matches!(**refusal, ClusterRefusal::NotFound { .. } | ClusterRefusal::RightsUnknown { .. })
            }
            Self::Request(refusal) => matches!(**refusal, RequestRefusal::Forbidden(_) | RequestRefusal::Acting(_)),
            _ => false,
        }
    }

    /// Whether it is the refusal of a resource that a cluster does not serve.
    pub fn is_not_serving(&self) -> bool {
        matches!(self, Self::Cluster(refusal) if matches!(**refusal, ClusterRefusal::NotServing { .. }))
    }

    /// Whether it is the 404 of an object that no cluster has.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Cluster(refusal) if matches!(**refusal, ClusterRefusal::NotFound { .. }))
    }

    /// The same with the texts of these Warnings, where it says that no cluster has an object: that what is held is old
    /// is said of an answer from memory, also where that is that there is nothing.
    pub fn with_warnings(mut self, texts: impl FnOnce() -> Vec<String>) -> Self {
        if let Self::Cluster(refusal) = &mut self
            && let ClusterRefusal::NotFound { warnings, .. } = &mut **refusal
        {
            *warnings = texts();
        }
        self
    }

    /// The texts of the Warnings that it is told with. They name clusters that the caller may know of.
    pub fn warnings(&self) -> &[String] {
        match self {
            Self::Cluster(refusal) => match &**refusal {
                ClusterRefusal::NotFound { warnings, .. } => warnings,
                _ => &[],
            },
            _ => &[],
        }
    }

    /// Whether it is because what the caller may do in some clusters is not known.
    pub fn is_of_unknown_rights(&self) -> bool {
        matches!(self, Self::Cluster(refusal) if matches!(**refusal, ClusterRefusal::RightsUnknown { .. }))
    }

    /// The same, where that is so of these clusters, for whoever may know of all.
    pub fn of_these(mut self, troubles: Vec<Trouble>) -> Self {
        if let Self::Cluster(refusal) = &mut self
            && let ClusterRefusal::RightsUnknown { told, .. } = &mut **refusal
        {
            *told = troubles;
        }
        self
    }

    /// Whether clusters have not been read yet. They are waited for by the client.
    pub fn is_unread(&self) -> bool {
        matches!(self, Self::Cluster(refusal) if matches!(**refusal, ClusterRefusal::Unread { .. }))
    }

    /// Whether it is of the request itself, so that every other member would say the same.
    pub fn is_of_request(&self) -> bool {
        match self {
            Self::Request(_) => true,
            Self::Member(refusal) => refusal.is_of_request(),
            _ => false,
        }
    }

    /// Whether the client's share of what all share is used up, whichever member is asked.
    pub fn is_of_share(&self) -> bool {
        matches!(self, Self::Limit(refusal) if matches!(**refusal, LimitRefusal::Share(_)))
    }

    /// Whether a member answered with a redirect, which is never passed on.
    pub fn is_redirect(&self) -> bool {
        matches!(self, Self::Member(refusal) if refusal.is_redirect())
    }

    /// What a cluster does not let this endpoint's account do in the user's name, however often it is asked.
    pub fn not_let(&self) -> Option<&NotLet> {
        match self {
            Self::Member(refusal) => match &**refusal {
                MemberRefusal::NotLet(not_let) => Some(not_let),
                _ => None,
            },
            _ => None,
        }
    }

    /// What a member said, where the refusal is its own.
    pub fn said_by_member(&self) -> Option<&Status> {
        match self {
            Self::Member(refusal) => match &**refusal {
                MemberRefusal::Said(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// The same, to be changed.
    pub fn said_by_member_mut(&mut self) -> Option<&mut Status> {
        match self {
            Self::Member(refusal) => match &mut **refusal {
                MemberRefusal::Said(status) => Some(status),
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

impl From<NoTurn> for Refusal {
    fn from(none: NoTurn) -> Self {
        LimitRefusal::Turn(none).into()
    }
}

#[cfg(test)]
mod tests;
