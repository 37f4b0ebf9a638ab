//! The source addresses of a request (apimachinery `pkg/util/net/http.go`, `SourceIPs`).

use std::net::IpAddr;

/// Returns the addresses of a request's client and proxies, the nearest last. The addresses of `X-Forwarded-For` come
/// first. Next is the address of `X-Real-Ip`, unless the list already contains it. The address of the connection is the
/// last. It is not added if the list already ends with it. Only the last address is verified; the client can forge the
/// others. Invalid addresses are ignored.
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

/// Parses an address. An IPv4 address in IPv6 notation becomes an IPv4 address.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    // Most requests have neither `X-Forwarded-For` nor `X-Real-Ip`, so `text` is usually empty.
    let address = if text.is_empty() { None } else { text.parse::<IpAddr>().ok() };
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_peer_is_the_last_source_ip_and_is_listed_once() {
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
