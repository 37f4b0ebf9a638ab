//! Evidence of the servers behind a cluster's addresses: the addresses themselves, and certificates whose private keys
//! the servers have proved to own. Other claims of a server prove nothing.

use std::collections::BTreeSet;

use http::Uri;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;

use crate::target::Target;

/// Maximal number of stored certificates per cluster. 64: a cluster has a few servers, and each server renews its
/// certificate about once a year.
const CERTIFICATES_MAX: usize = 64;

/// Evidence of the servers behind a cluster's addresses.
#[derive(Debug, Default)]
pub struct ServerIdentities {
    addresses: Mutex<Addresses>,
    /// The servers' own certificates in DER, from TLS handshakes in which the certificate was checked.
    certificates: Mutex<BTreeSet<Box<[u8]>>>,
}

#[derive(Clone, Debug, Default)]
struct Addresses {
    all: BTreeSet<ServerAddress>,
    /// Whether an address has a path. A server with a path may be a gateway, which uses its own certificate for several
    /// clusters.
    is_behind_front: bool,
}

/// Address of a server: its URL and the proxy to it. The same URL may lead to a different server behind a different
/// proxy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ServerAddress {
    server: String,
    proxy: Option<String>,
}

impl ServerIdentities {
    pub(crate) fn new(addresses: &[Target]) -> Self {
        let server_identities = Self::default();
        server_identities.set_addresses(addresses);
        server_identities
    }

    /// Replaces the addresses. Certificates remain.
    pub(crate) fn set_addresses(&self, addresses: &[Target]) {
        let is_behind_front = addresses.iter().any(|target| target.server.has_base_path());
        let all = addresses.iter().map(|Target { server, proxy }| ServerAddress {
            server: server.comparable.to_string(),
            proxy: proxy.as_ref().map(Uri::to_string),
        });
        *self.addresses.lock() = Addresses { all: all.collect(), is_behind_front };
    }

    /// Records the certificate of a server, after a TLS handshake in which the certificate was checked.
    pub(crate) fn add_certificate(&self, certificate: &CertificateDer<'_>) {
        let mut certificates = self.certificates.lock();
        if certificates.len() < CERTIFICATES_MAX && !certificates.contains(&**certificate) {
            certificates.insert((&**certificate).into());
        }
    }

    /// Returns whether two members share a server: the same address, or the same certificate of a TLS handshake in
    /// which the certificate was checked.
    pub fn share_server(&self, other: &Self) -> bool {
        // The two locks are never held at once, so that two concurrent comparisons cannot deadlock.
        let addresses = self.addresses.lock().clone();
        {
            let others = other.addresses.lock();
            if !addresses.all.is_disjoint(&others.all) {
                return true;
            }
            if addresses.is_behind_front || others.is_behind_front {
                return false;
            }
        }
        let own = self.certificates.lock().clone();
        !own.is_disjoint(&other.certificates.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::ServerUrl;

    fn server_identities(addresses: &[(&str, Option<&str>)], certificates: &[&[u8]]) -> ServerIdentities {
        let parsed: Vec<_> = addresses
            .iter()
            .map(|(url, proxy)| {
                let proxy: Option<Uri> = proxy.map(|proxy| proxy.parse().unwrap());
                Target { server: ServerUrl::parse(&url.parse().unwrap()).unwrap(), proxy }
            })
            .collect();
        let server_identities = ServerIdentities::new(&parsed);
        certificates.iter().for_each(|own| server_identities.add_certificate(&CertificateDer::from(*own)));
        server_identities
    }

    #[test]
    fn two_members_share_a_server_if_address_or_certificate_is_equal() {
        let (a, b) = (("https://a:6443", None), ("https://b:6443", None));
        for (one, other, expected) in [
            (server_identities(&[a], &[]), server_identities(&[a], &[]), true),
            (server_identities(&[a], &[]), server_identities(&[("https://A:6443/", None)], &[]), true),
            (server_identities(&[("https://a", None)], &[]), server_identities(&[("https://a:443", None)], &[]), true),
            (server_identities(&[a, b], &[]), server_identities(&[b], &[]), true),
            (server_identities(&[a], &[]), server_identities(&[b], &[]), false),
            (server_identities(&[a], &[]), server_identities(&[("http://a:6443", None)], &[]), false),
            // The same address behind different proxies may belong to different networks, and so to different servers.
            (
                server_identities(&[a], &[]),
                server_identities(&[("https://a:6443", Some("http://proxy:1"))], &[]),
                false,
            ),
            (server_identities(&[a], &[b"x", b"y"]), server_identities(&[b], &[b"z", b"y"]), true),
            (server_identities(&[a], &[b"x"]), server_identities(&[b], &[b"z"]), false),
            // A gateway may serve several clusters with one certificate, at different paths.
            (
                server_identities(&[("https://a/k/1", None)], &[b"x"]),
                server_identities(&[("https://a/k/2", None)], &[b"x"]),
                false,
            ),
            (
                server_identities(&[("https://a/k/1", None)], &[]),
                server_identities(&[("https://a/k/1", None)], &[]),
                true,
            ),
        ] {
            assert_eq!((one.share_server(&other), other.share_server(&one)), (expected, expected), "{one:?} {other:?}");
        }
        let many = server_identities(&[a], &[]);
        (0..1000_u32).for_each(|number| many.add_certificate(&CertificateDer::from(number.to_be_bytes().to_vec())));
        assert_eq!(many.certificates.lock().len(), CERTIFICATES_MAX);
    }
}
