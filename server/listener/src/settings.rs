//! The settings of the listener, as types into which the flags are parsed.

mod address;
mod bounds;
mod goaway;
mod peers;

use rustls::SupportedProtocolVersion;

pub use address::{ListenAddress, ListenAddressError};
pub use bounds::{Bounds, CONNECTIONS_MAX, UNREAD_BYTES_MAX};
pub(crate) use bounds::{CONNECTION_UNREAD_BYTES_MAX, HEADERS_MAX, UNAUTHENTICATED_DIVISOR};
pub use goaway::{ConnectionAge, GoawayChance};
pub use peers::{InvalidPeerNetwork, PeerNetwork, ProxyProtocolPeers};

/// A list of accepted TLS versions, the newest first.
pub type TlsVersions = &'static [&'static SupportedProtocolVersion];

/// TLS 1.2 and TLS 1.3 are accepted.
pub const TLS_1_2: TlsVersions = &[&rustls::version::TLS13, &rustls::version::TLS12];
/// Only TLS 1.3 is accepted.
pub const TLS_1_3: TlsVersions = &[&rustls::version::TLS13];
