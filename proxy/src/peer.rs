//! The connection that a client's request came by.

use std::net::SocketAddr;

/// A request extension: the far end of the connection that a client's request came by.
///
/// Its address is sent as `X-Forwarded-For`, which kube-apiserver writes into the `sourceIPs` of its audit events; what
/// the client itself claims there is dropped. And what clients share is shared fairly between connections: requests
/// without it count as those of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub SocketAddr);
