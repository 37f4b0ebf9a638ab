//! A policy against addresses to which configuration objects of the hub must not lead. Without the policy, a user with
//! the right to create an UpstreamCluster could send requests to services on Tributary's machine, or to the metadata
//! service of a cloud.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Decides which IP addresses may be dialed. The policy refuses loopback, link-local, metadata, unspecified, multicast
/// and broadcast addresses, also inside IPv6 forms of IPv4 addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DialPolicy {
    allow: Vec<IpNet>,
    deny: Vec<IpNet>,
}

/// An address that a [`DialPolicy`] refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{address} is {class}, and objects of the hub may not lead there; correct the address, or start Tributary with --hub-allow-cidr"
)]
pub struct RefusedAddress {
    address: IpAddr,
    class: &'static str,
}

impl RefusedAddress {
    /// Returns the `RefusedAddress` that is the error itself or one of its causes.
    pub(crate) fn from_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(refused) = error.downcast_ref() {
                return Some(refused);
            }
            cause = error.source();
        }
        None
    }
}

/// Metadata services of clouds outside the link-local network: Azure, Alibaba Cloud, and AWS over IPv6.
const METADATA: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254)),
];

impl DialPolicy {
    /// Creates a policy. `deny` has priority over `allow`, and `allow` over the addresses that are refused by default.
    pub fn new(allow: Vec<IpNet>, deny: Vec<IpNet>) -> Self {
        Self { allow, deny }
    }

    /// Checks an address, and the IPv4 addresses inside an IPv6 address.
    ///
    /// # Errors
    /// [`RefusedAddress`].
    pub fn check(&self, address: IpAddr) -> Result<(), RefusedAddress> {
        let inner = match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => Some(embedded_ipv4(address).map(IpAddr::V4)),
        };
        let mut forms = std::iter::once(address).chain(inner.into_iter().flatten());
        match forms.find_map(|form| self.refused_class(form)) {
            Some(class) => Err(RefusedAddress { address, class }),
            None => Ok(()),
        }
    }

    fn refused_class(&self, address: IpAddr) -> Option<&'static str> {
        let contains = |networks: &[IpNet]| networks.iter().any(|network| network.contains(&address));
        if contains(&self.deny) {
            return Some("in a network of --hub-deny-cidr");
        }
        class_of(address).filter(|_| !contains(&self.allow))
    }
}

/// Returns the class of an address that is refused by default.
fn class_of(address: IpAddr) -> Option<&'static str> {
    if METADATA.contains(&address) {
        return Some("the address of a metadata service");
    }
    match address {
        IpAddr::V4(address) if address.is_loopback() => Some("a loopback address"),
        IpAddr::V4(address) if address.is_link_local() => Some("a link-local address"),
        IpAddr::V4(address) if address.octets()[0] == 0 => Some("an unspecified address"),
        IpAddr::V4(address) if address.is_multicast() => Some("a multicast address"),
        IpAddr::V4(address) if address.is_broadcast() => Some("a broadcast address"),
        IpAddr::V6(address) if address.is_loopback() => Some("a loopback address"),
        IpAddr::V6(address) if address.is_unspecified() => Some("an unspecified address"),
        IpAddr::V6(address) if address.is_multicast() => Some("a multicast address"),
        IpAddr::V6(address) if address.is_unicast_link_local() => Some("a link-local address"),
        _ => None,
    }
}

/// Returns the IPv4 addresses inside an IPv6 address. An address may fit several forms.
fn embedded_ipv4(address: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let pair = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    let last = pair(g, h);
    let is_local_nat64 = (a, b, c) == (0x64, 0xff9b, 1);
    // The local-use prefix allows several layouts, so each layout yields a possible inner address. No host has an IPv4
    // address that begins with 0. So if a layout yields such an address, the network does not use this layout.
    let is_local = |inner: &Ipv4Addr| is_local_nat64 && inner.octets()[0] != 0;
    let forms = [
        // Compatible and mapped addresses (RFC 4291), translated addresses (RFC 2765), NAT64 (RFC 6052).
        match (a, b, c, d, e, f) {
            (0, 0, 0, 0, 0, 0) if address.is_loopback() || address.is_unspecified() => None,
            (0, 0, 0, 0, 0, 0 | 0xffff) | (0, 0, 0, 0, 0xffff, 0) | (0x64, 0xff9b, 0, 0, 0, 0) => Some(last),
            _ => None,
        },
        // NAT64 with the local-use prefix (RFC 8215): prefixes of 96 bits, and of 48 bits, whose layout leaves bits 64
        // to 71 empty.
        Some(last).filter(is_local),
        Some(pair(d, (e << 8) | (f >> 8))).filter(|inner| is_local(inner) && e >> 8 == 0),
        // 6to4 (RFC 3056).
        (a == 0x2002).then(|| pair(b, c)),
        // ISATAP (RFC 5214), in every network.
        ((e | 0x200, f) == (0x200, 0x5efe)).then_some(last),
    ];
    forms.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused_class(policy: &DialPolicy, address: &str) -> Option<&'static str> {
        policy.check(address.parse().unwrap()).err().map(|refused| refused.class)
    }

    #[test]
    fn loopback_and_metadata_service_addresses_are_refused_in_every_notation() {
        let policy = DialPolicy::default();
        for (address, class) in [
            ("127.0.0.1", Some("a loopback address")),
            ("127.9.9.9", Some("a loopback address")),
            ("::1", Some("a loopback address")),
            ("::ffff:127.0.0.1", Some("a loopback address")),
            ("::127.0.0.1", Some("a loopback address")),
            ("64:ff9b::127.0.0.1", Some("a loopback address")),
            ("64:ff9b:1::7f00:1", Some("a loopback address")),
            ("64:ff9b:1:7f00:0:100::", Some("a loopback address")),
            ("64:ff9b:1:a9fe:a9:fe00:0:1", Some("a link-local address")),
            ("::ffff:0:127.0.0.1", Some("a loopback address")),
            ("::5efe:127.0.0.1", Some("a loopback address")),
            ("2001:db8::5efe:169.254.169.254", Some("a link-local address")),
            ("2001:db8::200:5efe:127.0.0.1", Some("a loopback address")),
            ("2002:7f00:1::", Some("a loopback address")),
            ("169.254.169.254", Some("a link-local address")),
            ("::ffff:169.254.169.254", Some("a link-local address")),
            ("fe80::1", Some("a link-local address")),
            ("fd00:ec2::254", Some("the address of a metadata service")),
            ("168.63.129.16", Some("the address of a metadata service")),
            ("100.100.100.200", Some("the address of a metadata service")),
            ("0.0.0.0", Some("an unspecified address")),
            ("0.1.2.3", Some("an unspecified address")),
            ("::", Some("an unspecified address")),
            ("224.0.0.1", Some("a multicast address")),
            ("ff02::1", Some("a multicast address")),
            ("255.255.255.255", Some("a broadcast address")),
            ("10.0.0.1", None),
            ("192.0.2.1", None),
            ("2001:db8::1", None),
            ("fd00::1", None),
            ("64:ff9b::10.0.0.1", None),
            ("64:ff9b:1::10.0.0.1", None),
            ("64:ff9b:1:a00:0:100::", None),
            ("::ffff:0:10.0.0.1", None),
            ("2001:db8::5efe:10.0.0.1", None),
        ] {
            assert_eq!(refused_class(&policy, address), class, "{address}");
        }
    }

    #[test]
    fn hub_cidr_flags_change_which_member_addresses_are_refused() {
        let networks = |text: &str| vec![text.parse().unwrap()];
        let policy = DialPolicy::new(networks("127.0.0.0/8"), networks("127.0.0.9/32"));
        assert_eq!(refused_class(&policy, "127.0.0.1"), None);
        assert_eq!(refused_class(&policy, "127.0.0.9"), Some("in a network of --hub-deny-cidr"));
        assert_eq!(refused_class(&policy, "::ffff:127.0.0.1"), None);
        assert_eq!(refused_class(&policy, "::1"), Some("a loopback address"));
        assert_eq!(refused_class(&policy, "169.254.0.1"), Some("a link-local address"));
        let policy = DialPolicy::new(Vec::new(), networks("10.0.0.0/8"));
        assert_eq!(refused_class(&policy, "64:ff9b::10.0.0.1"), Some("in a network of --hub-deny-cidr"));
    }
}
