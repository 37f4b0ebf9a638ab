//! Serving certificates by name (`--tls-sni-cert-key`), chosen as in kube-apiserver (apiserver
//! `pkg/server/dynamiccertificates/named_certificates.go`).

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use rustls::sign::CertifiedKey;
use tributary_apimachinery::HostName;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// The name by which a certificate is chosen in the TLS handshake.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CertificateName {
    /// A host name in lower case. `*` as the first label matches any label.
    Dns(String),
    /// The connection's local address, for a client without SNI.
    Address(IpAddr),
}

impl FromStr for CertificateName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        if text != "*" {
            let name = text.strip_prefix("*.").unwrap_or(text).parse::<HostName>();
            name.map_err(|_| {
                format!(
                    "{text:?} is not a host name or address; allowed are foo.example.com, *.example.com and addresses"
                )
            })?;
        }
        Ok(Self::Dns(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// The serving certificates of `--tls-sni-cert-key`, by host name or IP address.
#[derive(Clone, Default)]
pub struct NamedCertificates(HashMap<CertificateName, Arc<CertifiedKey>>);

impl NamedCertificates {
    /// Builds the map from certificates in the order of the flags. Without names in its flag, a certificate gets the
    /// names that it contains. If two certificates have the same name, the first certificate wins. Names in flags win
    /// over names in certificates.
    pub fn new(given: &[(Arc<CertifiedKey>, Vec<CertificateName>)]) -> Self {
        let mut all = HashMap::new();
        let mut put = |name: CertificateName, certificate: &Arc<CertifiedKey>| {
            all.entry(name).or_insert_with(|| Arc::clone(certificate));
        };
        for (certificate, names) in given {
            names.iter().for_each(|name| put(name.clone(), certificate));
        }
        for (certificate, _) in given.iter().filter(|(_, names)| names.is_empty()) {
            own_names(certificate).into_iter().for_each(|name| put(name, certificate));
        }
        Self(all)
    }

    /// Returns the certificate for a host name (SNI). An exact name wins over a wildcard.
    pub fn find_by_name(&self, asked: &str) -> Option<&Arc<CertifiedKey>> {
        let asked = asked.to_ascii_lowercase();
        let any = asked.split_once('.').map_or_else(|| "*".to_owned(), |(_, rest)| format!("*.{rest}"));
        [asked, any].into_iter().find_map(|name| self.0.get(&CertificateName::Dns(name)))
    }

    /// Returns the certificate for the local address of a connection without SNI.
    pub fn find_by_address(&self, address: IpAddr) -> Option<&Arc<CertifiedKey>> {
        self.0.get(&CertificateName::Address(address))
    }
}

impl fmt::Debug for NamedCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Returns the names in a certificate: its DNS names, and its common name if that is a host name. IP addresses are
/// ignored, as in kube-apiserver.
fn own_names(certificate: &CertifiedKey) -> Vec<CertificateName> {
    let Some(Ok((_, parsed))) = certificate.cert.first().map(|leaf| X509Certificate::from_der(leaf)) else {
        return Vec::new();
    };
    let common_name = parsed.subject().iter_common_name().last().and_then(|name| name.as_str().ok());
    let common_name = common_name.and_then(|name| name.parse::<CertificateName>().ok());
    let mut names: Vec<_> = common_name.filter(|name| matches!(name, CertificateName::Dns(_))).into_iter().collect();
    if let Ok(Some(alternative)) = parsed.subject_alternative_name() {
        names.extend(alternative.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(CertificateName::Dns(name.to_ascii_lowercase())),
            _ => None,
        }));
    }
    names
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;
    use crate::serving::certified_key;

    fn certificate(common_name: &str, names: &[&str]) -> Arc<CertifiedKey> {
        let mut parameters =
            CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>()).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().unwrap();
        let chain = parameters.self_signed(&key).unwrap().pem();
        Arc::new(certified_key(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap())
    }

    #[test]
    fn sni_names_in_flags_take_precedence_over_names_in_certificates() {
        let all = [
            ("one", certificate("common.test", &["one.test", "both.test", "10.0.0.1"]), ""),
            ("two", certificate("not a name", &["two.test", "both.test", "given.test", "*.wild.test"]), ""),
            ("three", certificate("three.test", &["three.test"]), "given.test *.given.test GIVEN.example 10.0.0.2"),
            ("four", certificate("*", &[]), "given.test x.wild.test one.test"),
            ("five", certificate("*", &[]), ""),
            ("six", certificate("10.0.0.3", &[]), ""),
        ];
        let given = all.iter().map(|(_, certificate, names)| {
            let names =
                names.split(' ').filter(|name| !name.is_empty()).map(|name| name.parse::<CertificateName>().unwrap());
            (Arc::clone(certificate), names.collect())
        });
        let given: Vec<_> = given.collect();
        let named = NamedCertificates::new(&given);
        let which = |found: &Arc<CertifiedKey>| all.iter().find(|(_, own, _)| Arc::ptr_eq(own, found)).unwrap().0;
        for (asked, expected) in [
            ("common.test", Some("one")),
            ("ONE.test", Some("four")),
            ("both.test", Some("one")),
            ("two.test", Some("two")),
            ("given.test", Some("three")),
            ("any.given.test", Some("three")),
            ("a.b.given.test", None),
            ("given.example", Some("three")),
            ("three.test", None),
            ("any.wild.test", Some("two")),
            ("x.wild.test", Some("four")),
            ("localhost", Some("five")),
            ("nope.test", None),
        ] {
            assert_eq!(named.find_by_name(asked).map(which), expected, "{asked}");
        }
        // IP addresses in a certificate's subjectAltName are ignored.
        for (address, expected) in [("10.0.0.1", None), ("10.0.0.2", Some("three")), ("10.0.0.3", None)] {
            assert_eq!(named.find_by_address(address.parse().unwrap()).map(which), expected, "{address}");
        }
    }
}
