//! The peers that send PROXY headers (`--proxy-protocol-from`).

use std::fmt;
use std::net::{AddrParseError, IpAddr};
use std::str::FromStr;

use ipnet::IpNet;

/// The peers that must send a PROXY header at the beginning of each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyProtocolPeers(pub Vec<PeerNetwork>);

impl ProxyProtocolPeers {
    /// Returns whether the peer with this address must send PROXY headers. An IPv4-mapped IPv6 address counts as the
    /// IPv4 address.
    pub(crate) fn contains(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.0.iter().any(|PeerNetwork(network)| network.contains(&peer))
    }
}

/// An IP network, or a single IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerNetwork(IpNet);

impl FromStr for PeerNetwork {
    type Err = InvalidPeerNetwork;

    /// Parses a network or an address, for example `10.0.0.0/8`, `fd00::/8`, `192.0.2.7`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address = |_| text.parse::<IpAddr>().map(IpNet::from);
        let network = text.parse().or_else(address).map_err(|_: AddrParseError| InvalidPeerNetwork(text.to_owned()))?;
        Ok(Self(network))
    }
}

impl fmt::Display for PeerNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A text that is neither an IP network nor an IP address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a network; give an address, or a network such as 10.0.0.0/8")]
pub struct InvalidPeerNetwork(String);
