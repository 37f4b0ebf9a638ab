//! The client's side of a request that may be switched to another protocol.

use hyper::upgrade::OnUpgrade;
use tributary_apimachinery::permit::TunnelPermits;

/// The client's connection, if the connection can be switched, and the permits that a switched request keeps. Clones
/// are of the same connection.
#[derive(Clone, Debug)]
pub struct ClientUpgrade {
    /// The connection, after hyper has sent the 101.
    pub connection: OnUpgrade,
    /// Kept until the tunnel ends.
    pub permits: TunnelPermits,
}

impl ClientUpgrade {
    /// A connection without permits.
    pub fn new(connection: OnUpgrade) -> Self {
        Self { connection, permits: TunnelPermits::default() }
    }
}
