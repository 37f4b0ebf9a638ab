//! Where a request came from (apimachinery `pkg/util/net/http.go`, `SourceIPs`).

use std::net::IpAddr;

/// The addresses that a request came by, the nearest last: those of `X-Forwarded-For`, that of `X-Real-Ip` unless it is
/// among them, and the connection's own unless it is the last already. All but the last are what the client claims.
/// Texts that are no address are left out.
pub fn source_ips(forwarded_for: &str, real_ip: &str, peer: IpAddr) -> Vec<IpAddr> {
    let mut addresses = Vec::with_capacity(1);
    addresses.extend(forwarded_for.split(',').filter_map(address));
    if let Some(real) = address(real_ip)
        && !addresses.contains(&real)
    {
        addresses.push(real);
    }
    let peer = peer.to_canonical();
    if addresses.last() != Some(&peer) {
        addresses.push(peer);
    }
    addresses
}

/// An address; one of IPv4 that is written as IPv6 is the same.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    // Most requests came by nobody.
    let address = if text.is_empty() { None } else { text.parse::<IpAddr>().ok() };
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connections_own_address_comes_last_and_once() {
        for (forwarded, real, peer, expected) in [
            ("", "", "127.0.0.1", &["127.0.0.1"][..]),
            ("10.0.0.1, 10.0.0.2", "", "127.0.0.1", &["10.0.0.1", "10.0.0.2", "127.0.0.1"]),
            ("10.0.0.1", "10.0.0.1", "10.0.0.1", &["10.0.0.1"]),
            ("10.0.0.1,nobody,", "10.0.0.3", "10.0.0.1", &["10.0.0.1", "10.0.0.3", "10.0.0.1"]),
            ("::1", "x", "::ffff:10.0.0.1", &["::1", "10.0.0.1"]),
        ] {
            let found = source_ips(forwarded, real, peer.parse().unwrap());
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{forwarded} {real} {peer}");
        }
    }
}
