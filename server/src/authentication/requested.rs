//! What a handshake asks clients for.

/// Names of the authorities that clients are asked for certificates of, as DER.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestedAuthorities {
    /// Those that vouch for clients; hosts may have others.
    pub clients: Vec<Vec<u8>>,
    /// Those that vouch for proxies in front, at all hosts.
    pub proxies: Vec<Vec<u8>>,
}
