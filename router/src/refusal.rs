//! Why a request is not answered as it was meant.

use tributary_apimachinery::Status;

use crate::flow::fair_share::Exceeded;

/// Why a request is not answered as it was meant. What a client reads of it is made in one place, [`status`](Self::status).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// kube-apiserver has no route of this form, or nobody serves what the path names: 404.
    NoRoute,
    /// There is a route, which does not take such a request: its method (405), its media types (406, 415). No handler has seen it, so
    /// that nothing is known of the resource that could be warned of.
    Route(Status),
    /// What the handler of the route says.
    Handler(Status),
}

impl Refusal {
    /// The route does not take the method.
    pub(crate) fn method() -> Self {
        Self::Route(Status::method_not_allowed())
    }

    /// What the client is told.
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::NoRoute => Status::path_not_found(),
            Self::Route(status) | Self::Handler(status) => status.clone(),
        }
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Handler(status)
    }
}

impl From<Exceeded> for Refusal {
    fn from(exceeded: Exceeded) -> Self {
        Self::Handler(exceeded.into())
    }
}
