//! Address of a client, as members get it.

use std::io::Write as _;
use std::net::SocketAddr;

use http::HeaderValue;

/// Maximal length of an address as text, in bytes: eight groups of IPv6 digits, with the colons.
const ADDRESS_BYTES_MAX: usize = 39;

/// Returns the IP address of the client's connection as a header value. Cost: one allocation.
///
/// Tributary sends the address as `X-Forwarded-For`, which kube-apiserver writes into `sourceIPs` of its audit events.
/// The client's own `X-Forwarded-For` is removed.
pub(crate) fn address_header(peer: SocketAddr) -> Option<HeaderValue> {
    let mut text = [0; ADDRESS_BYTES_MAX];
    let mut rest = &mut text[..];
    write!(rest, "{}", peer.ip()).ok()?;
    let length = ADDRESS_BYTES_MAX - rest.len();
    HeaderValue::from_bytes(&text[..length]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_address_of_any_length_becomes_a_header_value() {
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
            assert_eq!(address_header(address).unwrap(), address.ip().to_string(), "{text}");
        }
    }
}
