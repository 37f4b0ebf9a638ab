//! What shows which servers a member's addresses lead to: the addresses themselves, and the certificates whose keys the
//! servers behind them have proved to hold. What a server says of itself shows nothing.

use std::collections::BTreeSet;

use http::Uri;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;

use crate::target::Target;

/// How many certificates are remembered of one member. 64: a cluster has some servers, each of which renews its own
/// once a year.
const CERTIFICATES_MAX: usize = 64;

/// What shows which servers a member's addresses lead to.
#[derive(Debug, Default)]
pub struct ServerProofs {
    addresses: Mutex<Addresses>,
    /// The servers' own certificates, in DER, of handshakes in which they were checked.
    certificates: Mutex<BTreeSet<Box<[u8]>>>,
}

/// A member's addresses.
#[derive(Clone, Debug, Default)]
struct Addresses {
    all: BTreeSet<ServerAddress>,
    /// Whether something stands before the servers that leads to one of many by the path: its certificate is its own.
    is_behind_front: bool,
}

/// Where a request goes: the server's URL, and the proxy on the way, behind which an address may be another's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ServerAddress {
    server: String,
    proxy: Option<String>,
}

impl ServerProofs {
    /// Those of a member at these addresses, before anything has been sent there.
    pub(crate) fn new(addresses: &[Target]) -> Self {
        let proofs = Self::default();
        proofs.set_addresses(addresses);
        proofs
    }

    /// The member has these addresses from now on. What its servers have proved stays.
    pub(crate) fn set_addresses(&self, addresses: &[Target]) {
        let is_behind_front = addresses.iter().any(|target| target.server.has_base_path());
        let all = addresses.iter().map(|Target { server, proxy }| ServerAddress {
            server: server.comparable.to_string(),
            proxy: proxy.as_ref().map(Uri::to_string),
        });
        *self.addresses.lock() = Addresses { all: all.collect(), is_behind_front };
    }

    /// Notes the certificate that a server has proved itself by.
    pub(crate) fn add_certificate(&self, certificate: &CertificateDer<'_>) {
        let mut certificates = self.certificates.lock();
        if certificates.len() < CERTIFICATES_MAX && !certificates.contains(&**certificate) {
            certificates.insert((&**certificate).into());
        }
    }

    /// Whether both lead to one server at least: by an address that both have, or a certificate by which servers of
    /// both have proved themselves.
    pub fn meet(&self, other: &Self) -> bool {
        // One lock after the other, so that two who compare both do not wait for each other.
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
    fn servers_are_one_by_address_or_by_what_they_have_proved() {
        let (a, b) = (("https://a:6443", None), ("https://b:6443", None));
        for (one, other, expected) in [
            (proofs(&[a], &[]), proofs(&[a], &[]), true),
            (proofs(&[a], &[]), proofs(&[("https://A:6443/", None)], &[]), true),
            (proofs(&[("https://a", None)], &[]), proofs(&[("https://a:443", None)], &[]), true),
            (proofs(&[a, b], &[]), proofs(&[b], &[]), true),
            (proofs(&[a], &[]), proofs(&[b], &[]), false),
            (proofs(&[a], &[]), proofs(&[("http://a:6443", None)], &[]), false),
            // Another network may have the address, too.
            (proofs(&[a], &[]), proofs(&[("https://a:6443", Some("http://proxy:1"))], &[]), false),
            (proofs(&[a], &[b"x", b"y"]), proofs(&[b], &[b"z", b"y"]), true),
            (proofs(&[a], &[b"x"]), proofs(&[b], &[b"z"]), false),
            // One front before many clusters.
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
