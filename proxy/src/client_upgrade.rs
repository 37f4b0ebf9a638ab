//! The client's connection for a request that may switch the connection to another protocol (HTTP Upgrade).

use hyper::upgrade::OnUpgrade;
use tributary_apimachinery::permit::TunnelPermits;

/// The client's connection and the permits that the tunnel keeps after the switch of protocols. All clones refer to the
/// same connection.
#[derive(Clone, Debug)]
pub struct ClientUpgrade {
    /// The connection. hyper resolves the future after it has sent the 101.
    pub connection: OnUpgrade,
    /// Permits that are kept until the tunnel ends.
    pub permits: TunnelPermits,
}

impl ClientUpgrade {
    /// Creates an upgrade without permits.
    pub fn new(connection: OnUpgrade) -> Self {
        Self { connection, permits: TunnelPermits::default() }
    }
}
