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
pub struct ServerProofs {
    addresses: Mutex<Addresses>,
    /// The servers' own certificates in DER, from handshakes with checked certificates.
    certificates: Mutex<BTreeSet<Box<[u8]>>>,
}

#[derive(Clone, Debug, Default)]
struct Addresses {
    all: BTreeSet<ServerAddress>,
    /// Whether an address has a path. Then a gateway may serve several clusters with its own certificate.
    is_behind_front: bool,
}

/// Target of requests: server URL and proxy. Behind another proxy, the same address may lead to a different server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ServerAddress {
    server: String,
    proxy: Option<String>,
}

impl ServerProofs {
    pub(crate) fn new(addresses: &[Target]) -> Self {
        let proofs = Self::default();
        proofs.set_addresses(addresses);
        proofs
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

    /// Records the certificate of a server, after a checked handshake.
    pub(crate) fn add_certificate(&self, certificate: &CertificateDer<'_>) {
        let mut certificates = self.certificates.lock();
        if certificates.len() < CERTIFICATES_MAX && !certificates.contains(&**certificate) {
            certificates.insert((&**certificate).into());
        }
    }

    /// Returns whether two members share a server: a common address, or a common certificate of checked handshakes.
    pub fn meet(&self, other: &Self) -> bool {
        // The locks are never held at once, so that two concurrent comparisons cannot deadlock.
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

    fn proofs(addresses: &[(&str, Option<&str>)], certificates: &[&[u8]]) -> ServerProofs {
        let parsed: Vec<_> = addresses
            .iter()
            .map(|(url, proxy)| {
                let proxy: Option<Uri> = proxy.map(|proxy| proxy.parse().unwrap());
                Target { server: ServerUrl::parse(&url.parse().unwrap()).unwrap(), proxy }
            })
            .collect();
        let proofs = ServerProofs::new(&parsed);
        certificates.iter().for_each(|own| proofs.add_certificate(&CertificateDer::from(*own)));
        proofs
    }

    #[test]
    fn members_share_a_server_by_address_or_certificate() {
        let (a, b) = (("https://a:6443", None), ("https://b:6443", None));
        for (one, other, expected) in [
            (proofs(&[a], &[]), proofs(&[a], &[]), true),
            (proofs(&[a], &[]), proofs(&[("https://A:6443/", None)], &[]), true),
            (proofs(&[("https://a", None)], &[]), proofs(&[("https://a:443", None)], &[]), true),
            (proofs(&[a, b], &[]), proofs(&[b], &[]), true),
            (proofs(&[a], &[]), proofs(&[b], &[]), false),
            (proofs(&[a], &[]), proofs(&[("http://a:6443", None)], &[]), false),
            // Behind a proxy, the same address may belong to another network.
            (proofs(&[a], &[]), proofs(&[("https://a:6443", Some("http://proxy:1"))], &[]), false),
            (proofs(&[a], &[b"x", b"y"]), proofs(&[b], &[b"z", b"y"]), true),
            (proofs(&[a], &[b"x"]), proofs(&[b], &[b"z"]), false),
            // A gateway may serve several clusters with one certificate, at different paths.
            (proofs(&[("https://a/k/1", None)], &[b"x"]), proofs(&[("https://a/k/2", None)], &[b"x"]), false),
            (proofs(&[("https://a/k/1", None)], &[]), proofs(&[("https://a/k/1", None)], &[]), true),
        ] {
            assert_eq!((one.meet(&other), other.meet(&one)), (expected, expected), "{one:?} {other:?}");
        }
        let many = proofs(&[a], &[]);
        (0..1000_u32).for_each(|number| many.add_certificate(&CertificateDer::from(number.to_be_bytes().to_vec())));
        assert_eq!(many.certificates.lock().len(), CERTIFICATES_MAX);
    }
}
