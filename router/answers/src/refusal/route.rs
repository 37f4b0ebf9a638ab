//! Refusals because the path's route does not support the method or a media type.

use tributary_apimachinery::{Status, Verb};

use super::request::not_acceptable;
use crate::negotiate::NotAcceptable;

/// Reason for which a path's route rejects a request.
#[derive(Clone, Debug)]
pub enum RouteRefusal {
    /// The route does not support the method: 405.
    Method,
    /// Karmada's path for all clusters supports this verb only for a single object with a name: 405.
    UnnamedAtKarmada(Verb),
    /// The path is for a service of a cluster behind Open Cluster Management's user-server: 403.
    ProxyService,
    /// The route does not support a patch of this media type: 415.
    PatchFormat,
    /// The route supports none of the requested media types: 406.
    NotAcceptable(NotAcceptable),
}

impl RouteRefusal {
    pub(super) fn status(&self) -> Status {
        match self {
            Self::Method => Status::method_not_allowed(),
            Self::UnnamedAtKarmada(verb) => {
                Status { message: format!("Request verb {verb} is not support"), ..Status::method_not_allowed() }
            }
            Self::ProxyService => {
                let message = "Tributary does not forward requests to services by proxy-service, because no right of the \
                               cluster protects them; use the subresource proxy of the service";
                Status::forbidden(None, "", message)
            }
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
