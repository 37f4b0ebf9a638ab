//! The connection that a client's request came by.

use std::io::Write as _;
use std::net::SocketAddr;

use http::HeaderValue;

/// The longest address as text, in bytes: eight groups of IPv6, and the colons between them.
const ADDRESS_BYTES_MAX: usize = 39;

/// Remote address of the client's connection.
///
/// It is sent as `X-Forwarded-For`, which kube-apiserver writes into the `sourceIPs` of its audit events; the client's
/// own claims are dropped. Connections share limits fairly by it; requests without it count as one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer(pub SocketAddr);

impl Peer {
    /// Address as the value of a header. Cost: one allocation.
    pub(crate) fn address(self) -> Option<HeaderValue> {
        let mut text = [0; ADDRESS_BYTES_MAX];
        let mut rest = &mut text[..];
        write!(rest, "{}", self.0.ip()).ok()?;
        let length = ADDRESS_BYTES_MAX - rest.len();
        HeaderValue::from_bytes(&text[..length]).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_address_is_written_in_full_however_long() {
        for text in [
            "0.0.0.0:1",
            "255.255.255.255:65535",
            "[::]:1",
            "[::1]:1",
            "[::ffff:255.255.255.255]:1",
            "[fedc:ba98:7654:3210:fedc:ba98:7654:3210]:1",
            "[fe80::fedc:ba98:7654:3210%7]:1",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Peer(address).address().unwrap(), address.ip().to_string(), "{text}");
        }
    }
}
