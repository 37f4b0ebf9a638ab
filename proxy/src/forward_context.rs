//! Facts about a request to a cluster that its head does not contain: identity, request class and permits.

use std::net::SocketAddr;

use tributary_apimachinery::RequestClass;
use tributary_apimachinery::permit::RequestPermit;

use crate::client_upgrade::ClientUpgrade;
use crate::credentials::identity::RequestIdentity;
use crate::endpoints::destination::{Destination, EndpointSubset};
use crate::headers::Recipient;
use crate::permit_pool::RequestOrigin;
use crate::tunnel_end::TunnelEnd;

/// Facts about a request to a cluster that its head does not contain. A [`RequestIdentity`] converts into the context
/// of a short API request to any endpoint, without a known client connection.
#[derive(Debug, Default)]
pub struct ForwardContext {
    /// The identity that the cluster sees.
    pub identity: RequestIdentity,
    /// Request class. The class decides the time limit of the response, and which requests share a connection.
    pub class: RequestClass,
    /// Final recipient of the request: an API or a workload. The recipient decides which headers are forwarded.
    pub recipient: Recipient,
    /// Connection of the client.
    pub peer: Option<SocketAddr>,
    /// Endpoints that a policy allows; `None` for all endpoints.
    pub endpoints: Option<EndpointSubset>,
    /// Permit that is kept until the cluster has finished the request, even if the client disconnects before.
    pub permit: Option<RequestPermit>,
    /// The client's connection, for an upgrade. `None` if the connection cannot be switched.
    pub upgrade: Option<ClientUpgrade>,
    /// Signal that ends the tunnel of an upgraded request.
    pub tunnel_end: Option<TunnelEnd>,
    /// Origin of the request, which determines the connections that the request may use.
    pub(crate) origin: RequestOrigin,
    /// Index of the endpoint in the configuration, for a request to one endpoint only.
    pub(crate) endpoint: Option<usize>,
}

impl ForwardContext {
    /// Returns the context of a short request by Tributary itself. Such a request uses separate connections.
    pub(crate) fn for_own_request(identity: RequestIdentity) -> Self {
        Self { identity, origin: RequestOrigin::Ourselves, ..Self::default() }
    }

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
