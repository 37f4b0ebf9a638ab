//! What the route of a request's path does not take.

use tributary_apimachinery::Status;

use super::request::not_acceptable;
use crate::negotiate::NotAcceptable;

/// Why a route does not take a request.
#[derive(Clone, Debug)]
pub enum RouteRefusal {
    /// It does not take the method: 405.
    Method,
    /// It takes no patch of this media type: 415.
    PatchFormat,
    /// It gives none of the media types that are asked for: 406.
    NotAcceptable(NotAcceptable),
}

impl RouteRefusal {
    pub(super) fn status(&self) -> Status {
        match self {
            Self::Method => Status::method_not_allowed(),
            Self::PatchFormat => Status::unsupported_representation(),
            Self::NotAcceptable(none) => not_acceptable(none),
        }
    }
}

impl From<NotAcceptable> for RouteRefusal {
    fn from(none: NotAcceptable) -> Self {
        Self::NotAcceptable(none)
    }
}
