//! The fuzzed properties of objects of the hub, and of addresses in these objects.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde_json::Value;
use tributary_crds::{
    InsecureMembers, MergedEndpoint, ResourceRegistry, UpstreamCluster, decode_hub_object, hub_problems,
};
use tributary_proxy::DialPolicy;

use crate::choice;

/// Fields of a member that an object of the hub may not have, as JSON pointers.
const REFUSED_FIELDS: [&str; 10] = [
    "/spec/kubeconfig",
    "/spec/caFile",
    "/spec/credentials/token",
    "/spec/credentials/tokenFile",
    "/spec/credentials/clientKeyData",
    "/spec/credentials/clientCertificateFile",
    "/spec/credentials/clientKeyFile",
    "/spec/secureServing/certificateFile",
    "/spec/secureServing/keyFile",
    "/spec/secureServing/clientCAFile",
];

/// The least length of a token that the property searches in errors, because a field may have the same short text.
const TOKEN_BYTES_MIN: usize = 20;

/// The first byte chooses the kind, and the remaining bytes are the JSON of an object.
///
/// The status does not influence the decoded object. A member without problems has no refused field, and only `https`
/// endpoints without a user. The text of an error contains no inline token.
pub fn hub_object(data: &[u8]) {
    let (kind, data) = choice(data);
    let Ok(document) = serde_json::from_slice::<Value>(data) else { return };
    let decoded = match kind % 3 {
        0 => decode_hub_object(document.clone(), "UpstreamCluster").map(|cluster| check_member(&document, &cluster)),
        1 => decode_hub_object::<ResourceRegistry>(document.clone(), "ResourceRegistry").map(drop),
        _ => decode_hub_object::<MergedEndpoint>(document.clone(), "MergedEndpoint").map(drop),
    };
    let token = document.pointer("/spec/credentials/token").and_then(Value::as_str);
    if let (Err(error), Some(token)) = (decoded, token.filter(|token| token.len() >= TOKEN_BYTES_MIN)) {
        assert!(!error.to_string().contains(token), "the error contains the token");
    }
}

fn check_member(document: &Value, cluster: &UpstreamCluster) {
    let mut with_status = document.clone();
    with_status["status"] = Value::from("changed");
    let again: UpstreamCluster = decode_hub_object(with_status, "UpstreamCluster").unwrap();
    assert_eq!(&again, cluster);
    if !hub_problems(cluster, InsecureMembers::Refused).is_empty() {
        return;
    }
    for field in REFUSED_FIELDS {
        assert!(document.pointer(field).is_none_or(Value::is_null), "{field} is accepted");
    }
    assert_ne!(document.pointer("/spec/insecureSkipVerify"), Some(&Value::Bool(true)));
    for endpoint in &cluster.spec.endpoints {
        let rest = endpoint.strip_prefix("https://").expect("an endpoint begins with https://");
        assert!(!rest.split(['/', '?', '#']).next().unwrap_or_default().contains('@'), "{endpoint}");
    }
}

/// The input is the text of an IP address, or its bytes.
///
/// Each IPv6 form of an IPv4 address has the verdict of the IPv4 address, by default and with networks that are allowed
/// or refused. Loopback, unspecified, multicast and link-local addresses are refused.
pub fn dial_address(data: &[u8]) {
    let text = std::str::from_utf8(data).ok().and_then(|text| text.trim().parse::<IpAddr>().ok());
    let bytes = || match data {
        [a, b, c, d] => Some(IpAddr::from([*a, *b, *c, *d])),
        _ => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
    };
    match text.or_else(bytes) {
        Some(IpAddr::V4(address)) => check_forms(address),
        Some(IpAddr::V6(address)) => check_ipv6(address),
        None => {}
    }
}

fn check_forms(address: Ipv4Addr) {
    let network = IpNet::from(IpAddr::V4(address));
    let allowing = DialPolicy::new(vec![network], Vec::new());
    let refusing = DialPolicy::new(vec![network], vec![network]);
    let is_refused = DialPolicy::default().check(address.into()).is_err();
    for form in forms(address) {
        assert_eq!(DialPolicy::default().check(form.into()).is_err(), is_refused, "{form}");
        assert!(allowing.check(form.into()).is_ok(), "{form}");
        assert!(refusing.check(form.into()).is_err(), "{form}");
    }
}

/// Returns the IPv6 forms of an IPv4 address.
fn forms(address: Ipv4Addr) -> Vec<Ipv6Addr> {
    let [a, b, c, d] = address.octets().map(u16::from);
    let (high, low) = ((a << 8) | b, (c << 8) | d);
    let mut forms = vec![
        Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
        Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
        Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0x5efe, high, low),
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0x200, 0x5efe, high, low),
    ];
    if a != 0 {
        forms.push(Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low));
        forms.push(Ipv6Addr::new(0x64, 0xff9b, 1, high, c, d << 8, 0, 0));
    }
    forms
}

fn check_ipv6(address: Ipv6Addr) {
    let is_refused = DialPolicy::default().check(address.into()).is_err();
    let is_local = address.is_loopback() || address.is_unspecified() || address.is_multicast();
    let is_mapped = address.to_ipv4_mapped().is_some_and(|inner| inner.is_loopback() || inner.is_link_local());
    assert!(is_refused || !(is_local || is_mapped || address.is_unicast_link_local()), "{address} is not refused");
    let everything = DialPolicy::new(vec!["::/0".parse().unwrap(), "0.0.0.0/0".parse().unwrap()], Vec::new());
    assert!(everything.check(address.into()).is_ok(), "{address}");
}
