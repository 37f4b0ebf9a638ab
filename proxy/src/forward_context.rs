//! Facts about a request to a cluster that the request's head does not have.

use tributary_apimachinery::RequestClass;
use tributary_apimachinery::permit::RequestPermit;

use crate::client_upgrade::ClientUpgrade;
use crate::credentials::identity::RequestIdentity;
use crate::endpoints::destination::{Destination, EndpointSubset};
use crate::headers::Recipient;
use crate::peer::Peer;
use crate::places::Asker;
use crate::tunnel_end::TunnelEnd;

/// Facts about a request to a cluster that the request's head does not have. An identity alone stands for a short
/// request to the API, at any endpoint, from an unknown connection.
#[derive(Debug, Default)]
pub struct ForwardContext {
    /// The identity that the cluster sees.
    pub identity: RequestIdentity,
    /// Decides how long the answer may take, and which requests share a connection.
    pub class: RequestClass,
    /// The reader of the headers.
    pub recipient: Recipient,
    /// The connection of the client.
    pub peer: Option<Peer>,
    /// The endpoints that a policy allows; `None` for all.
    pub endpoints: Option<EndpointSubset>,
    /// Kept until the cluster has done with the request, which may be after the client has gone.
    pub permit: Option<RequestPermit>,
    /// The client's side of an upgrade; `None` if the client's connection cannot be switched.
    pub upgrade: Option<ClientUpgrade>,
    /// Ends the tunnel of a switched request.
    pub tunnel_end: Option<TunnelEnd>,
    /// The share of the connections that the request uses.
    pub(crate) asker: Asker,
    /// The place of the only endpoint that may answer, in the configuration.
    pub(crate) endpoint: Option<usize>,
}

impl ForwardContext {
    /// A short request of this process, with connections of its own.
    pub(crate) fn for_ourselves(identity: RequestIdentity) -> Self {
        Self { identity, asker: Asker::Ourselves, ..Self::default() }
    }

    /// The endpoints that the request may be sent to.
    pub(crate) fn destination(&self) -> Destination {
        match (self.endpoint, &self.endpoints) {
            (Some(place), _) => Destination::At(place),
            (None, Some(subset)) => Destination::Chosen(subset.clone()),
            (None, None) => Destination::Any,
        }
    }
}

impl From<RequestIdentity> for ForwardContext {
    fn from(identity: RequestIdentity) -> Self {
        Self { identity, ..Self::default() }
    }
}
